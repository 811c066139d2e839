"""JSON schemas of the values that the API answers, from the annotations of their classes. Pure."""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from msgspec import Struct, structs

from scheduler_async.engine.health import Health
from scheduler_async.jobs.answers import Node
from scheduler_async.jobs.enums import SkipReason
from scheduler_async.jobs.history import ChangeRow
from scheduler_async.jobs.job import JOB_FIELDS, Job
from scheduler_async.jobs.pages import Concern, Counts, TallyRow
from scheduler_async.jobs.retries import Retry
from scheduler_async.jobs.run import RunRow
from scheduler_async.options import JobChanges, JobOptions
from scheduler_async.schedules.base import Schedule

Form = dict[str, Any]

ANY: Form = {}
TEXT: Form = {"type": "string"}
MOMENT: Form = {"type": "string", "format": "date-time"}
DURATION: Form = {"type": "string", "examples": ["5m", "1h30m"]}

MORE_OF_JOBS: dict[str, Form] = {
    "slug": TEXT,
    "cron": TEXT,
    "next_due_at": {"type": ["string", "null"], "format": "date-time"},
    "retry_status": {"type": ["string", "null"]},
    "last_exit": {"type": ["integer", "null"]},
    "zone": {"type": "string", "description": "The time zone that the schedule is written in."},
    "revision": {"type": "integer"},
    "redacted": {"type": "array", "items": TEXT, "description": "The fields that you may not see."},
}


@cache
def fields_of_jobs() -> tuple[str, ...]:
    """Return the names of all fields that the API shows of a job."""
    return (*JOB_FIELDS, *MORE_OF_JOBS)


