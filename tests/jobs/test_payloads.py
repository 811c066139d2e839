"""Payloads as the types that handlers ask for."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from contextlib import AsyncExitStack, closing
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NewType, NotRequired, Required, TypedDict, TypeVar
from uuid import UUID

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_async import InvalidJobError, Job, Manual, PayloadError, Retry, Run, Scheduler, SQLiteStore
from scheduler_async.jobs.json_text import as_json_types, to_json_text
from scheduler_async.jobs.payloads import UnreadableTypeError, reader_for
from scheduler_async.testing import VirtualClock
from tests.cast import PATIENCE

if TYPE_CHECKING:
    from scheduler_async import Job as OnlyForTypes

UserId = NewType("UserId", str)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Report:
    to: str
    copies: int = 1


class Model(pydantic.BaseModel):
    to: str
    copies: int = pydantic.Field(default=1, ge=1)


@pydantic.dataclasses.dataclass
class PydanticReport:
    to: str
    copies: int = 1


class Letter(TypedDict):
    to: str
    copies: NotRequired[int]


@dataclass
class Tree:
    name: str
    below: list[Tree] = field(default_factory=list)


@dataclass
class Everything:
    text: str
    count: int
    ratio: float
    flag: bool
    nothing: None
    anything: Any
    maybe: str | None
    either: int | str
    names: list[str]
    pair: tuple[int, str]
    many: tuple[int, ...]
    unique: set[int]
    frozen: frozenset[str]
    counts: dict[str, int]
    colour: Colour
    size: Literal["s", "m", 3]
    at: datetime
    day: date
    clock: time
    pause: timedelta
    price: Decimal
    number: UUID
    file: Path
    user: UserId
    noted: Annotated[int, "a note"]
    report: Report
    reports: list[Report]
    by_name: dict[str, Report]


EVERYTHING = Everything(
    text="a",
    count=1,
    ratio=0.5,
    flag=True,
    nothing=None,
    anything=[1, {"a": None}],
    maybe=None,
    either="x",
    names=["a", "b"],
    pair=(1, "a"),
    many=(1, 2, 3),
    unique={1, 2},
    frozen=frozenset({"a"}),
    counts={"a": 1},
    colour=Colour.BLUE,
    size=3,
    at=datetime(2026, 1, 5, 12, tzinfo=UTC),
    day=date(2026, 1, 5),
    clock=time(9, 30),
    pause=timedelta(seconds=1, microseconds=5),
    price=Decimal("9.90"),
    number=UUID(int=7),
    file=Path("a/b"),
    user=UserId("u"),
    noted=2,
    report=Report("ops"),
    reports=[Report("a"), Report("b", 2)],
    by_name={"x": Report("a")},
)


def read(annotation: Any, value: Any) -> Any:
    return reader_for(annotation)(value, "payload")


def test_a_dataclass_comes_back_from_json_as_it_was() -> None:
    assert read(Everything, json.loads(to_json_text(EVERYTHING, "payload"))) == EVERYTHING


@given(st.builds(Report, to=st.text(st.characters(exclude_categories=["Cs"])), copies=st.integers()))
def test_whatever_a_dataclass_holds_comes_back(report: Report) -> None:
    assert read(Report, json.loads(to_json_text(report, "payload"))) == report


@given(st.timedeltas(min_value=timedelta(days=-9), max_value=timedelta(days=9)))
def test_any_duration_comes_back(duration: timedelta) -> None:
    @dataclass
    class Pause:
        pause: timedelta

    assert read(Pause, as_json_types(Pause(duration))) == Pause(duration)


@pytest.mark.parametrize(
    ("annotation", "value", "problem"),
    [
        (Report, {}, "payload.to is missing"),
        (Report, None, "payload must be a dict, not null"),
        (Report, [], "payload must be a dict, not []"),
        (Report, {"to": 5}, "payload.to must be a string, not 5"),
        (Report, {"to": "a", "copies": "three"}, 'payload.copies must be a whole number, not "three"'),
        (Report, {"to": "a", "copies": True}, "payload.copies must be a whole number, not true"),
        (Report, {"to": "a", "copies": 1.5}, "payload.copies must be a whole number, not 1.5"),
        (Report, {"to": "a", "kopies": 1}, 'payload has an unknown field "kopies"; Report has the fields to, copies'),
        (Report, {"to": ["x" * 100]}, 'payload.to must be a string, not ["' + "x" * 58 + "…"),
        (Report | None, {}, "payload.to is missing"),
        (Tree, {"name": "a", "below": [{"name": "b"}, {"name": 1}]}, "payload.below[1].name must be a string, not 1"),
        (dict[str, Report], {"x": {"to": 1}}, "payload.x.to must be a string, not 1"),
        (list[int], {"a": 1}, 'payload must be a list, not {"a": 1}'),
        (set[Any], [[1]], "payload must be a list whose items are not lists or dicts, not [[1]]"),
        (tuple[int, str], [1], "payload must be a list of 2 items, not [1]"),
        (int | list[int], "x", 'payload must be of type int | list[int], not "x"'),
        (Colour, "green", 'payload must be one of "red", "blue", not "green"'),
        (Literal["a", 1], True, 'payload must be one of "a", 1, not true'),
        (datetime, "noon", 'payload must be a datetime such as "2026-06-15T09:00:00Z", not "noon"'),
        (Decimal, "x", 'payload must be a decimal such as "9.99", not "x"'),
        (timedelta, "5x", 'payload must be a duration such as "5m", or a number of seconds, not "5x"'),
        (timedelta, True, 'payload must be a duration such as "5m", or a number of seconds, not true'),
        (None, 1, "payload must be null, not 1"),
        (float, "1", 'payload must be a number, not "1"'),
        (Letter, {"copies": 1}, "payload.to is missing"),
        (Letter, {"to": "a", "more": 1}, 'payload has an unknown field "more"; Letter has the fields to, copies'),
        (
            Model,
            {"copies": 0},
            "payload.to: Field required; payload.copies: Input should be greater than or equal to 1",
        ),
        (PydanticReport, {}, "payload.to: Field required"),
    ],
)
def test_what_does_not_fit_is_told_exactly(annotation: Any, value: Any, problem: str) -> None:
    with pytest.raises(PayloadError) as caught:
        read(annotation, value)

    assert caught.value.problem == problem
    assert str(caught.value) == f"The payload does not fit the handler: {problem}."
    assert caught.value.field == "payload"


@pytest.mark.parametrize(
    ("annotation", "value", "made"),
    [
        (Report, {"to": "a"}, Report("a")),
        (Report | None, None, None),
        (Letter, {"to": "a"}, {"to": "a"}),
        (Model, {"to": "a", "copies": "3"}, Model(to="a", copies=3)),
        (PydanticReport, {"to": "a"}, PydanticReport("a")),
        (list[Model], [{"to": "a"}], [Model(to="a")]),
        (float, 1, 1.0),
        (timedelta, 90, timedelta(seconds=90)),
        (tuple, [1, "a"], (1, "a")),
        (list, [1, "a"], [1, "a"]),
        (dict, {"a": 1}, {"a": 1}),
        (object, {"a": 1}, {"a": 1}),
    ],
)
def test_what_fits_is_made(annotation: Any, value: Any, made: Any) -> None:
    assert read(annotation, value) == made


def test_a_dataclass_may_have_checks_of_its_own() -> None:
    @dataclass
    class Positive:
        number: int

        def __post_init__(self) -> None:
            if self.number < 0:
                raise ValueError("a number below zero")

    with pytest.raises(PayloadError, match="payload is not a valid Positive: a number below zero"):
        read(Positive, {"number": -1})


def test_a_type_that_json_cannot_be_made_into_is_named() -> None:
    @dataclass
    class Odd:
        connection: VirtualClock

    with pytest.raises(UnreadableTypeError, match="VirtualClock cannot be read from JSON"):
        reader_for(Odd)


# ---------------------------------------------------------------- handlers


async def ran_with(function: Any, payload: Any) -> tuple[Any, Any]:
    """What *function* was given, and the row that its run left."""
    given: list[Any] = []
    async with Scheduler(":memory:", clock=VirtualClock("2026-01-05T12:00:00Z"), retry=Retry.none()) as scheduler:
        scheduler.handler("h")(partial(function, given) if isinstance(function, partial) else function(given))
        job = await scheduler.add_job(Manual(), handler="h", payload=payload)
        await scheduler.wait_for_run(await scheduler.trigger_job(job.id))
        (row,) = await scheduler.run_log(job.id)
        return given[0] if given else None, row


async def test_a_handler_gets_the_dataclass_that_it_is_annotated_with() -> None:
    def make(given: list[Any]) -> Any:
        async def send(report: Report) -> None:
            given.append(report)

        return send

    assert (await ran_with(make, {"to": "ops"}))[0] == Report("ops")
    assert (await ran_with(make, Report("ops", 2)))[0] == Report("ops", 2)


async def test_a_handler_gets_the_model_that_it_is_annotated_with() -> None:
    def make(given: list[Any]) -> Any:
        async def send(report: Model) -> None:
            given.append(report)

        return send

    assert (await ran_with(make, {"to": "ops"}))[0] == Model(to="ops")
    assert (await ran_with(make, Model(to="ops", copies=2)))[0] == Model(to="ops", copies=2)


@pytest.mark.parametrize("order", ["run first", "payload first", "run without annotation", "in a thread", "a default"])
async def test_a_handler_may_take_its_run_and_its_payload(order: str) -> None:
    def make(given: list[Any]) -> Any:
        async def run_first(run: Run, report: Report) -> None:
            given.append((run.payload, report))

        async def payload_first(report: Report, run: Run) -> None:
            given.append((run.payload, report))

        async def without_annotation(run, report: Report):  # type: ignore[no-untyped-def]
            given.append((run.payload, report))

        def in_a_thread(run: Run, report: Report) -> None:
            given.append((run.payload, report))

        async def with_default(run: Run, report: Report | None = None) -> None:
            given.append((run.payload, report))

        return {
            "run first": run_first,
            "payload first": payload_first,
            "run without annotation": without_annotation,
            "in a thread": in_a_thread,
            "a default": with_default,
        }[order]

    assert (await ran_with(make, {"to": "ops"}))[0] == ({"to": "ops"}, Report("ops"))


async def test_a_default_stands_in_for_no_payload() -> None:
    def make(given: list[Any]) -> Any:
        async def send(report: Report = Report("everybody")) -> None:
            given.append(report)

        return send

    assert (await ran_with(make, None))[0] == Report("everybody")
    assert (await ran_with(make, {"to": "ops"}))[0] == Report("ops")


async def test_a_default_stands_in_wherever_it_is() -> None:
    def make(given: list[Any]) -> Any:
        async def send(report: Report | None = None, run: Run | None = None) -> None:
            given.append((report, run))

        return send

    report, run = (await ran_with(make, None))[0]
    assert report is None
    assert isinstance(run, Run)


async def test_a_parameter_called_payload_may_be_of_any_type() -> None:
    def make(given: list[Any]) -> Any:
        async def send(payload: dict[str, int]) -> None:
            given.append(payload)

        return send

    assert (await ran_with(make, {"a": 1}))[0] == {"a": 1}


async def test_without_annotations_a_handler_gets_its_run() -> None:
    def make(given: list[Any]) -> Any:
        async def send(run):  # type: ignore[no-untyped-def]
            given.append(run.payload)

        return send

    assert (await ran_with(make, {"to": "ops"}))[0] == {"to": "ops"}


@pytest.mark.parametrize("name", ["run", "r"])
async def test_an_annotation_that_only_type_checkers_know_may_stand_for_the_run(name: str) -> None:
    def make(given: list[Any]) -> Any:
        async def send(run: OnlyForTypes) -> None:
            given.append(run)

        async def send_also(r: only_for_types.Run) -> None:  # type: ignore[name-defined]  # noqa: F821
            given.append(r)

        return send if name == "run" else send_also

    assert isinstance((await ran_with(make, {"to": "ops"}))[0], Run)


async def test_a_type_may_be_defined_beside_its_handler() -> None:
    @dataclass
    class Local:
        to: str

    given = []
    async with Scheduler(":memory:", clock=VirtualClock("2026-01-05T12:00:00Z")) as scheduler:

        @scheduler.handler("h")
        async def send(local: Local) -> None:
            given.append(local)

        await scheduler.add_job(Manual(), handler="h", id="a", payload=Local("ops"))
        await scheduler.wait_for_run(await scheduler.trigger_job("a"))

    assert given == [Local("ops")]


async def test_methods_and_objects_can_take_payloads() -> None:
    def make(given: list[Any]) -> Any:
        class Sender:
            async def send(self, report: Report) -> None:
                given.append(report)

            async def __call__(self, report: Report) -> None:
                given.append(report)

        return Sender()

    assert (await ran_with(make, {"to": "ops"}))[0] == Report("ops")
    assert (await ran_with(lambda given: make(given).send, {"to": "ops"}))[0] == Report("ops")


async def add_and_refuse(scheduler: Scheduler, payload: Any) -> None:
    with pytest.raises(PayloadError, match=r"does not fit the handler: payload.to is missing"):
        await scheduler.add_job(Manual(), handler="h", id="bad", payload=payload)


def test_pydantic_is_not_needed() -> None:
    program = """
