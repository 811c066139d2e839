"""Cron expressions: which are read, and as what; which are refused, and how. In UTC: zones have their own tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise, product

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from scheduler_async import Cron, CronParseError, SchedulerError, parse_schedule
from tests.daylight_oracle import Line, read_line

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)  # a Monday
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)

# Enough for any line a person writes; what takes longer could be used to keep a scheduler busy.
LONGEST_TO_READ = 0.05  # seconds of CPU


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // MICROSECOND


# --- What is accepted -----------------------------------------------------------------------------------------------


def line(says: str, expression: str, *runs: str) -> object:
    return pytest.param(expression, runs, id=says)


NUMBERS_AND_STEPS = [
    line("every minute", "* * * * *", "2026-01-05T12:01", "2026-01-05T12:02", "2026-01-05T12:03"),
    line("a time of day", "30 9 * * *", "2026-01-06T09:30", "2026-01-07T09:30"),
    line("strictly after, so not now", "0 12 * * *", "2026-01-06T12:00", "2026-01-07T12:00"),
    line("a list", "5,50,20 13 * * *", "2026-01-05T13:05", "2026-01-05T13:20", "2026-01-05T13:50", "2026-01-06T13:05"),
    line("a list that repeats itself", "5,5,5-6 13 * * *", "2026-01-05T13:05", "2026-01-05T13:06", "2026-01-06T13:05"),
    line("a range", "58-59 12-13 * * *", "2026-01-05T12:58", "2026-01-05T12:59", "2026-01-05T13:58"),
    line("a range of one value is that value", "5-5 * * * *", "2026-01-05T12:05", "2026-01-05T13:05"),
    line("a step", "*/25 * * * *", "2026-01-05T12:25", "2026-01-05T12:50", "2026-01-05T13:00"),
    line("a step over a range", "10-40/15 * * * *", "2026-01-05T12:10", "2026-01-05T12:25", "2026-01-05T12:40"),
    line("a step from a value to the end", "40/15 * * * *", "2026-01-05T12:40", "2026-01-05T12:55", "2026-01-05T13:40"),
    line("a step from the last value", "59/15 * * * *", "2026-01-05T12:59", "2026-01-05T13:59"),
    line("a step of one", "*/1 * * * *", "2026-01-05T12:01", "2026-01-05T12:02"),
    line("the largest step of minutes", "*/59 * * * *", "2026-01-05T12:59", "2026-01-05T13:00"),
    line("the largest step of hours", "0 */23 * * *", "2026-01-05T23:00", "2026-01-06T00:00", "2026-01-06T23:00"),
    line(
        "everything in one list", "3,10-12,40/10 13 * * *", *(f"2026-01-05T13:{m:02}" for m in (3, 10, 11, 12, 40, 50))
    ),
    line("a step beside a number", "*/30,7 13 * * *", "2026-01-05T13:00", "2026-01-05T13:07", "2026-01-05T13:30"),
    line("leading zeros", "05 09 01 02 *", "2026-02-01T09:05", "2027-02-01T09:05"),
    line("the first and last of each field", "0,59 0,23 1,31 1,12 *", "2026-01-31T00:00", "2026-01-31T00:59"),
]

SIX_FIELDS = [
    line("seconds come first", "30 15 14 * * *", "2026-01-05T14:15:30", "2026-01-06T14:15:30"),
    line("every second", "* * * * * *", "2026-01-05T12:00:01", "2026-01-05T12:00:02"),
    line("a step of seconds", "*/20 * * * * *", "2026-01-05T12:00:20", "2026-01-05T12:00:40", "2026-01-05T12:01:00"),
    line(
        "a step from a second", "45/10 0 13 * * *", "2026-01-05T13:00:45", "2026-01-05T13:00:55", "2026-01-06T13:00:45"
    ),
    line("Sunday is 7 here as well", "0 0 9 * * 7", "2026-01-11T09:00", "2026-01-18T09:00"),
    line("names in six fields", "0 0 9 1 FEB *", "2026-02-01T09:00", "2027-02-01T09:00"),
]

MONTHS_AND_NAMES = [
    line("a month", "0 0 1 3 *", "2026-03-01T00:00", "2027-03-01T00:00"),
    line("a month by name", "0 0 1 MAR *", "2026-03-01T00:00", "2027-03-01T00:00"),
    line("a name in any case", "0 0 1 mAr *", "2026-03-01T00:00", "2027-03-01T00:00"),
    line("a range of names", "0 0 1 NOV-DEC *", "2026-11-01T00:00", "2026-12-01T00:00", "2027-11-01T00:00"),
    line(
        "a range from a name to a number", "0 0 1 NOV-12 *", "2026-11-01T00:00", "2026-12-01T00:00", "2027-11-01T00:00"
    ),
    line("a step over names", "0 0 1 FEB-JUN/2 *", "2026-02-01T00:00", "2026-04-01T00:00", "2026-06-01T00:00"),
    line("a step from a name", "0 0 1 AUG/3 *", "2026-08-01T00:00", "2026-11-01T00:00", "2027-08-01T00:00"),
    line("a list of names", "0 0 1 JAN,JUL *", "2026-07-01T00:00", "2027-01-01T00:00"),
    line("only leap years", "0 0 29 2 *", "2028-02-29T00:00", "2032-02-29T00:00"),
    line("only months with 31 days", "0 0 31 * *", "2026-01-31T00:00", "2026-03-31T00:00", "2026-05-31T00:00"),
    line("a day that one of its months has", "0 0 30 2,4 *", "2026-04-30T00:00", "2027-04-30T00:00"),
    line(
        "the 31st, in the one month of the list that has it", "0 0 31 FEB-APR *", "2026-03-31T00:00", "2027-03-31T00:00"
    ),
]

WEEKDAYS = [
    line("a weekday", "0 9 * * 3", "2026-01-07T09:00", "2026-01-14T09:00"),
    line("a weekday by name", "0 9 * * wed", "2026-01-07T09:00", "2026-01-14T09:00"),
    line("Sunday is 0", "0 9 * * 0", "2026-01-11T09:00", "2026-01-18T09:00"),
    line("Sunday is 7", "0 9 * * 7", "2026-01-11T09:00", "2026-01-18T09:00"),
    line("Sunday is SUN", "0 9 * * SUN", "2026-01-11T09:00", "2026-01-18T09:00"),
    line(
        "working days",
        "0 9 * * 1-5",
        "2026-01-06T09:00",
        "2026-01-07T09:00",
        "2026-01-08T09:00",
        "2026-01-09T09:00",
        "2026-01-12T09:00",
    ),
    line(
        "working days by name",
        "0 9 * * MON-FRI",
        "2026-01-06T09:00",
        "2026-01-07T09:00",
        "2026-01-08T09:00",
        "2026-01-09T09:00",
        "2026-01-12T09:00",
    ),
    line("a weekend up to 7", "0 9 * * 6-7", "2026-01-10T09:00", "2026-01-11T09:00", "2026-01-17T09:00"),
    line("a weekend up to SUN", "0 9 * * SAT-SUN", "2026-01-10T09:00", "2026-01-11T09:00", "2026-01-17T09:00"),
    line(
        "a range that begins on Sunday", "0 9 * * SUN-MON", "2026-01-11T09:00", "2026-01-12T09:00", "2026-01-18T09:00"
    ),
    line("all week, from 0 to 7", "0 9 * * 0-7", "2026-01-06T09:00", "2026-01-07T09:00"),
    line(
        "every other weekday",
        "0 9 * * */2",
        "2026-01-06T09:00",
        "2026-01-08T09:00",
        "2026-01-10T09:00",
        "2026-01-11T09:00",
    ),
    line(
        "every other weekday of a range up to 7",
        "0 9 * * 1-7/2",
        "2026-01-07T09:00",
        "2026-01-09T09:00",
        "2026-01-11T09:00",
        "2026-01-12T09:00",
    ),
    line(
        "a step from a weekday",
        "0 9 * * TUE/2",
        "2026-01-06T09:00",
        "2026-01-08T09:00",
        "2026-01-10T09:00",
        "2026-01-13T09:00",
    ),
    line("the largest step of weekdays", "0 9 * * */7", "2026-01-11T09:00", "2026-01-18T09:00"),
]

LAST_AND_NTH = [
    line("the last day of the month", "0 0 L * *", "2026-01-31T00:00", "2026-02-28T00:00", "2026-03-31T00:00"),
    line("the last day of a leap February", "0 0 L 2 *", "2026-02-28T00:00", "2027-02-28T00:00", "2028-02-29T00:00"),
    line("the last day, in lower case", "0 0 l * *", "2026-01-31T00:00", "2026-02-28T00:00"),
    line("the last day beside others", "0 0 15,L * *", "2026-01-15T00:00", "2026-01-31T00:00", "2026-02-15T00:00"),
    line(
        "the last day beside the same day", "0 0 31,L 1,2 *", "2026-01-31T00:00", "2026-02-28T00:00", "2027-01-31T00:00"
    ),
    line("the last day beside all days but one", "0 0 2-31,L 2 *", "2026-02-02T00:00", "2026-02-03T00:00"),
    line("the last day where the others never are", "0 0 30,L 2 *", "2026-02-28T00:00", "2027-02-28T00:00"),
    line("the last Friday", "0 0 * * 5L", "2026-01-30T00:00", "2026-02-27T00:00", "2026-03-27T00:00"),
    line("the last Friday by name", "0 0 * * FRIL", "2026-01-30T00:00", "2026-02-27T00:00"),
    line("the last Friday with a number sign", "0 0 * * 5#L", "2026-01-30T00:00", "2026-02-27T00:00"),
    line("the last Friday by name with a number sign", "0 0 * * fri#l", "2026-01-30T00:00", "2026-02-27T00:00"),
    line("the last Sunday is 7L", "0 0 * * 7L", "2026-01-25T00:00", "2026-02-22T00:00"),
    line("the last Sunday is 0L", "0 0 * * 0L", "2026-01-25T00:00", "2026-02-22T00:00"),
    line("the second Friday", "0 0 * * 5#2", "2026-01-09T00:00", "2026-02-13T00:00"),
    line("the second Friday by name", "0 0 * * FRI#2", "2026-01-09T00:00", "2026-02-13T00:00"),
    line("the first Sunday is 7#1", "0 0 * * 7#1", "2026-02-01T00:00", "2026-03-01T00:00", "2026-04-05T00:00"),
    line(
        "the fifth Monday, in the months that have one",
        "0 0 * * MON#5",
        "2026-03-30T00:00",
        "2026-06-29T00:00",
        "2026-08-31T00:00",
    ),
    line(
        "two kinds of weekdays in a list",
        "0 0 * * MON#2,FRIL",
        "2026-01-12T00:00",
        "2026-01-30T00:00",
        "2026-02-09T00:00",
    ),
    line(
        "a plain weekday beside an nth of the same",
        "0 0 * * MON,1#2",
        "2026-01-12T00:00",
        "2026-01-19T00:00",
        "2026-01-26T00:00",
    ),
    line("a range beside an nth", "0 0 * * SAT-SUN,3#1", "2026-01-07T00:00", "2026-01-10T00:00", "2026-01-11T00:00"),
    line(
        "a fifth Monday in February, once in a generation",
        "0 0 * 2 MON#5",
        "2044-02-29T00:00",
        "2072-02-29T00:00",
        "2112-02-29T00:00",
    ),
]

EITHER_DAY_FIELD = [
    line("a question mark is a star", "0 0 ? * ?", "2026-01-06T00:00", "2026-01-07T00:00"),
    line("a question mark leaves the other field alone", "0 0 13 * ?", "2026-01-13T00:00", "2026-02-13T00:00"),
    line("a question mark in the other field", "0 0 ? * FRI", "2026-01-09T00:00", "2026-01-16T00:00"),
    line("the 13th or a Friday", "0 0 13 * FRI", "2026-01-09T00:00", "2026-01-13T00:00", "2026-01-16T00:00"),
    line(
        "a stepped star is a restriction",
        "0 0 */10 * FRI",
        "2026-01-09T00:00",
        "2026-01-11T00:00",
        "2026-01-16T00:00",
        "2026-01-21T00:00",
    ),
    line(
        "a stepped star in the other field",
        "0 0 20 * */6",
        "2026-01-10T00:00",
        "2026-01-11T00:00",
        "2026-01-17T00:00",
        "2026-01-18T00:00",
        "2026-01-20T00:00",
    ),
    line(
        "the last day or a Friday",
        "0 0 L * FRI",
        "2026-01-09T00:00",
        "2026-01-16T00:00",
        "2026-01-23T00:00",
        "2026-01-30T00:00",
        "2026-01-31T00:00",
    ),
    line("the first or the first Monday", "0 0 1 * 1#1", "2026-02-01T00:00", "2026-02-02T00:00", "2026-03-01T00:00"),
    line(
        "a month still restricts both",
        "0 0 13 3 FRI",
        "2026-03-06T00:00",
        "2026-03-13T00:00",
        "2026-03-20T00:00",
        "2026-03-27T00:00",
        "2027-03-05T00:00",
    ),
    line("30 February or a Monday in February", "0 0 30 2 MON", "2026-02-02T00:00", "2026-02-09T00:00"),
    line("a whole week written out is a restriction", "0 0 13 * 0-6", "2026-01-06T00:00", "2026-01-07T00:00"),
]

WORDS = [
    line("hourly", "@hourly", "2026-01-05T13:00", "2026-01-05T14:00"),
    line("daily", "@daily", "2026-01-06T00:00", "2026-01-07T00:00"),
    line("midnight", "@midnight", "2026-01-06T00:00", "2026-01-07T00:00"),
    line("weekly is on Sunday", "@weekly", "2026-01-11T00:00", "2026-01-18T00:00"),
    line("monthly", "@monthly", "2026-02-01T00:00", "2026-03-01T00:00"),
    line("yearly", "@yearly", "2027-01-01T00:00", "2028-01-01T00:00"),
    line("annually", "@annually", "2027-01-01T00:00", "2028-01-01T00:00"),
    line("a word in any case, with blanks around", " \t@DaiLY ", "2026-01-06T00:00", "2026-01-07T00:00"),
]

BLANKS = [
    line("blanks around and between", "  30   9 * *  * ", "2026-01-06T09:30", "2026-01-07T09:30"),
    line("tabs", "\t30\t9\t*\t*\t*\t", "2026-01-06T09:30", "2026-01-07T09:30"),
    line("256 characters", "30 9 * * *" + " " * 246, "2026-01-06T09:30", "2026-01-07T09:30"),
]

ACCEPTED = [
    *NUMBERS_AND_STEPS,
    *SIX_FIELDS,
    *MONTHS_AND_NAMES,
    *WEEKDAYS,
    *LAST_AND_NTH,
    *EITHER_DAY_FIELD,
    *WORDS,
    *BLANKS,
]


@pytest.mark.parametrize(("expression", "runs"), ACCEPTED)
def test_an_expression_means_these_instants(expression: str, runs: tuple[str, ...]) -> None:
    """The grammar as examples: what a person may write, and what it comes to after noon on Monday 5 January 2026."""
    cron = Cron(expression, tz="UTC")

    found = chain(cron, NOON, len(runs))

    assert found == [datetime.fromisoformat(run).replace(tzinfo=UTC) for run in runs]


@pytest.mark.parametrize(("expression", "runs"), ACCEPTED)
def test_what_a_person_types_is_the_same_schedule(expression: str, runs: tuple[str, ...]) -> None:
    """`parse_schedule` reads command lines and settings; there, an expression means what it means in code."""
    assert parse_schedule(expression) == Cron(expression)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("0  9 * * mon ", "0 9 * * MON", id="blanks and case"),
        pytest.param("\t0 9 l * *", "0 9 L * *", id="a tab and a small letter"),
        pytest.param("@Daily", "  @DAILY", id="a word"),
    ],
)
def test_blanks_and_case_do_not_make_another_schedule(one: str, other: str) -> None:
    """An upsert that only tidies the text must keep the job's cadence, so equal meanings written alike are equal."""
    assert Cron(one, tz="UTC") == Cron(other, tz="UTC")
    assert hash(Cron(one, tz="UTC")) == hash(Cron(other, tz="UTC"))
    assert Cron(one, tz="UTC").expression == Cron(other, tz="UTC").expression


