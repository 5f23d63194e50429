"""A real browser for the tests of pages; without one (Chromium or Chrome on the path) they are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from tests.support.browser import OpenInBrowser, OpenPage

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The browser, started once for all tests of a process."""
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        pytest.skip("there is no browser")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=list(_OPTIONS))
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenInBrowser]:
    """Open an address or a file: ``open_page(address, width=1200, scheme="light")``."""
    contexts = []

    def open_it(
        address: str | Path, width: int = 1200, scheme: Literal["light", "dark"] = "light"
    ) -> OpenPage:
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        contexts.append(context)
        opened = OpenPage(context.new_page())
        opened.start_recording()
        opened.page.goto(address.as_uri() if isinstance(address, Path) else address)
        return opened

    yield open_it
    for context in contexts:
        context.close()
