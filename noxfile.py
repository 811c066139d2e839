"""All checks of the project. `nox` runs all of them, and `nox -s tests` runs one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import nox

OLDEST, NEWEST = 11, 15
PYPROJECT = nox.project.load_toml("pyproject.toml")

nox.options.sessions = ["lint", "types", "tests", "coverage"]
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = False  # even with CI set: test the interpreters of this machine


def installer() -> str:
    """Return "uv", which installs in seconds, if it is installed and finds the package registry, or "virtualenv"."""
    if find_spec("uv") is None:
        return "virtualenv"
    command = [sys.executable, "-m", "uv", "pip", "install", "--dry-run", "--reinstall", "--python", sys.executable]
    found = subprocess.run([*command, "iniconfig"], capture_output=True, check=False)
    return "virtualenv" if found.returncode else "uv"


nox.options.default_venv_backend = installer()

# The tests make thousands of small stores. In memory they do not wait for the disk.
MEMORY = Path("/dev/shm")
ENOUGH = 4 * 2**30  # bytes; a whole run takes about one quarter of it
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH:
    os.environ.setdefault("TMPDIR", str(MEMORY))

# The tests start a thousand programs. Without stored bytecode, each of them would compile the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def interpreters() -> list[str]:
    """Return the version of each Python on this machine, from 3.11 on, that starts."""
    found = []
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for minor in range(OLDEST, NEWEST + 1):
        name = f"python3.{minor}"
        places = [shutil.which(name), *sorted(map(str, pyenv.glob(f"3.{minor}.*/bin/{name}")))]
        # A shim on the PATH may belong to a disabled version, so try whether it starts.
        working = [place for place in places if place and starts(place)]
        if working:
            found.append(f"3.{minor}")
            os.environ["PATH"] = os.pathsep.join([str(Path(working[0]).parent), os.environ["PATH"]])
    return found


def starts(python: str) -> bool:
    return subprocess.run([python, "-c", "import ssl, venv"], capture_output=True, check=False).returncode == 0


def group(name: str) -> tuple[str, ...]:
    return tuple(nox.project.dependency_groups(PYPROJECT, name))


@nox.session
def lint(session: nox.Session) -> None:
    """Check the format, and lint."""
    session.install(*group("lint"))
    session.run("ruff", "format", "--check", "--diff", ".")
    session.run("ruff", "check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types strictly."""
    session.install("-e", ".[cli,otel]", *group("types"), *group("benchmarks"), "nox")
    session.run("mypy", "--num-workers", "auto")


PYTHONS = interpreters()

# Three processes for each core, because most tests wait: for a thread, another process, or a server. Each gets a few
# tests at a time: the longest are first in the order, and must not all go to the same process.
IN_PARALLEL = ("-n", str(3 * (os.cpu_count() or 1)), "--maxschedchunk", "2")

# A smoke test of the whole public API, for the Pythons between the oldest and the newest.
SMOKE = [
    *("tests/test_public_api.py", "tests/test_scheduler.py", "tests/test_testing.py", "tests/engine/test_rulings.py"),
    "tests/cli/test_program_rules.py",
]


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run all tests on the oldest Python with branch coverage, and on the newest. Run a smoke test on the others.

    Slow tests run once: on the oldest Python if they add coverage ("once"), otherwise on the newest ("deep"). Property
    tests run on both, with fewer examples on the oldest.
    """
    session.install("-e", ".[cli,otel]", *group("test"))
    is_first, is_last = session.python == PYTHONS[0], session.python == PYTHONS[-1]
    left_out = ["exhaustive"]
    if not is_first:
        left_out.append("(once and not (deep or hypothesis))")
    if not is_last:
        left_out.append("deep")
    files = [] if is_first or is_last else SMOKE
    pytest = ("pytest", *IN_PARALLEL, *session.posargs, "-m", f"not ({' or '.join(left_out)})", *files)
    if is_first and not is_last:
        session.env["HYPOTHESIS_PROFILE"] = "few"
    session.run(*(("coverage", "run", "-m", *pytest) if is_first else pytest))


@nox.session
def browser(session: nox.Session) -> None:
    """Test the page in Chromium. Without a browser, this fails."""
    session.install("-e", ".[cli,otel,web]", *group("test"))
    session.run("pytest", *IN_PARALLEL, "tests/web/test_browser.py", *session.posargs, env={"BROWSER_TESTS": "1"})


@nox.session
def screenshots(session: nox.Session) -> None:
    """Take the pictures of the page in examples/screenshots again. They look the same each time."""
    session.install("-e", ".[cli,otel,web]", *group("test"))
    session.run("python", "-m", "tests.web.screenshots", *session.posargs)


@nox.session
def zones(session: nox.Session) -> None:
    """Test daylight saving time in every zone, with every transition from 2000 to 2037."""
    session.install("-e", ".[cli,otel]", *group("test"))
    session.run("pytest", "-m", "exhaustive", "-n", "auto", "--timeout", "1800", *session.posargs)


@nox.session
def examples(session: nox.Session) -> None:
    """Run every property test with 10,000 examples, except those that set a number of their own."""
    session.install("-e", ".[cli,otel]", *group("test"))
    options = ("-m", "hypothesis", "-n", "auto", "--timeout", "1800")
    session.run("pytest", *options, *session.posargs, env={"HYPOTHESIS_PROFILE": "deep"})


@nox.session
def fuzz(session: nox.Session) -> None:
    """Test that one bad row affects no other, with 5,000 cases on each store, or with `nox -s fuzz -- 500`."""
    session.install("-e", ".[cli,otel]", *group("test"))
    cases = session.posargs[0] if session.posargs else "5000"
    session.run("pytest", "-n", "2", "tests/stores/test_row_fuzz.py", env={"ROW_FUZZ_CASES": cases})


@nox.session
def coverage(session: nox.Session) -> None:
    """Report the branch coverage of the tests."""
    session.install(*group("coverage"))
    session.run("coverage", "combine")
    session.run("coverage", "report")


@nox.session
def benchmarks(session: nox.Session) -> None:
    """Run all benchmarks, or some by name: `nox -s benchmarks -- burst add --quick`."""
    session.install("-e", ".[cli,otel]", *group("benchmarks"))
    scripts = {script.stem: script for script in sorted(Path("benchmarks").glob("[!_]*.py"))}
    chosen = [word for word in session.posargs if word in scripts]
    for name in chosen or scripts:
        session.run("python", str(scripts[name]), *(word for word in session.posargs if word not in chosen))