import asyncio, sys
sys.modules["pydantic"] = None  # importing it fails
from dataclasses import dataclass
from scheduler_async import Manual, Scheduler

@dataclass
class Report:
    to: str

async def main():
    async with Scheduler(":memory:") as scheduler:
        @scheduler.handler("h")
        async def send(report: Report): print(report)
        await scheduler.add_job(Manual(), handler="h", id="a", payload=Report("ops"))
        await scheduler.wait_for_run(await scheduler.trigger_job("a"))

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "Report(to='ops')\n"


def with_report_handler(scheduler: Scheduler) -> Scheduler:
    @scheduler.handler("h")
    async def send(report: Report) -> None: ...

    return scheduler


async def test_payloads_are_checked_outside_of_transactions(path: Path, clock: VirtualClock) -> None:
    """The checks are the user's: they may take long, and ask who knows whom."""
    asked: list[int] = []

    @dataclass
    class Careful:
        number: int

        def __post_init__(self) -> None:
            asked.append(self.number)
            assert threading.current_thread() is threading.main_thread()
            with closing(sqlite3.connect(path, timeout=PATIENCE)) as other:  # a pass may write meanwhile
                other.execute("BEGIN IMMEDIATE")

    async with Scheduler(path, clock=clock) as scheduler:

        @scheduler.handler("h")
        async def handle(careful: Careful) -> None: ...

        await scheduler.add_job(Manual(), handler="h", id="a", payload={"number": 1})
        await scheduler.update_job("a", payload={"number": 2})
        await scheduler.wait_for_run(await scheduler.trigger_job("a", payload={"number": 3}))
        await scheduler.update_job("a", payload=Careful(4))

    assert asked == [1, 2, 3, 3, 4, 4]


