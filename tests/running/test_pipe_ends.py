"""Ends that belong to one process: they are closed whatever happens, and no forked child keeps them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from scheduler_async.running.pipe_ends import Ends
from tests.cast import PATIENCE

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot fork")


def is_open(end: int) -> bool:
    try:
        os.fstat(end)
    except OSError:
        return False
    return True


def test_what_a_block_has_opened_is_closed_when_it_fails() -> None:
    opened: list[int] = []

    def open_and_fail() -> None:
        with Ends() as ends:
            opened.extend([*ends.pipe(), *ends.sockets(1)])
            ends.close(opened[0])
            assert [is_open(end) for end in opened] == [False, True, True, True]
            raise KeyError

    with pytest.raises(KeyError):
        open_and_fail()

    assert [is_open(end) for end in opened] == [False] * 4


FORKS = """
    import os
    from scheduler_async.running.pipe_ends import Ends

    with Ends() as ends:
        reader, writer = ends.pipe()
        child = os.fork()
        if child == 0:
            taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(2)]
            assert taken == [reader, writer], "the copies are closed"
    if child == 0:
        for number in taken:
            os.fstat(number)  # not closed by the end of a block that never opened it
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


def test_a_forked_child_has_no_copies_and_may_use_their_numbers() -> None:
    program = [sys.executable, "-c", textwrap.dedent(FORKS)]

    done = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE, check=False)

    assert (done.returncode, done.stderr) == (0, "")
