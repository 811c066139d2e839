"""What visitors do not see: payloads and what came of them without `payloads=True`, and secrets at all. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
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

# A word that may be a URL with a password.
_WORD = re.compile(r"""[^\s"'<>]+""")
# Before the host of a website, a single word is a token: "https://token@host".
_TOKEN = re.compile(r"""(?:(?<=http://)|(?<=https://))[^\s"'<>/?#@:]+:?(?=@)""", re.IGNORECASE)
# A name before a value, as in "--password …", "token: …", '"dsn": "…"' or "Authorization: Bearer …".
_NAME = re.compile(
    r"""(?<![\w-])(?:(?P<option>--[\w-]{1,200})[ \t]{1,3}(?!-)|(?P<name>[\w-]{1,200})\\{0,3}["']?\s{0,3}[=:]\s{0,3})"""
)
_SCHEME = r"(?:(?:bearer|basic)\s{1,3})?"
# In quotes, it goes to the next quote of this kind, or to the end of the line. JSON inside JSON escapes its quotes.
_PLAIN = r"""[^\s"'&,;}\])]"""
_QUOTED = rf"""[bfru]{{0,2}}(?P<quote>\\{{0,3}}["']){_SCHEME}(?P<quoted>(?:(?!(?P=quote))(?:\\.|[^\r\n]))++)"""
_VALUE = re.compile(rf"""{_QUOTED}|{_SCHEME}(?P<plain>[\[{{(][^\r\n]*|{_PLAIN}+)""", re.IGNORECASE)
# Headers have values of several words.
_HEADERS = ("authorization", "cookie", "cookies")
_VALUE_OF_HEADER = re.compile(rf"{_QUOTED}|{_SCHEME}(?P<plain>{_PLAIN}[^\r\n]*)", re.IGNORECASE)
_LONGEST_TEXT = 256 * 1024
_LONGEST_NAME = 200


@dataclass(frozen=True)
class Redaction:
    """How values are shown: keys that hold secrets are masked, then the host application may change the rest."""

    names: tuple[str, ...] = SECRET_NAMES
    change: Redact | None = None

    def is_secret(self, name: str) -> bool:
        """Return whether the value under *name* is a secret."""
        return _is_secret(name[:_LONGEST_NAME], self.names)

    def value(self, value: Json) -> Json:
        """Return *value* as a visitor with access to payloads sees it."""
        masked = self._masked(value)
        return masked if self.change is None else self.change(masked)

    def text(self, text: str) -> str:
        """Return *text*, such as an error or an output, as a visitor with access to payloads sees it."""
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
        if len(text) > _LONGEST_TEXT:
            text = text[:_LONGEST_TEXT].rsplit(maxsplit=1)[0]  # a part of a URL would not be found
        if not (_may_have_url(text) or _is_secret(text, self.names)):
            return text
        return "".join(map(self._masked_line, _lines_of(text)))

    def _masked_line(self, text: str) -> str:
        if _may_have_url(text):
            text = _TOKEN.sub(MASK, _WORD.sub(_without_password, text))
        return self._with_masks(text) if _is_secret(text, self.names) else text

    def _with_masks(self, text: str) -> str:
        parts: list[str] = []
        done = 0
        for found in _NAME.finditer(text):
            name = found["name"] or found["option"]
            if found.end() >= done and self.is_secret(name) and (value := _value_of(name).match(text, found.end())):
                parts += text[done : value.start(value.lastgroup or 0)], MASK
                done = value.end()
        return text if not parts else "".join((*parts, text[done:]))


def _value_of(name: str) -> re.Pattern[str]:
    return _VALUE_OF_HEADER if name.lower().endswith(_HEADERS) else _VALUE


def _without_password(word: re.Match[str]) -> str:
    """Return a word without the password, if it is a URL that has one: "scheme://user:password@host"."""
    text = word[0]
    begin, end = text.find("://"), text.rfind("@")
    if begin < 0 or end < begin:
        return text
    colon = text.find(":", begin + 3)
    has_password = 0 <= colon < end - 1 and "/" not in text[begin + 3 : colon]
    return f"{text[: colon + 1]}{MASK}{text[end:]}" if has_password else text


def _lines_of(text: str) -> Iterator[str]:
    """Yield the lines of *text*. A line that ends with a name and a colon belongs to the next one."""
    part = ""
    for line in text.splitlines(keepends=True):
        part += line
        if len(part) > _LONGEST_NAME or not line.rstrip().endswith((":", "=")):
            yield part
            part = ""
    yield part


def _may_have_url(text: str) -> bool:
    return "://" in text and "@" in text


def _is_secret(name: str, names: tuple[str, ...]) -> bool:
    plain = name.lower().translate(_WITHOUT_MARKS)
    return any(part in plain for part in names)


_WITHOUT_MARKS = {ord(mark): None for mark in "-_. "}


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
