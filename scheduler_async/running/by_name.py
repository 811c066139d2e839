"""Fill the parameters of a handler from the keys of its payload, by name. `signature` decides when that is done."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from scheduler_async.errors import PayloadError, quoted
from scheduler_async.jobs.json_text import Json
from scheduler_async.jobs.run import Run

if TYPE_CHECKING:
    from scheduler_async.jobs.payloads import Reader

REQUIRED = inspect.Parameter.empty


class Slot(NamedTuple):
    """A parameter of a handler."""

    name: str
    gets_run: bool = False
    """Whether it gets the run. If it has a reader too, it gets its key where the payload has one."""
    reader: Reader | None = None
    """Converts the value of its key. A parameter without a reader keeps its default."""
    default: object = REQUIRED
    is_positional: bool = False
    """Whether it cannot be passed by its name."""


class ByName(NamedTuple):
    """The parameters of a handler that are filled from an object."""

    slots: tuple[Slot, ...]
    takes_rest: bool = False
    """Whether the handler takes keys without a parameter, as **kwargs."""
    is_strict: bool = True
    """Whether a key without a parameter is an error. A handler that gets the run can read the keys itself."""

    def call(self, function: Callable[..., Any], run: Run) -> Any:
        """Call *function* for *run*."""
        values, rest = self.filled(run.payload)
        for slot in self.slots:
            if slot.gets_run:
                values.setdefault(slot.name, run)
        positional = [values.pop(slot.name, slot.default) for slot in self.slots if slot.is_positional]
        return function(*positional, **values, **rest)

    def filled(self, payload: Json) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the values of parameters for this *payload*, and the rest. Raise `PayloadError` if it does not fit."""
        given = payload if isinstance(payload, dict) else {}
        fillable = {slot.name: slot for slot in self.slots if slot.reader is not None}
        for slot in fillable.values():
            if slot.default is REQUIRED and slot.name not in given and not slot.gets_run:
                raise PayloadError(self._missing(slot, payload))
        rest = {key: value for key, value in given.items() if key not in fillable}
        taken = {slot.name for slot in self.slots if not slot.is_positional}
        unknown = [key for key in rest if not self.takes_rest or key in taken]
        if unknown and self.is_strict:
            known = ", ".join(fillable) or "none"
            raise PayloadError(f"payload has an unknown key {quoted(unknown[0])}; the handler takes the keys {known}")
        values = {
            name: slot.reader(given[name], f"payload.{name}")
            for name, slot in fillable.items()
            if name in given and slot.reader is not None
        }
        return values, {key: rest[key] for key in rest if key not in unknown}

    def _missing(self, slot: Slot, payload: Json) -> str:
        if payload is None or isinstance(payload, dict):
            return f"payload.{slot.name} is missing"
        return f"payload must be a dict with the key {quoted(slot.name)}, not {quoted(payload)}"
