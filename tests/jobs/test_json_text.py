"""JSON text of payloads and metadata: what it keeps, and what it refuses."""

from __future__ import annotations

import json
import math
from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler_async import InvalidJobError
from scheduler_async.jobs.job import JobState
from scheduler_async.jobs.json_text import from_json_text, to_json_text
from scheduler_async.jobs.unreadable import Unreadable
from scheduler_async.stores.codec import read_state, state_values
from scheduler_async.stores.columns import DESCRIPTION, PLACE

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
)


class Colour(Enum):
    RED = "red"


class Word(StrEnum):
    YES = "yes"


class Level(IntEnum):
    LOW = 1


class Shouting(str):
    __slots__ = ()

    def __str__(self) -> str:
        return self.upper()

    __repr__ = __str__


class Count(int):
    def __repr__(self) -> str:
        return "many"


class Ratio(float):
    def __repr__(self) -> str:
        return "some"


Point = namedtuple("Point", "x y")


@dataclass
class Anything:
    content: Any = None


class Model(pydantic.BaseModel):
    number: int


class Record(msgspec.Struct):
    number: int


def written(value: Any) -> Any:
    return json.loads(to_json_text(value, "payload"))


@given(JSON)
@example([-0.0, 1e300, 5e-324, 2**64, -(10**40), "\x00\x7f\u2028</\U0001f600", {"": {}}, []])
def test_json_comes_back_as_it_was(value: Any) -> None:
    """The order of keys, the sign of zero, and that 1.0 is not 1 are part of it."""
    assert repr(written(value)) == repr(value)


def test_the_text_is_short_and_readable() -> None:
    assert to_json_text({"b": [1, 1.0, True, None], "a": "ä"}, "payload") == '{"b":[1,1.0,true,null],"a":"ä"}'


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param((1, (2,)), [1, [2]], id="tuples"),
        pytest.param(Point(1, 2), [1, 2], id="a named tuple"),
        pytest.param(OrderedDict(b=1, a=2), {"b": 1, "a": 2}, id="a subclass of dict"),
        pytest.param(Word.YES, "yes", id="an enum of strings"),
        pytest.param({Word.YES: 1}, {"yes": 1}, id="an enum of strings as a key"),
        pytest.param(Level.LOW, 1, id="an enum of numbers"),
        pytest.param(Shouting("quiet"), "quiet", id="a subclass of str"),
        pytest.param({Shouting("quiet"): 1}, {"quiet": 1}, id="a subclass of str as a key"),
        pytest.param(Count(3), 3, id="a subclass of int"),
        pytest.param(Ratio(0.5), 0.5, id="a subclass of float"),
        pytest.param([{"a": Anything(1)}], [{"a": {"content": 1}}], id="a dataclass inside"),
        pytest.param([{"a": Model(number=1)}], [{"a": {"number": 1}}], id="a model inside"),
        pytest.param(Anything([Model(number=1)]), {"content": [{"number": 1}]}, id="a model in a dataclass"),
        pytest.param(Anything({2: {Level.LOW: "a"}}), {"content": {"2": {"1": "a"}}}, id="numbers as keys of a field"),
        pytest.param(Anything(MappingProxyType({"a": 1})), {"content": {"a": 1}}, id="a mapping in a field"),
        pytest.param(Anything({Colour.RED, "a"}), {"content": ["a", "red"]}, id="a set in a field"),
    ],
)
def test_what_json_has_another_form_for_is_written_in_it(value: Any, expected: Any) -> None:
    assert repr(written(value)) == repr(expected)