async def test_an_edit_counts_from_what_the_job_is_when_it_is_written(path: Path, clock: VirtualClock) -> None:
    """It is worked out before: should somebody change the job in between, it is worked out again."""
    async with Scheduler(path, clock=clock) as scheduler, Scheduler(path, clock=clock) as other:
        await scheduler.add_job(Manual(), handler="h", id="a", payload=1, name="first")
        jobs: list[str | None] = []

        class Interfering(SQLiteStore):
            async def get(self, namespace: str, id: str) -> Job | None:
                job = await super().get(namespace, id)
                if len(jobs) < 2:
                    jobs.append(None if job is None else job.name)
                    await other.update_job("a", name=f"change {len(jobs)}")
                return job

        async with Scheduler(Interfering(path), clock=clock) as late:
            edited = await late.update_job("a", payload=2)

    assert jobs == ["first", "change 1"]
    assert (edited.name, edited.payload) == ("change 2", 2)


async def test_a_check_that_fails_without_words_refuses_the_payload(clock: VirtualClock) -> None:
    class WordlessError(Exception):
        def __str__(self) -> str:
            raise ValueError

    @dataclass
    class Never:
        number: int

        def __post_init__(self) -> None:
            raise WordlessError

    async with Scheduler(":memory:", clock=clock) as scheduler:

        @scheduler.handler("h")
        async def handle(never: Never) -> None: ...

        with pytest.raises(PayloadError, match="payload is not a valid Never: \\(no message"):
            await scheduler.add_job(Manual(), handler="h", payload={"number": 1})


