"""A page in a real browser, which records what it reports on the console and what it requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Dialog, Page


@dataclass
class OpenPage:
    """A page, with the errors that it reported and the addresses that it requested."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def start_recording(self) -> None:
        """Record from now on; call it before the page is loaded."""
        self.page.on("console", self._record_message)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", self._record_dialog)
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _record_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def _record_dialog(self, dialog: Dialog) -> None:
        self.errors.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def find_violations(self) -> list[str]:
        """The serious and critical violations of the rules of accessibility that axe finds."""
        from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

        found: list[dict[str, Any]] = Axe().run(self.page).response["violations"]
        return [
            f"{each['id']}: {each['help']}: {[node['html'] for node in each['nodes']]}"
            for each in found
            if each["impact"] in ("serious", "critical")
        ]

    def scrolls_sideways(self) -> bool:
        """Whether the page is wider than the window."""
        root = "document.documentElement"
        return bool(self.page.evaluate(f"{root}.scrollWidth > {root}.clientWidth"))


# What the fixture ``open_page`` is: open_page(address, width=1200, scheme="light").
OpenInBrowser = Callable[..., OpenPage]