# --- What is refused ------------------------------------------------------------------------------------------------

# Each refusal of a field tells what it takes.
RANGES = {
    "second": "0-59",
    "minute": "0-59",
    "hour": "0-23",
    "day-of-month": "1-31",
    "month": "1-12 or JAN-DEC",
    "day-of-week": "0-7 or SUN-SAT",
}


def refused(says: str, expression: str, field: str, *fragments: str) -> object:
    return pytest.param(expression, field, fragments, id=says)


OUT_OF_RANGE = [
    refused("second 60", "60 * * * * *", "second", "60 is out of range"),
    refused("minute 60", "60 * * * *", "minute", "60 is out of range"),
    refused("minute 60 in six fields", "0 60 * * * *", "minute", "60 is out of range"),
    refused("hour 24", "0 24 * * *", "hour", "24 is out of range"),
    refused("day 0", "0 0 0 * *", "day-of-month", "0 is out of range"),
    refused("day 32", "0 0 32 * *", "day-of-month", "32 is out of range"),
    refused("month 0", "0 0 1 0 *", "month", "0 is out of range"),
    refused("month 13", "0 0 1 13 *", "month", "13 is out of range"),
    refused("weekday 8", "0 0 * * 8", "day-of-week", "8 is out of range"),
    refused("weekday 8 in six fields", "0 0 0 * * 8", "day-of-week", "8 is out of range"),
    refused("a range that begins outside", "0 0 0-5 * *", "day-of-month", "0 is out of range"),
    refused("a range that ends outside", "0 20-24 * * *", "hour", "24 is out of range"),
    refused("an enormous number in a range", "1-99999999999 * * * *", "minute", "out of range"),
    refused("an enormous number", "9" * 200 + " * * * *", "minute", "out of range"),
    refused("a value in a list", "0,15,75 * * * *", "minute", "75 is out of range"),
    refused("the start of a step", "60/5 * * * *", "minute", "60 is out of range"),
    refused("a minus sign", "-1 * * * *", "minute", '"-1"'),
    refused("a decimal", "1.5 * * * *", "minute", '"1.5"'),
]

