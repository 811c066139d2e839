"""Names of jobs, namespaces, handlers and groups: validation, and the unique key of a job."""

from __future__ import annotations

from typing import NoReturn

from scheduler_async.errors import InvalidJobError, quoted

MAX_NAME_LENGTH = 200


def key_of(namespace: str, id: str) -> str:
    """Return the unique name of a job in its store: "namespace/id".

    Only a namespace that contains "/" is written differently, because "a/b/c" already names the job "b/c" in "a". Its
    key begins with "/", and in the namespace "/" becomes "%2F" and "%" becomes "%25". The job "c" in "a/b" is
    "/a%2Fb/c".
    """
    if "/" not in namespace:
        return f"{namespace}/{id}"
    return f"/{namespace.replace('%', '%25').replace('/', '%2F')}/{id}"


def check_name(value: object, what: str) -> str:
    """Return *value* if it is a valid name. *what* names the field in the error."""
    if not isinstance(value, str):
        refuse(what, f"must be a string, not {quoted(value)}")
    if not value or value != value.strip():
        refuse(what, f"must be a non-empty string without leading or trailing whitespace, not {quoted(value)}")
    if len(value) > MAX_NAME_LENGTH:
        refuse(what, f"must have at most {MAX_NAME_LENGTH} characters, not {quoted(value)}")
    if not value.isprintable():
        refuse(what, f"must contain only printable characters; {quoted(value)} contains others")
    return value


def refuse(what: str, problem: str) -> NoReturn:
    """Raise `InvalidJobError` for the field *what*. *problem* continues the sentence: "must be …"."""
    raise InvalidJobError(f"{what} {problem}.", what)
