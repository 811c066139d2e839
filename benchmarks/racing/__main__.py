"""One measurement of one contestant, in this process: its figures are the last line of the output, as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from importlib import import_module

from racing import courses


def main() -> None:
    contestant, course, arguments = sys.argv[1:]
    module = import_module(f"racing.{contestant}")
    given = json.loads(arguments)
    if hasattr(module, course):  # the bare limits schedule nothing: they have courses of their own
        figures = asyncio.run(getattr(module, course)(**given))
    else:
        figures = asyncio.run(getattr(courses, course)(module.Contestant(), **given))
    print(json.dumps(figures))


main()
