"""Schedules that users write: registered by their kind, stored by their fields, and never trusted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_async import (
    AnyOf,
    Calendar,
    Cron,
    Every,
    InvalidScheduleError,
    JobSpec,
    Schedule,
    UnknownScheduleError,
    Weekdays,
)
from scheduler_async.schedules import base
from scheduler_async.timekeeping.instants import to_micros

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Light(StrEnum):
    DAWN = "dawn"
    DUSK = "dusk"


class Level(Enum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True)
class Tide(Schedule):
    """Uses a field of each type that can be stored."""

    kind = "test-tide"
    since: datetime
    every: timedelta = HOUR
    day: date = date(2026, 1, 5)
    light: Light = Light.DAWN
    level: Level = Level.LOW
    heights: tuple[float, ...] = (1.5, 2.5)
    names: dict[str, int] | None = None
    fallback: Schedule | None = None
    others: list[Every] | None = None
    places: dict[str, Schedule] | None = None
    closed: tuple[Weekdays, ...] = ()
    calendar: Calendar | None = None
    label: str = "x"

    def next_after(self, now: datetime) -> datetime | None:
        return self.since if now < self.since else now + self.every - (now - self.since) % self.every


@dataclass(frozen=True)
class Odd(Schedule):
    """Answers with whatever it is given."""

    kind = "test-odd"
    answer: str

    def next_after(self, now: datetime) -> Any:
        return {
            "naive": (now + HOUR).replace(tzinfo=None),
            "same": now,
            "earlier": now - HOUR,
            "text": "tomorrow",
            "number": 5,
            "none": None,
            "raises": None,
        }[self.answer if self.answer != "raises" else "nothing like it"]


TIDE = Tide(
    NOON,
    timedelta(hours=6, microseconds=1),
    date(2026, 2, 3),
    Light.DUSK,
    Level.HIGH,
    (0.5,),
    {"a": 1},
    Cron("0 9 * * *", tz="UTC").on(Weekdays("MON-FRI")),
    [Every("90s"), Every("2h")],
    {"Visby": Cron("0 9 * * *", tz="UTC"), "kind": Every("5m", jitter="1s")},
    (Weekdays("SUN,SAT"),),
    Weekdays("MON"),
    'quoted "text"',
)


UNKNOWN = {"version": 1, "kind": "sunrise"}


def test_the_fields_make_the_json_form() -> None:
    form = json.loads(json.dumps(TIDE.to_json()))

    assert form["kind"] == "test-tide"
    assert Schedule.from_json(form) == TIDE
    assert Schedule.from_json(TIDE.json_text()) == TIDE
    for schedule in (TIDE, TIDE.on(Weekdays("MON")), AnyOf(TIDE, Every("1h"), TIDE)):
        assert JobSpec(schedule, handler="x").schedule == Schedule.from_json(schedule.json_text()) == schedule


def test_what_only_next_after_knows_is_found_by_asking() -> None:
    tide, grid = Tide(NOON), Every("1h", anchor=NOON)
    for hours in (0, 1, 5, 24.5, 1000):
        now = NOON + hours * HOUR
        assert tide.previous(now) == grid.previous(now)
        assert tide.next_micros(to_micros(now)) == grid.next_micros(to_micros(now))
        start, end = to_micros(NOON) - 1, to_micros(now)
        assert tide.count_micros(start, end, None, 10**6) == min(grid.count_micros(start, end, None, 10**6), 1000)
    assert tide.previous(NOON - HOUR) is None


@given(st.lists(st.integers(0, 10**6), min_size=1, unique=True), st.integers(-10, 10**6 + 10))
def test_the_previous_occurrence_is_found_in_few_questions(seconds: list[int], now: int) -> None:
    asked = []

    @dataclass(frozen=True)
    class Listed(Schedule):
        kind = "test-listed"

        def next_after(self, moment: datetime) -> datetime | None:
            asked.append(moment)
            later = [NOON + timedelta(seconds=one) for one in seconds if NOON + timedelta(seconds=one) > moment]
            return min(later, default=None)

    before = [one for one in seconds if one <= now]

    found = Listed().previous(NOON + timedelta(seconds=now))

    assert found == (NOON + timedelta(seconds=max(before)) if before else None)
    assert len(asked) < 120


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("naive", "has no time zone"),
        ("same", "must return a later time"),
        ("earlier", "must return a later time"),
        ("text", "must return an aware datetime or None"),
        ("number", "must return an aware datetime or None"),
        ("raises", "raised KeyError"),
    ],
)
def test_a_nonsensical_answer_is_an_error_that_says_so(answer: str, words: str) -> None:
    with pytest.raises(InvalidScheduleError, match=words):
        Odd(answer).next_micros(to_micros(NOON))


def test_a_description_is_optional_and_never_an_error() -> None:
    @dataclass(frozen=True)
    class Plain(Schedule):
        kind = "test-plain"
        place: str = "Visby"

        def next_after(self, now: datetime) -> datetime | None:
            return None

    @dataclass(frozen=True)
    class Told(Plain):
        kind = "test-told"

        def describe(self) -> str:  # type: ignore[override]
            return f"at sunrise in {self.place}"

    @dataclass(frozen=True)
    class Broken(Plain):
        kind = "test-broken"

        def describe(self, zone: object = UTC) -> str:
            raise LookupError

    assert Plain().describe(UTC) == "by the schedule test-plain(place='Visby')"
    told: Schedule = Told()
    assert told.describe("Europe/Stockholm") == "at sunrise in Visby"
    assert Broken().describe() == "by the schedule test-broken(place='Visby')"


def define(name: str, kind: object) -> type[Schedule]:
    members = {"kind": kind, "next_after": lambda self, now: None, "__module__": __name__}
    return dataclass(frozen=True)(type(name, (Schedule,), members))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(lambda: define("Mine", "cron"), 'The kind "cron" is built in', id="a kind of ours"),
        pytest.param(lambda: define("Mine", "a b"), "must have a kind of its own", id="a kind that is not a name"),
        pytest.param(lambda: define("Mine", None), "must have a kind of its own", id="no kind"),
        pytest.param(lambda: type("Mine", (Cron,), {}), "must have a kind of its own", id="the kind of its base"),
        pytest.param(lambda: type("Mine", (Schedule,), {"kind": "test-x"}), "must have a method", id="no next_after"),
    ],
)
def test_a_class_that_cannot_be_registered_is_refused(make: Callable[[], type], words: str) -> None:
    with pytest.raises(InvalidScheduleError, match=words):
        make()


def test_a_module_may_be_loaded_again(caplog: pytest.LogCaptureFixture) -> None:
    """As in a notebook: a schedule that was read before is one of the new class now."""
    text = define("Again", "test-again")().json_text()
    before = base.stored_schedule(text)
    second = define("Again", "test-again")

    assert type(base.stored_schedule(text)) is second is not type(before)
    assert caplog.records == []


def test_of_two_classes_of_one_kind_the_later_one_counts_until_the_other_is_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As in two test modules that both define a sunrise: each stores and reads its own."""
    first = define("First", "test-twice")()
    second = define("Second", "test-twice")()
    (told,) = caplog.records

    assert Schedule.from_json('{"version":1,"kind":"test-twice"}') == second
    for schedule in (first, second, first):
        assert JobSpec(schedule, handler="x").schedule is schedule
        assert Schedule.from_json(schedule.to_json()) == schedule
        assert base.stored_schedule(schedule.json_text()) == schedule
    assert (told.levelname, caplog.records) == ("WARNING", [told])
    assert (
        'Second replaces tests.schedules.test_own_schedules.First as the class of the schedule kind "test-twice"'
        in (told.getMessage())
    )