REFUSED = [
    pytest.param(math.nan, "nan is not a finite number", id="not a number"),
    pytest.param(-math.inf, "-inf is not a finite number", id="infinity"),
    pytest.param(Ratio("inf"), "inf is not a finite number", id="infinity in disguise"),
    pytest.param({1: "a"}, "a key of type int is not a string", id="a number as a key"),
    pytest.param({1.5: "a"}, "a key of type float is not a string", id="a fraction as a key"),
    pytest.param({True: "a"}, "a key of type bool is not a string", id="true as a key"),
    pytest.param({None: "a"}, "a key of type NoneType is not a string", id="nothing as a key"),
    pytest.param({(1, 2): "a"}, "a key of type tuple is not a string", id="a tuple as a key"),
    pytest.param({Level.LOW: "a"}, "a key of type Level is not a string", id="an enum of numbers as a key"),
    pytest.param({Colour.RED: "a"}, "a key of type Colour is not a string", id="an enum as a key"),
    pytest.param({1, 2}, "Object of type set is not JSON", id="a set"),
    pytest.param(frozenset("a"), "Object of type frozenset is not JSON", id="a frozen set"),
    pytest.param(b"a", "Object of type bytes is not JSON", id="bytes"),
    pytest.param(Colour.RED, "Object of type Colour is not JSON", id="an enum"),
    pytest.param(datetime(2026, 1, 5, tzinfo=UTC), "Object of type datetime is not JSON", id="a datetime"),
    pytest.param(date(2026, 1, 5), "Object of type date is not JSON", id="a date"),
    pytest.param(time(9), "Object of type time is not JSON", id="a time"),
    pytest.param(timedelta(1), "Object of type timedelta is not JSON", id="a duration"),
    pytest.param(Decimal("1.5"), "Object of type Decimal is not JSON", id="a decimal"),
    pytest.param(UUID(int=1), "Object of type UUID is not JSON", id="a UUID"),
    pytest.param(UserDict(a=1), "Object of type UserDict is not JSON", id="a mapping"),
    pytest.param(Record(1), "Object of type Record is not JSON", id="a struct"),
    pytest.param(Anything, "Object of type type is not JSON", id="a dataclass itself"),
    pytest.param(Model, "Object of type ModelMetaclass is not JSON", id="a model itself"),
    pytest.param("\ud800", "surrogates not allowed", id="half a character"),
    pytest.param({"\ud800": 1}, "surrogates not allowed", id="half a character as a key"),
    pytest.param(10**5000, "4300 digits", id="a number of 5,000 digits"),
]


@pytest.mark.parametrize(("value", "problem"), REFUSED)
@pytest.mark.parametrize("holder", [lambda value: value, lambda value: {"a": [1, value]}], ids=["alone", "inside"])
def test_what_json_cannot_hold_is_refused(holder: Any, value: Any, problem: str) -> None:
    """msgspec would write most of these, as null or as a string that comes back as such."""
    with pytest.raises(InvalidJobError, match="payload must contain only JSON values") as caught:
        to_json_text(holder(value), "payload")

    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [b"a", math.nan, {1.5: "a"}, {True: "a"}, {(1,): "a"}, {Count(1): "a"}, Record(1), object(), "\ud800"],
)
def test_a_dataclass_cannot_hold_everything_either(value: Any) -> None:
    with pytest.raises(InvalidJobError, match="must contain only JSON values"):
        to_json_text(Anything(value), "payload")


def nested(levels: int, make: Any) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = make(value)
    return value


def circle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def circle_of_dataclasses() -> Any:
    value = Anything()
    value.content = value
    return value


@pytest.mark.parametrize(
    "make", [lambda value: [value], lambda value: (value,), Anything], ids=["lists", "tuples", "dataclasses"]
)
def test_only_a_hundred_levels_are_written(make: Any) -> None:
    to_json_text(nested(100, make), "payload")

    with pytest.raises(InvalidJobError, match="must be JSON nested at most 100 levels deep"):
        to_json_text(nested(101, make), "payload")


@pytest.mark.parametrize("make", [circle, circle_of_dataclasses])
def test_a_circle_is_too_deep(make: Any) -> None:
    with pytest.raises(InvalidJobError, match="must be JSON nested at most 100 levels deep"):
        to_json_text(make(), "payload")


def test_fields_that_no_one_can_give_are_not_written() -> None:
    @dataclass
    class Counter:
        start: int
        now: int = field(init=False, default=0)

    assert written(Counter(3)) == {"start": 3}


def test_an_enum_is_written_as_json_can_hold_its_value() -> None:
    class Moments(Enum):
        FIRST = datetime(2026, 1, 5, tzinfo=UTC)

    assert written(Anything([Colour.RED, Path("a/b")])) == {"content": ["red", "a/b"]}
    with pytest.raises(InvalidJobError, match="Object of type datetime is not JSON"):
        to_json_text(Anything(Moments.FIRST), "payload")


@pytest.mark.parametrize("text", ["1E310", "[-1e999]", "NaN", "Infinity", '"\\ud800"', "1" * 5000, "{", ""])
def test_no_reader_takes_what_another_refuses(text: str) -> None:
    """A cursor is checked when its row is read, and read again by the handler. To `json.loads`, 1E310 is infinite."""
    with pytest.raises(ValueError, match=r"\w"):
        from_json_text(text)
    for read in (DESCRIPTION[PLACE["payload"]].kind.read, read_object_of_metadata):
        with pytest.raises(ValueError, match=r"\w"):
            read(text)
    with pytest.raises(Unreadable):
        read_state(tuple(state_values(JobState(cursor=text))))


def read_object_of_metadata(text: str) -> object:
    return DESCRIPTION[PLACE["metadata"]].kind.read(text)


@given(JSON)
def test_what_is_written_is_read_by_all(value: object) -> None:
    text = to_json_text(value, "payload")

    assert from_json_text(text) == json.loads(text)
    assert read_state(tuple(state_values(JobState(cursor=text)))).cursor == text
