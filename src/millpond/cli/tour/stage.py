"""Where the tour is shown: a terminal, on which it redraws what changes, or plain lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from millpond.cli.command import print_page
from millpond.cli.tour.script import Size

_WIDEST = 100


class Stage:
    """Prints pages one after the other.  Plain output has no control characters."""

    def __init__(self, console: Console) -> None:
        console.width = min(console.width, _WIDEST)
        self._console = console
        self.is_live = console.is_terminal and not console.is_dumb_terminal

    @property
    def width(self) -> int:
        return self._console.width

    @property
    def ascii_only(self) -> bool:
        return self._console.options.ascii_only

    def show(self, *pages: RenderableType) -> None:
        for page in pages:
            print_page(self._console, page)

    def pause(self, seconds: float) -> None:
        """Leave time to read; a log needs none."""
        if self.is_live:
            time.sleep(seconds)

    @contextmanager
    def wait(self, words: str) -> Iterator[None]:
        """Tell what is waited for, and on a terminal for how long."""
        if not self.is_live:
            self.show(Text(f"{words} …"))
            yield
            return
        began = time.monotonic()

        def draw() -> Text:
            return Text(f"{words} … {time.monotonic() - began:.0f} s", style="dim")

        with Live(
            console=self._console,
            get_renderable=draw,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        ):
            yield

    @contextmanager
    def redraw(self) -> Iterator[Callable[[RenderableType], None]]:
        """A function that replaces what is shown; the last one stays.  Plain output shows only the last."""
        last: list[RenderableType] = []
        if self.is_live:
            with Live(
                console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            ) as live:
                yield lambda page: live.update(page, refresh=True)
            return
        yield lambda page: last.__setitem__(slice(None), [page])
        self.show(*last)

    def reset(self) -> None:
        """Show the cursor again, after an interruption."""
        if self.is_live:
            self._console.show_cursor(True)


@dataclass(frozen=True)
class Tour:
    """Where a tour is shown, how much it reads, and the folder for its queries, some rows and the report."""

    stage: Stage
    size: Size
    folder: Path
