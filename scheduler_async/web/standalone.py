"""The page on a server of its own, for a store whose schedulers run elsewhere. It never becomes one itself."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from scheduler_async.errors import SchedulerError
from scheduler_async.signals import told_of_signals
from scheduler_async.web.access import Access, everyone
from scheduler_async.web.application import PageApplication
from scheduler_async.web.guards import LOOPBACK
from scheduler_async.web.login_link import LoginLink

if TYPE_CHECKING:
    from scheduler_async.scheduler import Scheduler

ADDRESS = "127.0.0.1"

# How long requests in progress may take after the signal to end.
LAST_REQUESTS = 5  # seconds


async def serve(
    scheduler: Scheduler,
    granted: Access,
    *,
    port: int,
    uds: str | None,
    allowed_hosts: Collection[str],
    announce: Callable[[str, bool], None],
) -> None:
    """Serve the page of *scheduler* until a signal arrives.

    Once the server listens, *announce* is called with its address, and whether the address logs in.
    """
    login = LoginLink(granted) if uds is None else None
    page = PageApplication(
        scheduler,
        # Only its owner can connect to a Unix socket of mode 0600.
        access=everyone(granted.role, who=granted.who, payloads=granted.payloads) if login is None else login,
        hosts=[*LOOPBACK, *allowed_hosts],
        login=login,
        is_standalone=True,
    )
    with _listening(port, uds) as listener:
        address = str(uds) if login is None else f"http://{ADDRESS}:{listener.getsockname()[1]}/{login.link}"
        config = uvicorn.Config(
            page,
            access_log=False,  # it would contain the link
            log_config=None,
            log_level="warning",
            lifespan="off",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=LAST_REQUESTS,
        )
        await _Server(config, page, partial(announce, address, login is not None)).serve(sockets=[listener])


class _Server(uvicorn.Server):
    """A server that lets the program end in order after a signal, and ends the requests that wait for changes."""

    def __init__(self, config: uvicorn.Config, page: PageApplication, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._page, self._announce = page, announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and then say so."""
        await super().startup(sockets)
        self._announce()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take signals, without raising them again at the end."""
        with told_of_signals(self._end):
            yield

    def _end(self) -> None:
        self._page.close()
        self.force_exit = self.should_exit
        self.should_exit = True


@contextmanager
def _listening(port: int, uds: str | None) -> Iterator[socket.socket]:
    """Yield a socket that is bound to *port* of this machine, or to the path *uds*, which only its owner can open."""
    if uds is None:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((ADDRESS, port))
            except OSError as error:
                raise SchedulerError(
                    f"Cannot listen on port {port}: {error.strerror}. Choose another --port."
                ) from None
            yield listener
        return
    _remove_stale(uds)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        before = os.umask(0o177)  # there is no moment at which others could connect
        try:
            listener.bind(uds)
        except OSError as error:
            raise SchedulerError(f"Cannot listen at {uds}: {error.strerror or error}. Choose another --uds.") from None
        finally:
            os.umask(before)
        try:
            yield listener
        finally:
            with suppress(OSError):
                Path(uds).unlink()


def _remove_stale(uds: str) -> None:
    """Remove the socket that a killed server has left at *uds*. Raise `SchedulerError` if anything else is there."""
    try:
        mode = os.lstat(uds).st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(mode):
        raise SchedulerError(f"{uds} exists and is not a socket. Choose another --uds.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(uds)
        except ConnectionRefusedError:
            Path(uds).unlink()
            return
        except OSError as error:
            raise SchedulerError(f"Cannot listen at {uds}: {error.strerror or error}. Choose another --uds.") from None
    raise SchedulerError(f"Another server listens at {uds}. Choose another --uds.")
