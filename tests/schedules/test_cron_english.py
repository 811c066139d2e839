"""Cron lines in English."""

from __future__ import annotations

import pytest

from scheduler_async.schedules.cron_english import describe_line
from scheduler_async.schedules.cron_line import parse_cron


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * * *", "every minute"),
        ("* * * * * *", "every second"),
        ("*/5 * * * *", "every 5 minutes"),
        ("0,30 * * * *", "every 30 minutes"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("*/25 * * * * *", "at seconds 0, 25 and 50 of every minute"),
        ("10 * 9-17 * * *", "at second 10 of every minute from 09:00 to 17:59"),
        ("0 * * * *", "on the hour, every hour"),
        ("5 * * * *", "at minute 5, every hour"),
        ("*/7 * * * *", "at minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56, every hour"),
        ("0 */2 * * *", "on the hour, every 2 hours"),
        ("* */2 * * *", "every minute of every 2nd hour"),
        ("* 9 * * *", "every minute from 09:00 to 09:59"),
        ("*/15 9-17 * * 1-5", "every 15 minutes from 09:00 to 17:45 on Monday to Friday"),
        ("0 22-23,0-5 * * *", "on the hour from 00:00 to 05:00 and from 22:00 to 23:00"),
        ("0 9 * * *", "at 09:00"),
        ("30 0 9 * * *", "at 09:00:30"),
        ("30 8,17 * * *", "at 08:30 and 17:30"),
        ("15 30 * * * *", "at second 15 of minute 30, every hour"),
        ("* 5 * * * *", "every second of minute 5, every hour"),
        ("0 0 1,15,L * *", "at 00:00 on the 1st, 15th and last day of the month"),
        ("0 0 2,3,11-13,22,23 * *", "at 00:00 on the 2nd, 3rd, 11th to 13th, 22nd and 23rd of the month"),
        ("0 0 13 * FRI", "at 00:00 on the 13th of the month or on Friday"),
        ("0 12 * * 5#2", "at 12:00 on the second Friday of the month"),
        ("0 12 * * MON,FRIL", "at 12:00 on Monday and the last Friday of the month"),
        ("0 0 * * 6,0", "at 00:00 on Saturday and Sunday"),
        ("0 0 29 2 *", "at 00:00 on the 29th of February"),
        ("0 0 L 1-6 *", "at 00:00 on the last day of January to June"),
        ("0 0 * 6 *", "at 00:00 in June"),
        ("0 0 1 6 MON", "at 00:00 on the 1st of the month or on Monday in June"),
        ("@weekly", "at 00:00 on Sunday"),
        ("@yearly", "at 00:00 on the 1st of January"),
    ],
)
def test_a_line_in_words(expression: str, words: str) -> None:
    assert describe_line(parse_cron(expression)) == words