def schema_of(kind: Any) -> Form:
    """Return the JSON schema of values with this annotation, in the form that `to_json` gives them."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _either([schema_of(one) for one in inner])
    if kind is type(None):
        return {"type": "null"}
    if origin is not None:
        if origin in (list, tuple, set, frozenset):
            return {"type": "array", "items": schema_of(inner[0])}
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": schema_of(inner[1])}
        if str(origin) == "typing.Literal":
            return {"enum": list(inner)}
        return ANY
    if isinstance(kind, type):
        if issubclass(kind, Enum):
            return {"enum": [member.value for member in kind]}
        if issubclass(kind, Schedule) or kind is Retry:
            return {"type": "object"}
        simple = {bool: "boolean", int: "integer", float: "number", str: "string", dict: "object"}
        if kind in simple:
            return {"type": simple[kind]}
        if kind is datetime:
            return MOMENT
        if kind is timedelta:
            return DURATION
        if is_dataclass(kind) or issubclass(kind, Struct):
            return object_of(kind)
    return ANY


def _either(choices: list[Form]) -> Form:
    """Return the schema of values that fit one of *choices*."""
    if ANY in choices:
        return ANY
    if {"type": "string"} in choices:  # an enum or a text is a text
        choices = [one for one in choices if "enum" not in one]
    plain = [one for one in choices if one.get("type") != "null"]
    if len(plain) == 1 and "type" in plain[0] and len(choices) == 2:
        return {**plain[0], "type": [plain[0]["type"], "null"]}
    return choices[0] if len(choices) == 1 else {"anyOf": choices}


def _choices_of(kind: Any) -> Form | None:
    """Return the schema of the members of an enum that may also be given as text."""
    enums = [one for one in get_args(kind) if isinstance(one, type) and issubclass(one, Enum)]
    return schema_of(enums[0]) if enums else None


def object_of(kind: type, **more: Form) -> Form:
    """Return the schema of a dataclass or a struct, with all of its fields, and *more*."""
    hints = get_type_hints(kind, localns=_NAMES)
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else [one.name for one in structs.fields(kind)]
    properties = {name: schema_of(hints[name]) for name in names}
    return {"type": "object", "properties": {**properties, **more}, "required": list(properties)}


def job_schema() -> Form:
    """Return the schema of a job as the API shows it."""
    properties = {}
    for name in JOB_FIELDS:
        found = getattr(Job, name)
        hints = {} if not isinstance(found, property) else get_type_hints(found.fget, localns=_NAMES)
        properties[name] = schema_of(hints.get("return", str))
    properties["metadata"]["type"] = ["object", "null"]  # null for visitors who may not see it
    required = [name for name in (*properties, *MORE_OF_JOBS) if name != "redacted"]
    return {"type": "object", "properties": {**properties, **MORE_OF_JOBS}, "required": required}


# What annotations name that only type checkers import.
_NAMES: dict[str, Any] = {"Schedule": Schedule, "Retry": Retry, "datetime": datetime, "timedelta": timedelta}


def description_schema(kind: type, required: Collection[str], **more: Form) -> Form:
    """Return the schema of a description of a job in a body."""
    hints = get_type_hints(kind, localns=_NAMES)
    properties = {name: _choices_of(hint) or schema_of(hint) for name, hint in hints.items()}
    properties |= {
        "schedule": {
            "type": ["string", "object"],
            "description": 'In words, such as "every 5m" or "0 9 * * *", or an object as jobs show it.',
            "examples": ["every 5m", "0 9 * * 1-5", "manual"],
        },
        "tz": {"type": ["string", "null"], "description": "The time zone of a cron expression in words."},
        "handler": TEXT,
        "metadata": {"type": ["object", "null"]},
        "retry": {"type": ["object", "null"]},
        "timeout": {"type": ["string", "null"], "examples": ["10m"]},
        "misfire_grace": {"type": ["string", "null"]},
        "catch_up_window": {"type": ["string", "null"]},
    }
    properties = {name: schema for name, schema in properties.items() if name not in more} | more
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _part_of(items: Form, **more: Form) -> Form:
    properties: dict[str, Form] = {
        "items": {"type": "array", "items": items},
        "next": {"type": ["string", "null"], "description": "The value of `after` for the part that follows."},
        "looked_back_to": {"type": ["string", "null"], "format": "date-time"},
    }
    return {"type": "object", "properties": {**properties, **more}, "required": list(properties)}


def _ref(name: str) -> Form:
    return {"$ref": f"#/components/schemas/{name}"}


def all_schemas() -> dict[str, Form]:
    """Return the schemas of all answers and bodies, by their names."""
    redacted = MORE_OF_JOBS["redacted"]
    options = get_type_hints(JobOptions)
    enabled = {"enabled": schema_of(options["enabled"])}
    run = object_of(RunRow, zone=MORE_OF_JOBS["zone"], redacted=redacted)
    node = object_of(Node)
    for name in ("is_self",):
        node["properties"].pop(name)
        node["required"].remove(name)
    node["properties"] |= {"lease": {"type": "number"}, "clock_skew": {"type": "number"}}
    health = object_of(Health)
    health["properties"] |= {"ok": {"type": "boolean"}, "lateness": {"type": ["number", "null"]}}
    health["properties"]["counts"] = {"anyOf": [object_of(Counts), {"type": "null"}]}
    result = {
        "type": "object",
        "properties": {
            "namespace": TEXT,
            "id": TEXT,
            "result": {"enum": ["done", "would", "refused"]},
            "run": {"type": ["integer", "null"]},
            "problem": _ref("Problem"),
        },
        "required": ["namespace", "id", "result"],
    }
    occurrence = {
        "type": "object",
        "properties": {
            "at": MOMENT,
            "zone": TEXT,
            "there": {"type": "string", "description": "On the clocks of the job."},
            "here": {"type": "string", "description": "On the clocks of the reader."},
            "note": {"type": ["string", "null"]},
        },
        "required": ["at", "zone", "there", "here", "note"],
    }
    return {
        "Problem": {
            "type": "object",
            "properties": {
                "type": {"type": "string", "description": "The class of the error."},
                "title": TEXT,
                "status": {"type": "integer"},
                "detail": {"type": "string", "description": "What is wrong, as a sentence."},
                "field": {"type": "string", "description": "What it is about."},
                "remedy": {"type": "string", "description": "What helps."},
            },
            "required": ["type", "title", "status", "detail"],
        },
        "Job": job_schema(),
        "Jobs": _part_of(_ref("Job")),
        "Run": run,
        "Runs": _part_of(_ref("Run"), zone=MORE_OF_JOBS["zone"]),
        "Upcoming": _part_of(occurrence, zone=MORE_OF_JOBS["zone"]),
        "Explanation": {
            "type": "object",
            "properties": {
                "reason": schema_of(SkipReason | None),
                "until": {"type": ["string", "null"], "format": "date-time"},
                "sentence": TEXT,
                "at": {"type": ["string", "null"], "format": "date-time"},
                "run": {"anyOf": [_ref("Run"), {"type": "null"}]},
                "zone": MORE_OF_JOBS["zone"],
            },
            "required": ["reason", "until", "sentence", "at", "run", "zone"],
        },
        "Nodes": _part_of(node),
        "Concerns": _part_of(object_of(Concern)),
        "Tally": _part_of(object_of(TallyRow)),
        "Changes": _part_of(object_of(ChangeRow)),
        "Health": health,
        "Results": _part_of(result),
        "JobDescription": description_schema(
            JobOptions, ("schedule", "handler"), **dict.fromkeys(read_only_fields(), ANY)
        ),
        "NewJob": description_schema(
            JobOptions, ("schedule", "handler"), id={"type": ["string", "null"]}, namespace=TEXT, **enabled
        ),
        "JobPatch": {
            **description_schema(JobChanges, ()),
            "properties": {
                name: schema
                for name, schema in description_schema(JobChanges, ())["properties"].items()
                if name != "enabled"
            },
        },
    }


def read_only_fields() -> list[str]:
    """Return the fields of a job that a client may send back, and that change nothing."""
    described = {*get_type_hints(JobOptions), "schedule", "handler"}
    return [name for name in fields_of_jobs() if name not in described]