STEPS = [
    refused("step 0", "*/0 * * * *", "minute", "a step must be at least 1"),
    refused("step 0 over a range", "0 9-17/0 * * *", "hour", "a step must be at least 1"),
    refused("step 0 from a value", "0 9/0 * * *", "hour", "a step must be at least 1"),
    refused("a step of 60 minutes", "*/60 * * * *", "minute", "step of 60", "larger"),
    refused("a step of 100 minutes", "*/100 * * * *", "minute", "step of 100"),
    refused("a step of 24 hours", "0 */24 * * *", "hour", "step of 24"),
    refused("a step of 32 days", "0 0 */32 * *", "day-of-month", "step of 32"),
    refused("a step of 13 months", "0 0 1 */13 *", "month", "step of 13"),
    refused("a step of 8 weekdays", "0 0 * * */8", "day-of-week", "step of 8"),
    refused("a step of 60 seconds", "*/60 * * * * *", "second", "step of 60"),
    refused("an enormous step", "*/99999999999 * * * *", "minute", "larger"),
    refused("a step too large for its field, over a range", "1-5/60 * * * *", "minute", "step of 60"),
    refused("a step without a number", "*/ * * * *", "minute", '"*/"'),
    refused("a step of a name", "*/MON * * * *", "minute", '"*/MON"'),
    refused("a negative step", "*/-5 * * * *", "minute", '"*/-5"'),
    refused("two steps", "*/5/5 * * * *", "minute", '"*/5/5"'),
    refused("a step of nothing", "/5 * * * *", "minute", '"/5"'),
]

