"""Each recipe under `examples/` runs, and prints what its docstring says."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.deep

EXAMPLES = Path(__file__).parent.parent / "examples"
# Services go on until they are asked to end: `test_servers` asks them.
RECIPES = sorted(set(EXAMPLES.glob("*.py")) - set(EXAMPLES.glob("*_service.py")))


def expected_output(recipe: Path) -> list[str]:
    """The indented lines at the end of the docstring, if there are any: what the recipe prints."""
    docstring = ast.get_docstring(ast.parse(recipe.read_text(encoding="utf-8"))) or ""
    return [line.strip() for line in docstring.partition("It prints:\n")[2].splitlines() if line.strip()]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_a_recipe_prints_what_it_says(recipe: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(recipe)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
    )

    assert done.stderr == ""
    assert done.returncode == 0
    assert done.stdout
    if expected := expected_output(recipe):
        assert [line.strip() for line in done.stdout.splitlines() if line.strip()] == expected