@pytest.mark.parametrize("is_running", [True, False])
async def test_a_payload_that_does_not_fit_is_refused_when_it_is_given(*, is_running: bool) -> None:
    """Before the start, too, if the handler is registered."""
    scheduler = with_report_handler(Scheduler(":memory:", clock=VirtualClock("2026-01-05T12:00:00Z")))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(scheduler.stop)
        if is_running:
            await scheduler.start()
        await add_and_refuse(scheduler, {})
        assert await scheduler.list_jobs() == []

        await scheduler.add_job(Manual(), handler="h", id="good", payload={"to": "ops"})
        with pytest.raises(PayloadError, match=r"payload.to must be a string, not 1"):
            await scheduler.update_job("good", payload={"to": 1})
        with pytest.raises(PayloadError, match=r"payload.to must be a string, not 1"):
            await scheduler.trigger_job("good", payload={"to": 1})
        job = await scheduler.get_job("good")
        assert job is not None
        assert job.payload == {"to": "ops"}
        assert await scheduler.run_log() == []


async def test_a_job_with_a_payload_that_does_not_fit_can_still_be_changed_otherwise() -> None:
    scheduler = Scheduler(":memory:", clock=VirtualClock("2026-01-05T12:00:00Z"))
    await scheduler.add_job(Manual(), handler="h", id="bad", payload={})
    async with with_report_handler(scheduler):
        job = await scheduler.update_job("bad", name="a name")
        assert job.name == "a name"
        job = await scheduler.update_job("bad", payload={"to": "ops"})
        assert job.payload == {"to": "ops"}