RANGES_AND_LISTS = [
    refused("a reversed range", "30-10 * * * *", "minute", '"30-10"', "wrong way round"),
    refused("reversed hours", "0 22-2 * * *", "hour", '"22-2"', "wrong way round"),
    refused("reversed months", "0 0 1 NOV-FEB *", "month", '"NOV-FEB"', "wrong way round"),
    refused("reversed weekdays", "0 0 * * FRI-MON", "day-of-week", '"FRI-MON"', "wrong way round"),
    refused("a range from 7", "0 0 * * 7-2", "day-of-week", '"7-2"', "wrong way round"),
    refused("a range without an end", "5- * * * *", "minute", '"5-"'),
    refused("three ends", "1-2-3 * * * *", "minute", '"1-2-3"'),
    refused("a range of a star", "*-5 * * * *", "minute", '"*-5"'),
    refused("a range to a star", "5-* * * * *", "minute", '"5-*"'),
    refused("a star beside a number", "*,5 * * * *", "minute", '"*"', "list"),
    refused("a number beside a star", "0 5,* * * *", "hour", '"*"', "list"),
    refused("a star beside a day", "0 0 1,* * *", "day-of-month", '"*"', "list"),
    refused("two stars", "*,* * * * *", "minute", '"*"', "list"),
    refused("two stars without a comma", "** * * * *", "minute", '"**"'),
    refused("an empty item in the middle", "1,,2 * * * *", "minute", "empty"),
    refused("an empty item at the start", ",5 * * * *", "minute", "empty"),
    refused("an empty item at the end", "5, * * * *", "minute", "empty"),
    refused("only a comma", "0 0 , * *", "day-of-month", "empty"),
]

NAMES = [
    refused("a weekday among the months", "0 0 1 MON *", "month", '"MON"'),
    refused("a month among the weekdays", "0 0 * * JAN", "day-of-week", '"JAN"'),
    refused("a name among the minutes", "MON * * * *", "minute", '"MON"'),
    refused("a name among the days", "0 0 MON * *", "day-of-month", '"MON"'),
    refused("a whole name", "0 0 * * MONDAY", "day-of-week", '"MONDAY"'),
    refused("two letters", "0 0 * * MO", "day-of-week", '"MO"'),
    refused("a name nobody has", "0 0 * * XYZ", "day-of-week", '"XYZ"'),
    refused("an nth of a name nobody has", "0 0 * * XYZ#2", "day-of-week", '"XYZ'),
]

