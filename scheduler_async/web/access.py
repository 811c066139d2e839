"""Access to the page: what an access rule returns, the table of roles, and the ready-made rules."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from scheduler_async.errors import InvalidJobError, quoted
from scheduler_async.jobs.enums import check_choice
from scheduler_async.jobs.history import Action
from scheduler_async.jobs.names import check_name


class Role(StrEnum):
    """What a visitor may do. Each role includes those before it."""

    LOOK = "look"
    OPERATE = "operate"
    MANAGE = "manage"

    def includes(self, other: Role) -> bool:
        """Return whether this role may do all that *other* may."""
        return _RANKS[self] >= _RANKS[other]


_RANKS = {role: rank for rank, role in enumerate(Role)}

NEEDED: Mapping[Action | None, Role] = MappingProxyType(
    {
        None: Role.LOOK,
        Action.TRIGGER: Role.OPERATE,
        Action.PAUSE: Role.OPERATE,
        Action.RESUME: Role.OPERATE,
        Action.DISABLE: Role.OPERATE,
        Action.CANCEL: Role.OPERATE,
        Action.ADD: Role.MANAGE,
        Action.EDIT: Role.MANAGE,
        Action.REMOVE: Role.MANAGE,
    }
)
"""The role that each action needs; None is to read. Nothing else decides about it."""


@dataclass(frozen=True)
class Access:
    """What a visitor of the page may see and do: the answer of an access rule.

    >>> from scheduler_async.web import Access
    >>> Access("anna", "operate", namespaces=["billing"]).role
    <Role.OPERATE: 'operate'>
    """

    who: str
    """The name of the visitor. `Scheduler.changes` tells it."""
    role: Role | str
    """"look" reads, "operate" also runs, pauses, resumes, disables and cancels, "manage" also adds and edits."""
    namespaces: Collection[str] | None = None
    """The namespaces that the visitor can see. None is all of them."""
    payloads: bool = False
    """Whether the visitor sees payloads, metadata, results, outputs and errors. Secrets in them are masked anyway."""

    def __post_init__(self) -> None:
        check_name(self.who, "who")
        object.__setattr__(self, "role", check_choice(Role, self.role, "role"))
        if isinstance(self.namespaces, str):
            raise InvalidJobError(
                f"namespaces must be a list of names or None, not the text {quoted(self.namespaces)}.", "namespaces"
            )
        if self.namespaces is not None:
            object.__setattr__(self, "namespaces", frozenset(self.namespaces))
        if not isinstance(self.payloads, bool):
            raise InvalidJobError(f"payloads must be True or False, not {quoted(self.payloads)}.", "payloads")

    def may(self, action: Action | None) -> bool:
        """Return whether the visitor may do *action*; None is to read."""
        return Role(self.role).includes(NEEDED[action])

    def sees(self, namespace: str) -> bool:
        """Return whether the visitor can see the jobs of *namespace*."""
        return self.namespaces is None or namespace in self.namespaces


class Client(NamedTuple):
    """The other end of the connection of a request: a visitor, or a proxy."""

    host: str
    port: int


@dataclass(frozen=True)
class Asking:
    """A request, as an access rule sees it."""

    headers: Mapping[str, str]
    """The headers. Upper and lower case do not matter."""
    path: str
    """The path below the place where the page is mounted, such as "/jobs/default/report"."""
    method: str
    client: Client | None
    """None if the server does not know it, as with a Unix socket."""
    cookies: Mapping[str, str] = field(default_factory=dict)
    scope: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What the host application knows: the ASGI scope, with "session" or "user" if it has them.

    For aiohttp, "aiohttp.request" is the request.
    """


Rule: TypeAlias = Callable[[Asking], "Access | Awaitable[Access | None] | None"]
"""Returns the name and the rights of the visitor. None refuses the request with 401."""

BEARER = "bearer "


def bearer_of(headers: Mapping[str, str]) -> str | None:
    """Return the bearer token among *headers*, if there is one."""
    value = headers.get("authorization", "")
    return value[len(BEARER) :].strip() if value[: len(BEARER)].lower() == BEARER else None


def is_same(one: str, other: str) -> bool:
    """Compare two secrets in a time that tells nothing about them."""
    return hmac.compare_digest(one.encode("utf-8", "surrogateescape"), other.encode("utf-8", "surrogateescape"))


def token(
    secret: str,
    role: Role | str = Role.MANAGE,
    *,
    who: str = "token",
    namespaces: Collection[str] | None = None,
    payloads: bool = False,
) -> Rule:
    """Let in requests that send *secret* as a bearer token: `Authorization: Bearer …`, for programs.

    >>> from scheduler_async import Scheduler
    >>> from scheduler_async.web import token
    >>> page = Scheduler(":memory:").page(access=token("correct-horse-battery", "operate"))
    """
    if not isinstance(secret, str) or not secret.strip():  # an empty variable of the environment must not open the page
        raise InvalidJobError(f"The token must be a string that is hard to guess, not {quoted(secret)}.", "token")
    granted = Access(who, role, namespaces, payloads)

    def by_token(request: Asking) -> Access | None:
        given = bearer_of(request.headers)
        return granted if given is not None and is_same(given, secret) else None

    return by_token


def everyone(
    role: Role | str,
    *,
    who: str = "everyone",
    namespaces: Collection[str] | None = None,
    payloads: bool = False,
) -> Rule:
    """Let in everyone who can reach the page, with *role*. Use it behind a login, or in a network that you trust.

    >>> from scheduler_async import Scheduler
    >>> from scheduler_async.web import everyone
    >>> page = Scheduler(":memory:").page(access=everyone("look"))
    """
    granted = Access(who, role, namespaces, payloads)
    return lambda _request: granted


HOW_TO_GIVE_ACCESS = (
    "page() needs access=…, a function that says who may do what. Write "
    'page(access=token("…", "operate")) or page(access=everyone("look")), both from scheduler_async.web, or pass your '
    "own: it takes a request with headers, path, method and client, and returns "
    'Access("anna", "operate") or None.'
)


def check_rule(access: object) -> None:
    """Raise `InvalidJobError` unless *access* is a rule that says who may do what."""
    if access is None:
        raise InvalidJobError(HOW_TO_GIVE_ACCESS, "access")
    if not callable(access) or isinstance(access, type):
        raise InvalidJobError(f"access must be a function, not {quoted(access)}. {HOW_TO_GIVE_ACCESS}", "access")
