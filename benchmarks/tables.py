"""Markdown tables of results, each under a line that says when, where and on which commit it was measured."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parent.parent


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a Markdown table and where it comes from."""
    print(f"\n{describe_measurement()}\n")
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")


def describe_measurement() -> str:
    """Return the line above a table: date, commit, machine and versions."""
    libraries = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "duckdb", "numpy"))
    machine = f"{os.cpu_count()} cores of {read_processor()}, {read_memory()}"
    python = platform.python_version()
    return f"*Measured {date.today()} at {read_commit()} on {machine}; Python {python}, {libraries}.*"


def read_commit() -> str:
    """Return the commit that is checked out, and whether files differ from it."""

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    commit = git("rev-parse", "--short", "HEAD")
    changed = " with local changes" if git("status", "--porcelain", "--untracked-files=no") else ""
    return f"commit {commit}{changed}" if commit else "an unknown commit"


def read_processor() -> str:
    """Return the processor's name as Linux gives it, or its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def read_memory() -> str:
    """Return the size of the main memory."""
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return "memory unknown"
    return f"{size / 2**30:.0f} GiB"