OF_OTHER_CRONS = [
    refused("W after a range", "0 0 1-5W * *", "day-of-month", '"W"', "a single day"),
    refused("W alone", "0 0 W * *", "day-of-month", '"W"', "must follow a day"),
    refused("W after a weekday", "0 0 * * 5W", "day-of-week", '"W"', "must follow a day"),
    refused("W in another field", "0 15W * * *", "hour", '"W"', "must follow a day"),
    refused("a weekday before the last day", "0 0 L-3W * *", "day-of-month", '"L-nW"', "not supported"),
    refused("L-0", "0 0 L-0 * *", "day-of-month", "L-1 to L-30"),
    refused("L-31", "0 0 L-31 * *", "day-of-month", "L-1 to L-30"),
    refused("L-3 as a weekday", "0 0 * * L-3", "day-of-week", "day-of-month field"),
    refused("nearest to a day that never comes", "0 0 31W 2 *", "day-of-month", "never matches"),
    refused("further back than the month is long", "0 0 L-29 2 *", "day-of-month", "never matches"),
    refused("L5", "0 0 * * L5", "day-of-week", '"5L"'),
    refused("L alone among the weekdays", "0 0 * * L", "day-of-week", '"L"'),
    refused("L among the hours", "0 L * * *", "hour", '"L"'),
    refused("L after a day of the month", "0 0 5L * *", "day-of-month", '"5L"'),
    refused("L among the months", "0 0 1 L *", "month", '"L"'),
    refused("a plus sign", "0 0 * * 5+1", "day-of-week", '"5+1"'),
    refused("a plus sign before a number", "+5 * * * *", "minute", '"+5"'),
    refused("H", "H * * * *", "minute", '"H"', "not supported"),
    refused("H with a step", "H/15 * * * *", "minute", '"H"', "not supported"),
    refused("H with bounds", "H(0-29) * * * *", "minute", '"H"', "not supported"),
    refused("R", "0 R * * *", "hour", '"R"', "not supported"),
    refused("a tilde", "0~30 * * * *", "minute", '"~"', "not supported"),
    refused("a tilde alone", "~ * * * *", "minute", '"~"', "not supported"),
    refused("#0", "0 0 * * 5#0", "day-of-week", '"#0"', "#1 to #5"),
    refused("#6", "0 0 * * FRI#6", "day-of-week", '"#6"', "#1 to #5"),
    refused("an enormous nth", "0 0 * * 5#" + "9" * 99, "day-of-week", "#1 to #5"),
    refused("# without a number", "0 0 * * 5#", "day-of-week", '"5#"'),
    refused("# without a weekday", "0 0 * * #2", "day-of-week", '"#2"'),
    refused("an nth of a weekday there is not", "0 0 * * 8#2", "day-of-week", '"8#2"'),
    refused("the last of a weekday there is not", "0 0 * * 8L", "day-of-week", '"8L"'),
    refused("an nth among the days", "0 0 5#2 * *", "day-of-month", '"5#2"'),
    refused("an nth of a range", "0 0 * * 1-5#2", "day-of-week", '"1-5#2"'),
    refused("a question mark among the minutes", "? * * * *", "minute", '"?"'),
    refused("a question mark among the months", "0 0 1 ? *", "month", '"?"'),
    refused("a question mark in a list", "0 0 ?,5 * *", "day-of-month", '"?"'),
    refused("a question mark with a step", "0 0 ?/2 * *", "day-of-month", '"?"'),
]

NEVER = [
    refused("30 February", "0 0 30 2 *", "day-of-month", "never", "30", "FEB"),
    refused("31 February", "0 0 31 FEB *", "day-of-month", "never", "31", "FEB"),
    refused("31 April", "0 0 31 4 *", "day-of-month", "never", "31", "APR"),
    refused("the 31st of all short months", "0 0 31 2,4,6,9,11 *", "day-of-month", "never", "FEB", "NOV"),
    refused("two days that February has not", "0 0 30,31 2 *", "day-of-month", "never"),
    refused("30 February with a question mark", "0 0 30 2 ?", "day-of-month", "never"),
    refused("30 February in six fields", "0 0 0 30 2 *", "day-of-month", "never"),
    refused("30 February every second", "* * * 30 2 *", "day-of-month", "never"),
]

REFUSED = [*OUT_OF_RANGE, *STEPS, *RANGES_AND_LISTS, *NAMES, *OF_OTHER_CRONS, *NEVER]


@pytest.mark.parametrize(("expression", "field", "fragments"), REFUSED)
def test_a_bad_field_is_refused_by_name(expression: str, field: str, fragments: tuple[str, ...]) -> None:
    """Whoever typed it should see which field is wrong, why, what it takes, and something that works."""
    with pytest.raises(CronParseError) as refusal:
        Cron(expression, tz="UTC")

    message = str(refusal.value)
    assert refusal.value.field == field
    assert refusal.value.expression == expression
    for fragment in (*fragments, f"The {field} field takes {RANGES[field]}", "for example"):
        assert fragment in message


@pytest.mark.parametrize("expression", [" 61  * * * mon ", "0 9 * *\t", "@Often ", "0 0 30 feb *"])
def test_a_refusal_quotes_what_was_given_and_not_what_was_made_of_it(expression: str) -> None:
    """Whoever looks for it in a file of settings must find it there, letter by letter."""
    with pytest.raises(CronParseError) as refusal:
        Cron(expression)

    assert refusal.value.expression == expression


@pytest.mark.parametrize("field", RANGES)
def test_the_example_in_a_refusal_is_a_good_one(field: str) -> None:
    """Advice that is refused in its turn would be worse than none."""
    place = list(RANGES).index(field)
    fields = ["0", "0", "0", "*", "*", "*"]

    with pytest.raises(CronParseError) as refusal:
        Cron(" ".join([*fields[:place], "99", *fields[place + 1 :]]))
    advice = str(refusal.value).rpartition("for example ")[2].split('"')[1]

    assert Cron(" ".join([*fields[:place], advice, *fields[place + 1 :]]), tz="UTC").next_after(NOON) is not None


