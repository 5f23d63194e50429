"""``millpond studio``: a page on this machine to write SQL and see verdict, picture and repairs."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import webbrowser

from millpond.cli.command import Command
from millpond.cli.exits import ExitCode

DEFAULT_PORT = 7654  # fixed, so that links to queries stay valid
_MAX_PORT = 65_535


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port",
        metavar="N",
        type=_parse_port,
        default=DEFAULT_PORT,
        help=f"the port of the page (default {DEFAULT_PORT}); 0 for any free one",
    )
    parser.add_argument("--no-browser", action="store_true", help="print the address, but open no browser")


def _parse_port(text: str) -> int:
    if not text.isdecimal() or int(text) > _MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; give a number from 0 to {_MAX_PORT}")
    return int(text)


def _run(arguments: argparse.Namespace) -> ExitCode:
    from millpond.studio.server import serve

    def announce(address: str) -> None:
        print(f"Millpond studio: {address}  (Ctrl-C ends it)", flush=True)
        if not arguments.no_browser and _has_desktop():
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    try:
        serve(arguments.port, announce)
    except KeyboardInterrupt:
        print()  # after the ^C that the terminal shows
    return ExitCode.OK


def _has_desktop() -> bool:
    """Whether a browser would open in a window; one in the terminal would hide what is printed."""
    if sys.platform in ("win32", "darwin"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"))


STUDIO = Command(
    "Open a page on this machine to write SQL and see verdict, picture and repairs as you type.",
    _add_arguments,
    _run,
    examples=(
        ("studio", "open the page in the browser"),
        ("studio --port 0 --no-browser", "print the address on a free port"),
    ),
)
