"""Takes the pictures of the page for the guides: `nox -s screenshots`. The store and its clock are always the same."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from scheduler_async.running import watchdog
from tests.web.shop_server import served_shop

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "screenshots"

WIDE = {"width": 1240, "height": 880}
NARROW = {"width": 360, "height": 740}

# The name of each picture, its page, and how it is seen.
PICTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "overview": ("", {"viewport": WIDE}),
    "overview-dark": ("", {"viewport": WIDE, "color_scheme": "dark"}),
    "overview-narrow": ("", {"viewport": NARROW}),
    "jobs": ("jobs", {"viewport": {"width": 1240, "height": 800}}),
    "job": ("jobs/default/prices?at=2026-11-18T09:00", {"viewport": {"width": 1240, "height": 800}}),
    "run": ("runs/failed", {"viewport": {"width": 1240, "height": 700}}),
    "timeline": ("timeline", {"viewport": {"width": 1240, "height": 760}}),
}

# Seconds pass in the browser, and not in the store: what counts must stand still.
# Paths and names of the machine that takes the pictures are no part of them.
STILL = f"""
    document.getElementById('live').textContent = 'live';
    for (let i = 0; i < 9999; i++) clearInterval(i);
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {{
        const text = texts.currentNode;
        const node = /\\S+:\\d+:[0-9a-f]{{8}}/g;
        const told = text.data.replaceAll("{ROOT}", "/srv/shop").replace(node, "web-1:2041:5f3a91c2");
        if (told !== text.data) text.data = told;
    }}
"""


def main() -> None:
    """Take all pictures."""
    logging.disable(logging.CRITICAL)  # the failures of the shop are part of the picture
    watchdog.BLOCKED = 3_600.0  # a slow machine is not
    FOLDER.mkdir(exist_ok=True)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with served_shop() as shop, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, (path, options) in PICTURES.items():
            context = browser.new_context(**options, reduced_motion="reduce", locale="en-GB")
            page = context.new_page()
            page.clock.set_fixed_time(shop.clock.now())
            page.goto(shop.url(path))
            page.locator("#live.on").wait_for()
            page.evaluate(STILL)
            page.screenshot(path=FOLDER / f"{name}.png")
            print(f"{name}.png: {(FOLDER / f'{name}.png').stat().st_size // 1000} kB")
            context.close()
        browser.close()


if __name__ == "__main__":
    main()
