"""The errors of the page itself. Each has the status with which it is answered.

    WebError                      .status .sentence .remedy .field
    ├── BadRequestError           400  the request cannot be read
    ├── NoAccessError             401  the access rule does not know the visitor
    ├── ForbiddenError            403  the role of the visitor does not allow it
    ├── CrossSiteError            403  another site made the browser send it
    ├── PageNotFoundError         404
    ├── MethodNotAllowedError     405  .method .allowed
    ├── RevisionError             412  the job exists although it must not, or the other way round
    ├── BodyTooLargeError         413
    ├── ContentTypeError          415
    ├── WrongHostError            421
    ├── ParameterError            422
    ├── InternalError             500  a bug; the log has its traceback
    └── TooManyWaitingError       503

`problems` gives the errors of the scheduler their statuses.
"""

from __future__ import annotations

from scheduler_async.errors import SchedulerError


class WebError(SchedulerError):
    """A request that the page refuses."""

    status = 400

    def __init__(self, sentence: str, remedy: str | None = None, field: str | None = None) -> None:
        super().__init__(sentence if remedy is None else f"{sentence} {remedy}")
        self.sentence, self.remedy, self.field = sentence, remedy, field

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.sentence, self.remedy, self.field)


class BadRequestError(WebError):
    """The request cannot be read."""


class NoAccessError(WebError):
    """The access rule does not know the visitor."""

    status = 401


class ForbiddenError(WebError):
    """The role of the visitor does not allow this."""

    status = 403


class CrossSiteError(WebError):
    """A page of another site may have sent the request."""

    status = 403


class PageNotFoundError(WebError):
    """Nothing has this address."""

    status = 404


class MethodNotAllowedError(WebError):
    """The address exists, and does not take this method."""

    status = 405

    def __init__(self, method: str, allowed: tuple[str, ...]) -> None:
        super().__init__(f"This address does not take {method}.", f"Use {' or '.join(allowed)}.")
        self.method, self.allowed = method, allowed

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.method, self.allowed)


class RevisionError(WebError):
    """The job was edited since the visitor read it, or exists although it must not."""

    status = 412


class BodyTooLargeError(WebError):
    """The body of the request is larger than the page reads."""

    status = 413


class ContentTypeError(WebError):
    """The body has another type than the address takes."""

    status = 415


class WrongHostError(WebError):
    """The request is for another host."""

    status = 421


class ParameterError(WebError):
    """A parameter has a value that is not possible; *field* names it."""

    status = 422


class TooManyWaitingError(WebError):
    """As many requests wait for changes as may."""

    status = 503


class InternalError(WebError):
    """A bug. Visitors get this instead of it; the log has the traceback."""

    status = 500

    def __init__(self) -> None:
        super().__init__("The page failed to answer.", "The log of the program says why.")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), ()
