"""The server of the tests leaves no directory behind, even if its supervisor was killed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.postgres_server import PREFIX, lock, sweep

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="it has other locks")


def test_the_next_server_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    left, used, new, other = (tmp_path / name for name in (f"{PREFIX}left", f"{PREFIX}used", f"{PREFIX}new", "other"))
    for directory in (left, used, new, other):
        (directory / "data").mkdir(parents=True)
        if directory != new:
            os.utime(directory, (0, 0))
    descriptor = lock(used)

    sweep(tmp_path)

    os.close(descriptor)
    assert set(tmp_path.iterdir()) == {used, new, other}