LINES_REFUSED = [
    pytest.param("", "empty", id="nothing"),
    pytest.param(" \t ", "empty", id="only blanks"),
    pytest.param("*", "1 field", id="one field"),
    pytest.param("0 9 * *", "4 fields", id="four fields"),
    pytest.param("0 0 9 * * * 2026", "7 fields", id="seven fields, as with a year"),
    pytest.param("0 9 * * 1 - 5", "7 fields", id="blanks within a field"),
    pytest.param("@reboot", "@hourly, @daily", id="a word of other crons"),
    pytest.param("@fortnightly", "@hourly, @daily", id="an unknown word"),
    pytest.param("@", "@hourly, @daily", id="half a word"),
    pytest.param("@daily 5", "@hourly, @daily", id="a word and more"),
    pytest.param("@every 5m", "@hourly, @daily", id="a word with a duration"),
    pytest.param("*/15 * * * * # often", "7 fields", id="a comment"),
    pytest.param("٣ * * * *", "ASCII", id="Arabic digits"),
    pytest.param("５ * * * *", "ASCII", id="full-width digits"),
    pytest.param("5² * * * *", "ASCII", id="a superscript"),
    pytest.param("0 9 * * ＭＯＮ", "ASCII", id="full-width letters"),
    pytest.param("0 9 * * ſun", "ASCII", id="a letter whose capital is an S"),
    pytest.param("0\u00a09\u00a0*\u00a0*\u00a0*", "ASCII", id="no-break spaces"),
    pytest.param("0 9 * * *\n", "ASCII", id="a line break"),
    pytest.param("0 9\x00 * * *", "ASCII", id="a null character"),
    pytest.param("0 9 * * \x1b[31m*", "ASCII", id="a terminal's escape"),
    pytest.param("0 9 * * \ud800", "ASCII", id="half a character"),
    pytest.param("30 9 * * *" + " " * 247, "256", id="257 characters"),
    pytest.param("1," * 200_000 + "1 * * * *", "256", id="a list of 200,000 items"),
    pytest.param("*" * 10_000_000, "256", id="ten megabytes"),
]


@pytest.mark.parametrize(("expression", "fragment"), LINES_REFUSED)
def test_a_line_that_is_none_is_refused(expression: str, fragment: str) -> None:
    """Where no one field is to blame, the message says what a line looks like; and it stays short enough for a log."""
    with pytest.raises(CronParseError) as refusal:
        Cron(expression, tz="UTC")

    message = str(refusal.value)
    assert refusal.value.field is None
    assert refusal.value.expression == expression
    assert fragment in message
    assert "minute, hour, day-of-month, month, day-of-week" in message
    assert '"0 9 * * 1-5"' in message
    assert len(message) < 500
    assert message.isprintable()


@pytest.mark.parametrize(
    "given_instead",
    [None, 5, 5.0, True, b"* * * * *", ["*"] * 5, ("*",) * 5, {"minute": 0}, object(), NOON, str],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_a_text_is_refused_as_such(given_instead: object) -> None:
    """A setting that was never filled in arrives as None, and deserves a sentence rather than a TypeError."""
    with pytest.raises(CronParseError, match="not a string") as refusal:
        Cron(given_instead, tz="UTC")  # type: ignore[arg-type]

    assert refusal.value.expression is given_instead
    assert refusal.value.field is None


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("*" * 10_000_000, id="ten megabytes of stars"),
        pytest.param("9" * 10_000_000 + " * * * *", id="ten megabytes of digits"),
        pytest.param(" " * 10_000_000, id="ten megabytes of blanks"),
        pytest.param("@" * 10_000_000, id="ten megabytes of a word"),
        pytest.param("every " + "9" * 10_000_000, id="ten megabytes of an interval"),
        pytest.param("2026-01-05T" + "0" * 10_000_000, id="ten megabytes of a moment"),
        pytest.param("1-99999999999 * * * *", id="a range of a hundred thousand million"),
        pytest.param("*/1,*/1,*/1 " * 5, id="many steps"),
        pytest.param("0 0 30 2 *", id="30 February"),
        pytest.param("* * * 31 4 *", id="31 April, every second"),
        pytest.param("* * * * 2 MON#5", id="a day that comes every 28 years"),
        pytest.param(",".join(["0-59"] * 49) + " * * * *", id="the longest list of ranges"),
        pytest.param("0 0 * * " + ",".join(f"{day}#{n}" for day in range(7) for n in range(1, 6)), id="all the nths"),
    ],
)
def test_the_worst_of_texts_is_read_or_refused_quickly(expression: str) -> None:
    """An expression may come from a stranger; none may keep the event loop from its work."""
    assert_read_quickly(lambda padding: Cron(expression + padding, tz="UTC"))
    assert_read_quickly(lambda padding: parse_schedule(expression + padding))


# --- Whatever is written --------------------------------------------------------------------------------------------


def numbers(first: int, last: int, names: tuple[str, ...] = ()) -> st.SearchStrategy[str]:
    """A number of a field, or its name in some case."""
    plain = st.integers(first, last).map(str)
    return plain | st.sampled_from(names).flatmap(in_some_case) if names else plain


def in_some_case(word: str) -> st.SearchStrategy[str]:
    return st.sampled_from([word.upper(), word.lower(), word.title()])


def items(first: int, last: int, names: tuple[str, ...] = (), *, open_steps: bool = True) -> st.SearchStrategy[str]:
    """What may stand in a list: a value, a range, and either with a step."""
    steps = st.integers(1, last).map(str)
    ranges = st.tuples(st.integers(first, last), st.integers(first, last)).map(lambda ends: f"{min(ends)}-{max(ends)}")
    forms = [numbers(first, last, names), ranges, st.builds("{}/{}".format, ranges, steps)]
    if open_steps:
        forms.append(st.builds("{}/{}".format, numbers(first, last, names), steps))
    return st.one_of(forms)


def fields(item: st.SearchStrategy[str], last: int, *whole: str) -> st.SearchStrategy[str]:
    """A whole field: a star, a step, or a list of up to four items."""
    stepped = st.integers(1, last).map("*/{}".format)
    return st.one_of(st.sampled_from(["*", *whole]), stepped, st.lists(item, min_size=1, max_size=4).map(",".join))


MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAY_NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

sixtieths = fields(items(0, 59), 59)
hours = fields(items(0, 23), 23)
days_of_month = fields(items(1, 31) | st.just("L"), 31, "?")
months = fields(items(1, 12, MONTH_NAMES), 12)
nths = st.builds(
    "{}{}".format, numbers(0, 7, WEEKDAY_NAMES), st.sampled_from(["L", "#L", "#1", "#2", "#3", "#4", "#5"])
)
# A step from a weekday "to the end" is left out: whether the week ends on day 6 or on day 7 is a matter of taste.
days_of_week = fields(items(0, 7, WEEKDAY_NAMES, open_steps=False) | nths, 7, "?")


