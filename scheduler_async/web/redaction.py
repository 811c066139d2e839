"""What visitors do not see: payloads and what came of them without `payloads=True`, and secrets at all. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from scheduler_async.errors import InvalidJobError, quoted
from scheduler_async.jobs.json_forms import Form
from scheduler_async.jobs.json_text import Json

MASK = "***"

# Parts of names. `passphrase` and `db_password` have them, `compass` and `tokens_used` as well: better too many.
SECRET_NAMES = (
    *("password", "passwd", "passphrase", "pwd", "secret", "token", "dsn", "credential", "authorization", "cookie"),
    *("apikey", "privatekey", "accesskey", "signature", "connectionstring"),
)

Redact: TypeAlias = Callable[[Json], Json]
"""Takes a payload, an output or another value that needs `payloads=True`, and returns what visitors see of it."""

HIDDEN_IN_JOBS = ("payload", "metadata", "cursor", "last_error", "last_message")
HIDDEN_IN_RUNS = ("payload", "result", "error", "message", "traceback", "progress_message", "output")
HIDDEN_IN_CHANGES = ("payload", "metadata", "cursor")

# The password in a URL; the value after a secret name in text such as "--password=…", "token: …" or '"dsn": "…"'.
_IN_URL = re.compile(r"(?P<before>[a-z][a-z0-9+.-]{0,30}://[^\s/:@]{0,256}:)[^\s/@]{1,1024}(?=@)", re.IGNORECASE)
_LONGEST_TEXT = 256 * 1024


@dataclass(frozen=True)
class Redaction:
    """How values are shown: keys that hold secrets are masked, then the host application may change the rest."""

    names: tuple[str, ...] = SECRET_NAMES
    change: Redact | None = None

    def is_secret(self, name: str) -> bool:
        """Return whether the value under *name* is a secret."""
        plain = re.sub(r"[^a-z0-9]", "", name.lower())
        return any(part in plain for part in self.names)

    def value(self, value: Json) -> Json:
        """Return what a visitor who may see payloads sees of *value*."""
        masked = self._masked(value)
        return masked if self.change is None else self.change(masked)

    def text(self, text: str) -> str:
        """Return what a visitor who may see payloads sees of *text*, such as an error or an output."""
        found = self.value(text)
        return found if isinstance(found, str) else MASK

    def _masked(self, value: Json) -> Json:
        if isinstance(value, dict):
            return {
                name: MASK if self.is_secret(name) and inner is not None else self._masked(inner)
                for name, inner in value.items()
            }
        if isinstance(value, list):
            return [self._masked(inner) for inner in value]
        return self._masked_text(value) if isinstance(value, str) else value

    def _masked_text(self, text: str) -> str:
        text = text[:_LONGEST_TEXT]
        if "://" in text:
            text = _IN_URL.sub(rf"\g<before>{MASK}", text)
        return self._assigned.sub(rf"\g<before>{MASK}", text) if "=" in text or ":" in text else text

    @property
    def _assigned(self) -> re.Pattern[str]:
        return _assignments(self.names)


def _assignments(names: tuple[str, ...]) -> re.Pattern[str]:
    if names not in _PATTERNS:
        parts = "|".join("[-_]?".join(map(re.escape, name)) if len(name) > 5 else re.escape(name) for name in names)
        _PATTERNS[names] = re.compile(
            rf"""(?P<before>(?:{parts})[\w-]{{0,40}}["']?\s{{0,3}}[=:]\s{{0,3}}(?:bearer\s{{1,3}}|basic\s{{1,3}})?["']?)"""
            r"""[^\s"'&,;}\])]{1,4096}""",
            re.IGNORECASE,
        )
    return _PATTERNS[names]


_PATTERNS: dict[tuple[str, ...], re.Pattern[str]] = {}


def redaction_of(redact: Redact | Iterable[str] | None) -> Redaction:
    """Return the argument *redact* of a page: names of further keys, or a function."""
    if redact is None:
        return Redaction()
    if callable(redact):
        return Redaction(change=redact)
    names = () if isinstance(redact, str) else tuple(redact)
    plain = tuple(re.sub(r"[^a-z0-9]", "", name.lower()) for name in names if isinstance(name, str))
    if not plain or len(plain) < len(names) or "" in plain:
        raise InvalidJobError(
            f'redact must be names of keys such as ["iban"], or a function of a value, not {quoted(redact)}.', "redact"
        )
    return Redaction(names=SECRET_NAMES + plain)


def shown(form: Form, hidden: tuple[str, ...], redaction: Redaction, *, payloads: bool) -> Form:
    """Return *form* as a visitor sees it. Without *payloads*, the fields that are left out stand in "redacted"."""
    kept = dict(form)
    left_out = []
    for name in hidden:
        if form.get(name) in (None, {}, ""):
            continue
        if payloads:
            kept[name] = redaction.value(form[name])
        else:
            kept[name] = None
            left_out.append(name)
    return {**kept, "redacted": left_out} if left_out else kept