@dataclass
class Thawed(Schedule):
    kind = "test-thawed"

    def next_after(self, now: datetime) -> datetime | None:
        return None


class Bare(Schedule):
    kind = "test-bare"

    def next_after(self, now: datetime) -> datetime | None:
        return None


@dataclass(frozen=True)
class Unannotated(Schedule):
    kind = "test-unannotated"
    when: object

    def next_after(self, now: datetime) -> datetime | None:
        return None


@dataclass(frozen=True)
class Taken(Schedule):
    kind = "test-taken"
    version: int = 1

    def next_after(self, now: datetime) -> datetime | None:
        return None


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(Thawed, "must be frozen", id="not frozen"),
        pytest.param(Bare, "must be a dataclass", id="not a dataclass"),
        pytest.param(lambda: Unannotated(NOON), "reading its JSON form makes another value", id="no type to read by"),
        pytest.param(lambda: Unannotated(object()), "cannot be stored as JSON", id="not JSON"),
        pytest.param(lambda: Unannotated(NOON).on(Weekdays("MON"), "after"), "makes another value", id="on a calendar"),
        pytest.param(lambda: AnyOf(Every("1h"), Unannotated(NOON)), "makes another value", id="one of several"),
        pytest.param(Taken, 'must not have a field "version"', id="a name of the JSON form"),
    ],
)
def test_a_schedule_that_cannot_be_stored_is_refused_when_it_is_given(make: Callable[[], Schedule], words: str) -> None:
    with pytest.raises(InvalidScheduleError, match=words):
        JobSpec(make(), handler="x")


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(UNKNOWN, id="alone"),
        pytest.param({**TIDE.to_json(), "fallback": UNKNOWN}, id="in a field"),
        pytest.param({**TIDE.to_json(), "places": {"Visby": UNKNOWN}}, id="among others"),
    ],
)
def test_an_unknown_kind_has_an_error_of_its_own(form: dict[str, Any]) -> None:
    with pytest.raises(UnknownScheduleError) as caught:
        Schedule.from_json(form)

    assert caught.value.kind == "sunrise"
