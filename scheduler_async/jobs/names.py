"""Names of jobs, namespaces, handlers and groups: which are valid, and the key of a job among all jobs."""

from __future__ import annotations

from typing import NoReturn

from scheduler_async.errors import InvalidJobError, quoted

MAX_NAME_LENGTH = 200


def key_of(namespace: str, id: str) -> str:
    """Return the name of a job among all jobs: "namespace/id". No two jobs share one.

    Only a namespace that contains "/" is written differently, since "a/b/c" already names the job "b/c" of "a": the key
    begins with "/", and in the namespace "/" becomes "%2F" and "%" becomes "%25". The job "c" of "a/b" is "/a%2Fb/c".
    """
    if "/" not in namespace:
        return f"{namespace}/{id}"
    return f"/{namespace.replace('%', '%25').replace('/', '%2F')}/{id}"


def check_name(value: object, what: str) -> str:
    """Return *value* if it is a valid name; *what* says in the error which name it is."""
    if not isinstance(value, str):
        refuse(what, f"must be a string, not {quoted(value)}")
    if not value or value != value.strip():
        refuse(what, f"must be a string without whitespace around it, and not empty; {quoted(value)} is not")
    if len(value) > MAX_NAME_LENGTH:
        refuse(what, f"must have at most {MAX_NAME_LENGTH} characters; {quoted(value)} has more")
    if not value.isprintable():
        refuse(what, f"must have printable characters only; {quoted(value)} has others")
    return value


def refuse(what: str, problem: str) -> NoReturn:
    """Raise `InvalidJobError` for the field *what*; *problem* continues the sentence, such as "must be …"."""
    raise InvalidJobError(f"The {what} of a job {problem}.", what)
