"""``millpond check``: the verdict on each query of one or many files."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from millpond.cli.command import Command, flatten, print_error, print_json
from millpond.cli.exits import ExitCode
from millpond.cli.files import CheckedFile, check_files
from millpond.errors import one_line

if TYPE_CHECKING:
    from millpond.analysis.verdict import Verdict

FORMATS = ("text", "json", "github", "sarif")
# The exit code is that of the first of these that a query has; a file that cannot be checked comes before.
_WORST_FIRST = {
    "unbounded": ExitCode.UNBOUNDED,
    "undetermined": ExitCode.UNDETERMINED,
    "bounded": ExitCode.OK,
}
_COLOURS = {"bounded": "1;32", "unbounded": "1;31", "undetermined": "1;33", "error": "1;31"}


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        metavar="FILE.sql",
        nargs="+",
        help="a file with CREATE statements and the queries to check, a pattern such as 'queries/**/*.sql', "
        "or - for standard input",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="text (default); json: one object, or a list for several queries; github: annotations of a "
        "workflow; sarif: a SARIF 2.1.0 log",
    )
    parser.add_argument("--json", action="store_const", const="json", dest="format", help="--format json")
    parser.add_argument(
        "--baseline",
        metavar="FILE",
        help="only queries fail that are not in this file, the output of an earlier --format json",
    )
    parser.add_argument("--quiet", action="store_true", help="print only what fails")


def _run(arguments: argparse.Namespace) -> ExitCode:
    files = check_files(arguments.files)
    failing = files
    if arguments.baseline is not None:
        from millpond.cli.baseline import drop_known, read_baseline

        failing = drop_known(files, read_baseline(arguments.baseline))
    for file in files:
        if file.error is not None:
            print_error(file.name, file.error)
    shown = [_drop_bounded(file) for file in failing] if arguments.quiet else files
    _PRINTERS[arguments.format](shown if arguments.format in ("text", "json") else failing, len(files) > 1)
    if any(file.error is not None for file in files):
        return ExitCode.BAD_INPUT
    outcomes = {verdict.outcome for file in failing for verdict in file.verdicts}
    return next((code for outcome, code in _WORST_FIRST.items() if outcome in outcomes), ExitCode.OK)


def _drop_bounded(file: CheckedFile) -> CheckedFile:
    verdicts = tuple(verdict for verdict in file.verdicts if verdict.outcome != "bounded")
    return CheckedFile(file.name, verdicts, file.error)


# --- formats ---------------------------------------------------------------------------------------


def _print_json(files: Sequence[CheckedFile], has_several: bool) -> None:
    objects: list[Any] = []
    for file in files:
        named = {"file": file.name} if has_several else {}
        objects += [named | verdict.to_json() for verdict in file.verdicts]
        if file.error is not None and has_several:
            objects.append(named | {"error": str(file.error)})
    if objects or has_several:
        print_json(objects[0] if len(objects) == 1 and not has_several else objects)


def _print_github(files: Sequence[CheckedFile], has_several: bool) -> None:
    from millpond.cli.annotations import render_github

    if text := render_github(files):
        print(text)


def _print_sarif(files: Sequence[CheckedFile], has_several: bool) -> None:
    from millpond.cli.annotations import render_sarif

    print_json(render_sarif(files))


def _print_text(files: Sequence[CheckedFile], has_several: bool) -> None:
    if not has_several:
        texts = _describe(files[0].verdicts)
        print("\n\n".join(texts) + "\n" * bool(texts), end="")
        return
    for file in files:
        for verdict in file.verdicts:
            if verdict.outcome != "bounded":
                print(f"{_find_place(file, verdict)}\n{_colour(verdict)}\n")
    print("\n".join(_summarise(files)))


_PRINTERS = {"text": _print_text, "json": _print_json, "github": _print_github, "sarif": _print_sarif}


def _describe(verdicts: Sequence[Verdict]) -> list[str]:
    """The explanation of each verdict, headed by the query if there are several."""
    texts = []
    for number, verdict in enumerate(verdicts, start=1):
        text = _colour(verdict)
        if len(verdicts) > 1:
            text = f"{number}. {flatten(verdict.query_text)}\n{text}"
        texts.append(text)
    return texts


def _summarise(files: Sequence[CheckedFile]) -> list[str]:
    """A line for each query: its outcome, where it stands, and its beginning; then the totals."""
    rows = []
    for file in files:
        if file.error is not None:
            rows.append(("error", file.name, str(file.error)))
        rows += [(v.outcome, _find_place(file, v), v.query_text) for v in file.verdicts]
    columns = shutil.get_terminal_size().columns
    name_width = max((len(name) for _, name, _ in rows), default=0)
    text_width = max(columns - name_width - 16, 20)
    lines = [
        f"{_paint(outcome, f'{outcome:<12}')}  {name:<{name_width}}  {one_line(text, text_width)}"
        for outcome, name, text in rows
    ]
    counts = Counter(outcome for outcome, _, _ in rows)
    totals = ", ".join(f"{counts[each]} {each}" for each in _COLOURS if counts[each] and each != "error")
    errors = f"; {counts['error']} not checked" if counts["error"] else ""
    return [*lines, f"{len(files)} files: {totals or 'no query'}{errors}"]


def _find_place(file: CheckedFile, verdict: Verdict) -> str:
    position = verdict.query.position
    return file.name if position is None else f"{file.name}:{position.line}"


def _colour(verdict: Verdict) -> str:
    text = verdict.explain()
    return f"{_paint(verdict.outcome, verdict.outcome)}{text.removeprefix(verdict.outcome)}"


def _paint(outcome: str, text: str) -> str:
    return f"\x1b[{_COLOURS[outcome]}m{text}\x1b[0m" if _has_colours() else text


def _has_colours() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


CHECK = Command(
    "Decide for each query of the files whether it is bounded, and explain why.",
    _add_arguments,
    _run,
    examples=(
        ("check orders.sql", "one file"),
        ("check 'queries/**/*.sql'", "every file below queries, with a summary"),
        ("check --format github *.sql", "annotations in a GitHub workflow"),
        ("check --baseline known.json *.sql", "fail only on new queries"),
    ),
)
