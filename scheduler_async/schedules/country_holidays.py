"""Public holidays of countries, from the library `holidays`, which is loaded when the first calendar needs it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from functools import lru_cache
from typing import Any

from scheduler_async.errors import InvalidScheduleError, UnknownScheduleError, quoted
from scheduler_async.schedules.patience import check_patience, check_time


def check_country(country: object, subdivision: object) -> tuple[str, str | None]:
    """Return the codes as the library writes them, or raise an error that says what it knows."""
    if not isinstance(country, str) or not country.isascii() or not country.isalpha():
        raise InvalidScheduleError(f'The country must be a code such as "SE", not {quoted(country)}.')
    if subdivision is not None and (not isinstance(subdivision, str) or not subdivision):
        raise InvalidScheduleError(f'The subdivision must be a code such as "BY", or None, not {quoted(subdivision)}.')
    code = country.upper()
    _library_of(code, subdivision)
    return code, subdivision


_loaded: list[bool] = []  # whether a country was found before: the first takes some tenths of a second


@lru_cache(maxsize=4096)
def holidays_of(country: str, subdivision: str | None, year: int) -> tuple[date, ...]:
    """Return the public holidays of one *year*."""
    known = _library_of(country, subdivision)
    first, last = known.start_year, known.end_year
    if not first <= year <= last:
        where = country if subdivision is None else f"{country}-{subdivision}"
        raise InvalidScheduleError(
            f"The library holidays does not know the public holidays of {where} in {year}, only from {first} to {last}."
        )
    found: Iterable[date] = type(known)(subdiv=subdivision, years=year, expand=False)
    return tuple(day for day in found if day.year == year)


@lru_cache(maxsize=256)
def _library_of(country: str, subdivision: str | None) -> Any:
    if not _loaded:
        check_time()
        check_patience("The library holidays", UnknownScheduleError)
    try:
        import holidays  # noqa: PLC0415 - an extra, and slow to load
    except ImportError:
        raise UnknownScheduleError(
            "Public holidays need the library holidays, which is not installed. "
            'Run: pip install "scheduler-async[holidays]"'
        ) from None
    try:
        found = holidays.country_holidays(country, subdiv=subdivision, expand=False)
    except NotImplementedError:
        pass
    else:
        _loaded.append(True)
        return found
    known = holidays.list_supported_countries()
    if country not in known:
        raise InvalidScheduleError(
            f'The library holidays does not know the country {quoted(country)}. Use an ISO 3166 code such as "SE".'
        )
    listed = ", ".join(known[country]) or "none"
    raise InvalidScheduleError(
        f"The library holidays does not know the subdivision {quoted(subdivision)} of {country}. It knows: {listed}."
    )
