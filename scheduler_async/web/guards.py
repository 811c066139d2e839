"""What every request must pass, and the headers that every answer has. Pure, except for reading a body."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect

from scheduler_async.errors import InvalidJobError, quoted
from scheduler_async.web.access import bearer_of
from scheduler_async.web.errors import BadRequestError, BodyTooLargeError, CrossSiteError, WrongHostError

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})

LARGEST_BODY = 64 * 1024  # bytes

HEADERS: Mapping[str, str] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""The headers of every answer."""

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def hosts_of(hosts: Collection[str] | None) -> frozenset[str] | None:
    """Return the argument *hosts* of a page as it is compared. None allows every host."""
    if hosts is None:
        return None
    if isinstance(hosts, str) or not all(isinstance(host, str) and host.strip() for host in hosts):
        raise InvalidJobError(
            f'hosts must be a list of names such as ["jobs.example.com"], or None, not {quoted(hosts)}.', "hosts"
        )
    return frozenset(_name_of_host(host) for host in hosts)


def check_host(headers: Mapping[str, str], hosts: frozenset[str] | None) -> None:
    """Raise `WrongHostError` unless the request is for one of *hosts*.

    A page of another site could otherwise reach this one by a name that resolves to it (DNS rebinding).
    """
    if hosts is not None and _name_of_host(headers.get("host", "")) not in hosts:
        raise WrongHostError(
            f"This page is not at the host {quoted(headers.get('host', ''))}.",
            "Allow the name: hosts=[…] of page(), or --allow-host.",
        )


def check_same_site(method: str, headers: Mapping[str, str]) -> None:
    """Raise `CrossSiteError` if a page of another site may have made a browser send this request (CSRF)."""
    if method in SAFE_METHODS:
        return
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        is_own = site.strip().lower() in ("same-origin", "none")
    elif origin is not None:
        is_own = _is_at(origin, headers.get("host", ""))
    else:  # no browser, or a very old one: it sends cookies along, but no token
        is_own = bearer_of(headers) is not None
    if not is_own:
        raise CrossSiteError(
            "The request does not come from this page.",
            "Programs send a bearer token in the header Authorization, or the header Sec-Fetch-Site: none.",
        )


async def read_body(chunks: AsyncIterator[bytes], headers: Mapping[str, str]) -> bytes:
    """Return the body of a request. Raise `BodyTooLargeError` before more than 64 KiB of it are kept."""
    announced = headers.get("content-length", "0")
    if not announced.isdecimal() or not announced.isascii():
        raise BadRequestError("The header Content-Length is not a number.")
    too_large = BodyTooLargeError(f"The body of a request must be at most {LARGEST_BODY // 1024} KiB.", "Shorten it.")
    if len(announced) > 20 or int(announced) > LARGEST_BODY:
        raise too_large
    body = bytearray()
    try:
        async for chunk in chunks:
            body += chunk
            if len(body) > LARGEST_BODY:
                raise too_large
    except ClientDisconnect:
        raise BadRequestError("The request ended before its body was complete.") from None
    return bytes(body)


def _name_of_host(host: str) -> str:
    """Return the name in a Host header, without its port, brackets and final dot."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, colon, port = host.rpartition(":")
    if colon and ":" not in name and (port.isdecimal() or not port):
        host = name
    return host.rstrip(".")


def _is_at(origin: str, host: str) -> bool:
    """Return whether an Origin header names the host and port of a Host header."""
    try:
        parts = urlsplit(origin.strip().lower())
    except ValueError:
        return False
    usual = {"http": ":80", "https": ":443"}.get(parts.scheme)
    if usual is None or not parts.netloc:
        return False
    return parts.netloc.removesuffix(usual) == host.strip().lower().removesuffix(usual)