async def test_a_payload_that_came_before_its_handler_fails_its_run() -> None:
    scheduler = Scheduler(":memory:", clock=VirtualClock("2026-01-05T12:00:00Z"), retry=Retry.none())
    await scheduler.add_job(Manual(), handler="h", id="bad", payload={"to": "a", "copies": "b"})
    async with with_report_handler(scheduler):
        await scheduler.wait_for_run(await scheduler.trigger_job("bad"))
        (row,) = await scheduler.run_log("bad")

    assert row.outcome == "error"
    assert row.error == (
        'PayloadError: The payload does not fit the handler: payload.copies must be a whole number, not "b".'
    )


def test_a_declared_job_is_checked_where_it_is_declared() -> None:
    scheduler = Scheduler(":memory:")

    with pytest.raises(PayloadError, match=r"payload.to is missing"):

        @scheduler.job(Manual(), payload={})
        async def send(report: Report) -> None: ...


def test_a_handler_that_asks_for_more_is_refused() -> None:
    scheduler = Scheduler(":memory:")

    async def a_clock(clock: VirtualClock) -> None: ...

    async def one_more(run: Run, report: Report, clock: VirtualClock) -> None: ...

    async def a_keyword(report: Report, *, clock: VirtualClock) -> None: ...

    for function in (a_clock, one_more, a_keyword):
        with pytest.raises(InvalidJobError, match='has a parameter "clock" whose type JSON cannot represent'):
            scheduler.handler(function)


def test_a_handler_whose_payload_cannot_be_made_is_refused() -> None:
    scheduler = Scheduler(":memory:")

    async def odd(payload: VirtualClock) -> None: ...

    with pytest.raises(InvalidJobError, match=r"Handler odd\(\) has a parameter .* whose type JSON cannot represent"):
        scheduler.handler(odd)


def test_a_payload_that_json_cannot_hold_is_refused() -> None:
    @dataclass
    class Odd:
        numbers: dict[Any, str]
        thing: object = None

    class Secret(pydantic.BaseModel):
        password: pydantic.SecretStr

    with pytest.raises(InvalidJobError, match="a key of type float is not a string"):
        to_json_text(Odd({1.5: "a"}), "payload")
    with pytest.raises(InvalidJobError, match="Object of type VirtualClock is not JSON"):
        to_json_text(Odd({}, VirtualClock()), "payload")
    with pytest.raises(InvalidJobError, match="a Secret does not read back from JSON as an equal value"):
        to_json_text(Secret(password=pydantic.SecretStr("hunter2")), "payload")


# ---------------------------------------------------------------- what a first version got wrong


