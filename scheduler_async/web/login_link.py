"""The login of the standalone page: a link that works once, then a cookie. Other users of the machine have neither."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from scheduler_async.web.access import Access, Asking, is_same

LENGTH = 32  # bytes


class LoginLink:
    """An access rule: the browser that has opened the link gets *granted*."""

    def __init__(self, granted: Access) -> None:
        self._granted = granted
        self._key: str | None = secrets.token_urlsafe(LENGTH)
        self._session = secrets.token_urlsafe(LENGTH)
        # Browsers send a cookie to all ports of a host: two pages must not share one.
        self.cookie = f"scheduler_async_{secrets.token_hex(4)}"

    @property
    def link(self) -> str:
        """The link, below the root of the page."""
        return f"login?key={self._key}"

    def __call__(self, request: Asking) -> Access | None:
        """Return the access of a browser with the cookie."""
        return self._granted if self.has_logged_in(request.cookies) else None

    def has_logged_in(self, cookies: Mapping[str, str]) -> bool:
        """Return whether *cookies* are those of the browser that has opened the link."""
        given = cookies.get(self.cookie)
        return given is not None and is_same(given, self._session)

    def redeem(self, key: str) -> str | None:
        """Return the value of the cookie for the *key* in the link. It works once."""
        if self._key is None or not is_same(key, self._key):
            return None
        self._key = None
        return self._session
