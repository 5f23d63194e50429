"""``millpond check``: the verdict on each query of one or many files."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from millpond.cli.command import Command, flatten, has_colours, print_error, print_json, text_width
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
# In the order of the totals; "known" is a query of the baseline, whatever its outcome.
_COLOURS = {"bounded": "1;32", "unbounded": "1;31", "undetermined": "1;33", "known": "2", "error": "1;31"}
_LEAST_ROOM = 15  # cells; where there are fewer, the summary leaves out the text of queries


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
    parser.add_argument(
        "--catalog",
        metavar="FILE",
        help="CREATE statements that all files share, such as the streams of dbt's models",
    )
    parser.add_argument("--quiet", action="store_true", help="print only what fails")


def _run(arguments: argparse.Namespace) -> ExitCode:
    from millpond.cli.baseline import drop_known, read_baseline

    known = read_baseline(arguments.baseline) if arguments.baseline is not None else frozenset()
    files = check_files(arguments.files, arguments.catalog)
    failing = drop_known(files, known)
    for file in files:
        if file.error is not None:
            print_error(file.name, file.error)
    if arguments.format == "text":
        _print_text(files, failing, arguments.quiet)
    elif arguments.format == "json":
        _print_json([_drop_bounded(file) for file in failing] if arguments.quiet else files)
    elif arguments.format == "github":
        _print_github(failing)
    else:
        _print_sarif(failing)
    if any(file.error is not None for file in files):
        return ExitCode.BAD_INPUT
    outcomes = {verdict.outcome for file in failing for verdict in file.verdicts}
    return next((code for outcome, code in _WORST_FIRST.items() if outcome in outcomes), ExitCode.OK)


def _drop_bounded(file: CheckedFile) -> CheckedFile:
    verdicts = tuple(verdict for verdict in file.verdicts if verdict.outcome != "bounded")
    return CheckedFile(file.name, verdicts, file.error)


# --- formats ---------------------------------------------------------------------------------------


def _print_json(files: Sequence[CheckedFile]) -> None:
    has_several = len(files) > 1
    objects: list[Any] = []
    for file in files:
        named = {"file": file.name} if has_several else {}
        objects += [named | verdict.to_json() for verdict in file.verdicts]
        if file.error is not None and has_several:
            objects.append(named | {"error": str(file.error)})
    if objects or has_several:
        print_json(objects[0] if len(objects) == 1 and not has_several else objects)


def _print_github(files: Sequence[CheckedFile]) -> None:
    from millpond.cli.annotations import render_github

    if text := render_github(files):
        print(text)


def _print_sarif(files: Sequence[CheckedFile]) -> None:
    from millpond.cli.annotations import render_sarif

    print_json(render_sarif(files))


def _print_text(files: Sequence[CheckedFile], failing: Sequence[CheckedFile], quiet: bool) -> None:
    """Explain each query of a single file; of several files, or if quiet, those that fail, and summarise."""
    fails = {id(verdict) for file in failing for verdict in file.verdicts}
    if len(files) == 1 and not quiet:
        texts = _describe(files[0].verdicts, fails)
        print("\n\n".join(texts) + "\n" * bool(texts), end="")
        return
    for file in failing:
        for verdict in file.verdicts:
            if verdict.outcome != "bounded":
                print(f"{_find_place(file, verdict)}\n{_colour(verdict)}\n")
    if lines := _summarise(files, fails, quiet):
        print("\n".join(lines))


def _describe(verdicts: Sequence[Verdict], fails: Collection[int]) -> list[str]:
    """The explanation of each verdict, headed by the query if there are several."""
    texts = []
    for number, verdict in enumerate(verdicts, start=1):
        text = _colour(verdict)
        if len(verdicts) > 1:
            query = textwrap.wrap(
                f"{number}. {flatten(verdict.query_text)}", text_width(), subsequent_indent="   "
            )
            text = "\n".join([*query, text])
        if id(verdict) not in fails and verdict.outcome != "bounded":
            text += "\n  known: the baseline has this query"
        texts.append(text)
    return texts


def _summarise(files: Sequence[CheckedFile], fails: Collection[int], quiet: bool) -> list[str]:
    """A line for each query: its outcome, where it stands, and its beginning; then the totals.

    If quiet, only what fails has a line, and there is nothing if nothing fails.
    """
    rows = []
    for file in files:
        if file.error is not None:
            rows.append(("error", file.name, str(file.error)))
        for verdict in file.verdicts:
            outcome = verdict.outcome if id(verdict) in fails or verdict.outcome == "bounded" else "known"
            rows.append((outcome, _find_place(file, verdict), verdict.query_text))
    shown_rows = [row for row in rows if row[0] not in ("bounded", "known")] if quiet else rows
    name_width = max((len(name) for _, name, _ in shown_rows), default=0)
    room = shutil.get_terminal_size().columns - name_width - 16
    lines = []
    for outcome, name, text in shown_rows:
        shown = f"{name:<{name_width}}  {one_line(text, room)}" if room >= _LEAST_ROOM else name
        lines.append(f"{_paint(outcome, f'{outcome:<12}')}  {shown}")
    counts = Counter(outcome for outcome, _, _ in rows)
    totals = ", ".join(f"{counts[each]} {each}" for each in _COLOURS if counts[each] and each != "error")
    errors = f"; {counts['error']} not checked" if counts["error"] else ""
    files_text = "1 file" if len(files) == 1 else f"{len(files)} files"
    return [*lines, f"{files_text}: {totals or 'no query'}{errors}"] if shown_rows else []


def _find_place(file: CheckedFile, verdict: Verdict) -> str:
    position = verdict.query.position
    return file.name if position is None else f"{file.name}:{position.line}"


def _colour(verdict: Verdict) -> str:
    text = verdict.explain(text_width())
    return f"{_paint(verdict.outcome, verdict.outcome)}{text.removeprefix(verdict.outcome)}"


def _paint(outcome: str, text: str) -> str:
    return f"\x1b[{_COLOURS[outcome]}m{text}\x1b[0m" if has_colours() else text


CHECK = Command(
    "Decide for each query of the files whether it is bounded, and explain why.",
    _add_arguments,
    _run,
    examples=(
        ("check orders.sql", "one file"),
        ("check 'queries/**/*.sql'", "every file below queries, with a summary"),
        ("check --format github *.sql", "annotations in a GitHub workflow"),
        ("check --baseline known.json *.sql", "fail only on new queries"),
        ("check --catalog streams.sql models/*.sql", "models of dbt over declared streams"),
    ),
)