def exists(expression: str) -> bool:
    """Whether some day matches: a leap year has every date there is, and weekdays come round to all of them."""
    known = read_line(expression)
    return known.days_of_week not in ("*", "?") or any(known.wants_day(date(2024, 1, 1) + n * DAY) for n in range(366))


five_fields = st.tuples(sixtieths, hours, days_of_month, months, days_of_week)
six_fields = st.tuples(sixtieths, sixtieths, hours, days_of_month, months, days_of_week)
expressions = (five_fields | six_fields).map(" ".join).filter(exists)
moments = st.datetimes(datetime(1970, 1, 2), datetime(2120, 1, 1)).map(lambda moment: moment.replace(tzinfo=UTC))


@given(expression=expressions, start=moments)
@settings(max_examples=400)
@example(expression="0 0 * 2 MON#5", start=datetime(2073, 1, 1, tzinfo=UTC))
@example(expression="0 0 29 2 *", start=datetime(2096, 3, 1, tzinfo=UTC))
@example(expression="0 0 2-31,L * *", start=datetime(2026, 1, 31, tzinfo=UTC))
def test_any_line_runs_at_its_matches_and_nowhere_else(expression: str, start: datetime) -> None:
    """Strictly increasing, nothing left out, and the same looking back and counting: whatever a person writes."""
    cron = Cron(expression, tz="UTC")

    found = chain(cron, start, 5)

    assert found == first_matches(read_line(expression), start, 5)
    assert all(earlier < later for earlier, later in pairwise([start, *found]))
    for earlier, later in pairwise(found):
        assert cron.previous(later) == later
        assert cron.previous(later - MICROSECOND) == earlier
        assert cron.previous(later - SECOND) == earlier
    for place, moment in enumerate(found):
        assert cron.count_micros(micros(start), micros(moment), None, 10**6) == place + 1
        assert cron.count_micros(micros(start), micros(moment) - 1, None, 10**6) == place
    assert cron.count_micros(micros(start), micros(found[-1]), None, 3) == 3