def and_back(value: Any, annotation: Any = None) -> Any:
    return read(annotation or type(value), json.loads(to_json_text(value, "payload")))


class Aliased(pydantic.BaseModel):
    to_addr: str = pydantic.Field(alias="toAddr")


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    at: datetime


class Computing(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    number: int

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def doubled(self) -> int:
        return 2 * self.number


@pytest.mark.parametrize(
    "model",
    [Aliased(toAddr="x"), Strict(at=datetime(2026, 1, 5, tzinfo=UTC)), Computing(number=2)],
    ids=lambda model: type(model).__name__,
)
def test_a_model_comes_back_whatever_its_rules(model: pydantic.BaseModel) -> None:
    assert and_back(model) == model


def test_types_in_another_order_are_other_types() -> None:
    moment = datetime(2026, 1, 5, tzinfo=UTC)

    assert read(str | datetime, moment.isoformat()) == moment.isoformat()
    assert read(datetime | str, moment.isoformat()) == moment
    assert read(list[str | datetime], [moment.isoformat()]) == [moment.isoformat()]
    assert read(list[datetime | str], [moment.isoformat()]) == [moment]


T = TypeVar("T")


@dataclass
class Box(Generic[T]):
    content: T
    more: list[T] = field(default_factory=list)


def test_a_generic_dataclass_holds_what_it_says() -> None:
    assert read(Box[int], {"content": 1, "more": [2]}) == Box(1, [2])
    assert read(Box, {"content": 1, "more": ["x"]}) == Box[Any](1, ["x"])
    with pytest.raises(PayloadError, match=r'payload\.more\[0\] must be a whole number, not "x"'):
        read(Box[int], {"content": 1, "more": ["x"]})


def test_keys_may_be_numbers_and_enums() -> None:
    @dataclass
    class Counted:
        by_number: dict[int, str]
        by_colour: dict[Colour, int]

    value = Counted({1: "a"}, {Colour.RED: 2})

    assert and_back(value) == value
    with pytest.raises(PayloadError, match='a key of payload must be a whole number, not "x"'):
        read(dict[int, str], {"x": "a"})


def test_any_check_of_a_dataclass_may_fail() -> None:
    @dataclass
    class Fussy:
        number: int

        def __post_init__(self) -> None:
            raise KeyError(self.number)

    with pytest.raises(PayloadError, match="payload is not a valid Fussy: 1"):
        read(Fussy, {"number": 1})


def test_a_duration_beyond_all_measure_does_not_fit() -> None:
    with pytest.raises(PayloadError, match=r"payload must be a duration .*, not 1e\+300"):
        read(timedelta, 1e300)


class Half(TypedDict, total=False):
    name: Required[str]
    number: int


def test_a_key_that_is_required_among_those_that_are_not() -> None:
    assert read(Half, {"name": "a"}) == {"name": "a"}
    with pytest.raises(PayloadError, match=r"payload\.name is missing"):
        read(Half, {"number": 1})


@pytest.mark.parametrize("annotation", [bytes, bytes | None, complex, type("N", (tuple,), {})])
def test_what_json_has_no_form_for_is_refused(annotation: Any) -> None:
    with pytest.raises(UnreadableTypeError):
        reader_for(annotation)


def test_a_note_that_cannot_be_hashed_is_no_harm() -> None:
    assert read(Annotated[Report, {"x": 1}], {"to": "a"}) == Report("a")


@dataclass
class Unfinished:
    thing: OnlyForTypes


def test_a_type_that_is_not_to_be_found_is_named() -> None:
    with pytest.raises(UnreadableTypeError, match=r"a type in Unfinished cannot be found: .*OnlyForTypes"):
        reader_for(Unfinished)


def test_an_annotation_that_is_not_to_be_found_is_refused() -> None:
    """Rather than to give a run to who wants something else."""
    scheduler = Scheduler(":memory:")

    async def later(report: OnlyForTypes) -> None: ...

    with pytest.raises(
        InvalidJobError, match='annotated with "OnlyForTypes", which is not defined where the handler is registered'
    ):
        scheduler.handler(later)


def test_what_has_a_default_need_not_be_found() -> None:
    scheduler = Scheduler(":memory:")

    async def fine(run: Run, more: OnlyForTypes | None = None) -> None: ...

    assert scheduler.handler(fine) is fine


@pytest.mark.parametrize("kind", ["after another default", "by name"])
async def test_a_payload_is_given_wherever_it_is_asked_for(kind: str) -> None:
    def make(given: list[Any]) -> Any:
        async def after(run: Run, namespace: str = "x", report: Report = Report("?")) -> None:
            given.append((namespace, report))

        async def by_name(run: Run, namespace: str = "x", *, report: Report) -> None:
            given.append((namespace, report))

        return after if kind == "after another default" else by_name

    assert (await ran_with(make, {"to": "ops"}))[0] == ("x", Report("ops"))


async def test_the_handler_of_all_others_has_its_payloads_checked_too() -> None:
    async with Scheduler(":memory:", clock=VirtualClock("2026-01-05T12:00:00Z")) as scheduler:

        @scheduler.on_job_due
        async def anything(report: Report) -> None: ...

        with pytest.raises(PayloadError, match=r"payload\.to is missing"):
            await scheduler.add_job(Manual(), handler="whatever", payload={})


# ---------------------------------------------------------------- what msgspec would read in another way


@dataclass(init=False)
class OwnInit:
    number: int

    def __init__(self, number: int) -> None:
        self.number = 2 * number


@dataclass
class WithInitVar:
    number: int
    factor: InitVar[int] = 3

    def __post_init__(self, factor: int) -> None:
        self.product = factor * self.number


@dataclass
class Around:
    inner: PydanticReport
    model: Model | None = None


class Flag(Enum):
    ON = True
    HALF = 0.5


@pytest.mark.parametrize(
    ("annotation", "value", "made"),
    [
        (OwnInit, {"number": 2}, OwnInit(2)),
        (WithInitVar, {"number": 2}, WithInitVar(2)),
        (Around, {"inner": {"to": "a", "copies": "2"}}, Around(PydanticReport("a", 2))),
        (int | Path, "a/b", Path("a/b")),
        (Report | Letter, {"to": "a"}, Report("a")),
        (list[int] | set[str], ["a"], {"a"}),
        (Flag, 0.5, Flag.HALF),
        (Literal[True, "a"], True, True),
        (datetime, "2026-06-15", datetime(2026, 6, 15)),
        (time, "09:00", time(9)),
        (date, "20260615", date(2026, 6, 15)),
        (UUID, "{00000000-0000-0000-0000-000000000007}", UUID(int=7)),
        (list[Annotated[int, {"a": "note"}]], [1], [1]),
    ],
)
def test_what_msgspec_does_not_read_is_read(annotation: Any, value: Any, made: Any) -> None:
    assert read(annotation, value) == made


def test_an_init_var_keeps_its_default() -> None:
    assert read(WithInitVar, {"number": 2}).product == 6


@pytest.mark.parametrize(
    ("annotation", "value", "problem"),
    [
        (Around, {"inner": {"to": "a", "copies": "x"}}, "payload.inner.copies: Input should be a valid integer"),
        (Around, {"inner": {"to": "a"}, "model": {"to": "a", "copies": 0}}, "payload.model.copies: Input should be"),
        (list[Report], [{"to": "a", "x": 1}], 'payload[0] has an unknown field "x"; Report has the fields to, copies'),
        (WithInitVar, {"number": 2, "factor": 4}, 'payload has an unknown field "factor"'),
        (timedelta, "PT5M", 'payload must be a duration such as "5m"'),
        (Decimal, 9.99, 'payload must be a decimal such as "9.99", not 9.99'),
        (float, 10**400, "payload must be a number, not 1000"),
        (int, 1.0, "payload must be a whole number, not 1.0"),
    ],
)
def test_what_msgspec_reads_is_refused(annotation: Any, value: Any, problem: str) -> None:
    with pytest.raises(PayloadError) as caught:
        read(annotation, value)

    assert caught.value.problem.startswith(problem)


class UnfinishedLetter(TypedDict):
    thing: OnlyForTypes


def test_a_type_that_a_typed_dict_refers_to_must_exist() -> None:
    with pytest.raises(UnreadableTypeError, match=r"a type in UnfinishedLetter cannot be found: .*OnlyForTypes"):
        reader_for(UnfinishedLetter)