@given(expression=expressions, cases=st.lists(st.booleans(), min_size=60, max_size=60), blanks=st.data())
@settings(max_examples=200)
def test_any_line_is_the_same_in_any_case_and_with_any_blanks(
    expression: str, cases: list[bool], blanks: st.DataObject
) -> None:
    """People copy lines out of crontabs, where the columns are lined up."""
    blank = st.text(" \t", min_size=1, max_size=3)
    rewritten = "".join(blanks.draw(blank) if letter == " " else letter for letter in f" {expression} ")
    rewritten = "".join(
        letter.upper() if upper else letter.lower()
        for letter, upper in zip(rewritten, cases * (len(rewritten) // 60 + 1), strict=False)
    )
    assume(len(rewritten) <= 256)

    assert Cron(rewritten, tz="UTC") == Cron(expression, tz="UTC")
    assert Cron(rewritten, tz="UTC").expression == expression.upper()


CRON_ALPHABET = "0123456789*/-,#?LWHR@+~. \tSUNMONTUEWEDTHUFRISATJANFEBdaily"
# Most random text has the wrong number of fields; this has the right one, so that the fields are read.
almost_lines = st.lists(
    st.text(CRON_ALPHABET.replace(" ", "").replace("\t", ""), min_size=1, max_size=9), min_size=5, max_size=6
)


@given(text=st.text() | st.text(CRON_ALPHABET, max_size=40) | almost_lines.map(" ".join))
@settings(max_examples=max(1_000, settings().max_examples))
@pytest.mark.timeout(300)
@pytest.mark.deep
def test_any_text_is_an_expression_or_is_refused_quickly(text: str) -> None:
    """Expressions come from settings, chats and strangers: one error to catch, and never a long wait."""
    assert_read_quickly(lambda padding: Cron(text + padding, tz="UTC"))


@given(
    text=st.text()
    | st.text(CRON_ALPHABET, max_size=40)
    | almost_lines.map(" ".join)
    | st.builds(
        "{} {}".format, st.sampled_from(["every", "after", "at", "manual", "EVERY"]), st.text("0123456789smhd-:TZ. ")
    )
    | st.text("0123456789-:TZ+. ", max_size=40).map("2026-{}".format)
)
@settings(max_examples=max(1_000, settings().max_examples))
@pytest.mark.timeout(300)
@pytest.mark.deep
def test_any_text_is_a_schedule_or_is_refused_quickly(text: str) -> None:
    """What a person types is read by the same rule: a schedule, or one kind of error."""
    assert_read_quickly(lambda padding: parse_schedule(text + padding))


def assert_read_quickly(read: Callable[[str], object]) -> None:
    """Read a text: nothing but a SchedulerError is raised, and it takes no longer than it may."""
    # Blanks at the end make another text with the same meaning, which no cache can answer. A machine may stall, and a
    # collection of garbage may fall into any one measurement: the best of three counts.
    spent = []
    for padding in ("", " ", "  "):
        started_at = time.process_time()
        with suppress(SchedulerError):
            read(padding)
        spent.append(time.process_time() - started_at)
        if spent[-1] <= LONGEST_TO_READ:
            return
    pytest.fail(f"took {min(spent):.3f} s of CPU")


# --- Looking back, and counting -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expression",
    ["*/7 * * * *", "30 2 * * *", "0 9-17 * * MON-FRI", "0 0 1,15 * SUN", "59 23 L * *", "15,45 */20 3 * * *"],
)
def test_looking_back_and_counting_agree_with_a_walk_through_every_second(expression: str) -> None:
    """How many runs were missed, and which was the last, is told to the user: both must be exact."""
    cron = Cron(expression, tz="UTC")
    known = read_line(expression)
    start = datetime(2026, 1, 31, 1, tzinfo=UTC)
    walked = [start + n * SECOND for n in range(1, 26 * 3600)]
    runs = [moment for moment in walked if known.wants(moment)]

    for probe in walked[:: 7 * 60 + 13]:
        passed = [run for run in runs if run <= probe]
        assert cron.count_micros(micros(start), micros(probe), None, 10**6) == len(passed)
        assert cron.count_micros(micros(probe), micros(walked[-1]), None, 10**6) == len(runs) - len(passed)
        if passed:
            assert cron.previous(probe) == passed[-1]


def test_an_occurrence_is_at_or_before_itself_and_not_after_itself() -> None:
    """The two questions meet without a gap: an instant is either the last one or the next one, never both."""
    cron = Cron("0 12 * * *", tz="UTC")

    assert cron.previous(NOON) == NOON
    assert cron.previous(NOON - MICROSECOND) == NOON - DAY
    assert cron.next_after(NOON) == NOON + DAY
    assert cron.next_after(NOON - MICROSECOND) == NOON


def test_counting_takes_the_end_and_leaves_the_start() -> None:
    """Stretches that follow each other must neither share an occurrence nor drop one."""
    cron = Cron("* * * * *", tz="UTC")
    start, later = micros(NOON), micros(NOON + 5 * MINUTE)

    assert cron.count_micros(start, later, None, 100) == 5
    assert cron.count_micros(start - 1, later, None, 100) == 6
    assert cron.count_micros(start, later - 1, None, 100) == 4
    assert cron.count_micros(start, start, None, 100) == 0
    assert cron.count_micros(later, start, None, 100) == 0


@pytest.mark.parametrize("cap", [0, 1, 59, 60, 61])
def test_counting_stops_at_the_cap(cap: int) -> None:
    """After a year of sleep, "more than a thousand" is all that anybody wants to know."""
    cron = Cron("* * * * *", tz="UTC")

    counted = cron.count_micros(micros(NOON), micros(NOON + 60 * MINUTE), None, cap)

    assert counted == min(60, cap)


def test_counting_a_century_of_seconds_is_quick() -> None:
    """The cap bounds the answer and must bound the work as well."""
    started_at = time.process_time()

    counted = Cron("* * * * * *", tz="UTC").count_micros(0, micros(EPOCH + 36_500 * DAY), None, 1000)

    assert counted == 1000
    assert time.process_time() - started_at < 0.5


# --- The ends of the calendar ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("expression", ["* * * * * *", "0 0 1 1 *", "0 0 29 2 *", "0 0 * 2 MON#5", "@hourly"])
def test_at_the_end_of_the_calendar_there_is_no_next_run(expression: str) -> None:
    """Python's years end with 9999: an answer of None, and no exception that ends a loop."""
    last = datetime.max.replace(tzinfo=UTC)

    assert Cron(expression, tz="UTC").next_after(last) is None
    assert Cron(expression, tz="Pacific/Kiritimati").next_after(last) is None
    assert Cron(expression, tz="Etc/GMT+12").next_after(last) is None


@pytest.mark.parametrize("expression", ["0 0 1 1 *", "0 0 29 2 *", "0 0 * 2 MON#5"])
def test_at_the_start_of_the_calendar_there_is_no_last_run(expression: str) -> None:
    """The same at the other end: looking back ends somewhere."""
    first = datetime.min.replace(tzinfo=UTC)

    assert Cron(expression, tz="UTC").previous(first) is None
    assert Cron(expression, tz="Pacific/Kiritimati").previous(first) is None
    assert Cron(expression, tz="Etc/GMT+12").previous(first) is None


@pytest.mark.parametrize("naive", [datetime(2026, 1, 5, 12), None, "2026-01-05", 0], ids=str)
def test_a_question_without_a_zone_is_refused(naive: object) -> None:
    """Whose noon? To guess would be wrong twice a year, and everywhere else."""
    cron = Cron("0 12 * * *", tz="UTC")

    with pytest.raises(SchedulerError):
        cron.next_after(naive)  # type: ignore[arg-type]
    with pytest.raises(SchedulerError):
        cron.previous(naive)  # type: ignore[arg-type]


# --- Helpers --------------------------------------------------------------------------------------------------------


def chain(cron: Cron, start: datetime, length: int) -> list[datetime]:
    """The next runs after *start*, each asked for from the one before."""
    found: list[datetime] = []
    moment = start
    while len(found) < length and (following := cron.next_after(moment)) is not None:
        found.append(following)
        moment = following
    return found


def first_matches(known: Line, start: datetime, length: int) -> list[datetime]:
    """The same by brute force: day after day, and every time of the days that match."""
    return list(islice(matches(known, start), length))


def matches(known: Line, start: datetime) -> Iterator[datetime]:
    midnight = datetime(start.year, start.month, start.day, tzinfo=UTC)
    while True:
        if known.wants_day(midnight.date()):
            # A day may have 86,400 matches: the hours that have passed are not looked at.
            for hour in sorted(hour for hour in known.hours if midnight + (hour + 1) * HOUR > start):
                for minute, second in product(sorted(known.minutes), sorted(known.seconds)):
                    moment = midnight.replace(hour=hour, minute=minute, second=second)
                    if moment > start:
                        yield moment
        midnight += DAY


def test_a_range_from_a_day_to_itself_is_that_day() -> None:
    """SUN closes a week as 7 elsewhere; here it must not mean the whole of it."""
    after = datetime(2026, 1, 5, tzinfo=UTC)

    assert Cron("0 0 * * SUN-SUN", tz="UTC").next_after(after) == datetime(2026, 1, 11, tzinfo=UTC)
    assert Cron("0 0 * * 5-5/2", tz="UTC").next_after(after) == datetime(2026, 1, 9, tzinfo=UTC)
