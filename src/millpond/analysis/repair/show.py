"""Shows a repair: the lines of the text that it changes, and what the changed query keeps."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from millpond.analysis.explain import describe_bound
from millpond.analysis.repair.model import Edit, Meaning, Repair

# The characters that are shown of a long line: at its start, and on both sides of each change.
_START, _AROUND = 28, 20
_LEAST = 24  # left out at once
_INDENT = "    "
# What a line is not broken in: a constant with the comment that names it, and the value of a property.
_TOGETHER = re.compile(r" /\* \w+ \*/| = '")


@dataclass(frozen=True)
class ChangedLine:
    """A line of the text before (``removed``) or after the repair, and the pieces of it that differ.

    ``number`` counts the lines of the text before the repair from 1; ``marked`` are ranges of the line.
    """

    number: int
    text: str
    removed: bool
    marked: tuple[tuple[int, int], ...]


def list_changed_lines(text: str, edits: Sequence[Edit]) -> Iterator[ChangedLine]:
    """The lines that edits change, each first as it is and then as it becomes.

    A line to which something is only added is listed once.

    >>> for line in list_changed_lines("SELECT a\\nFROM s", (Edit(7, 8, "b"), Edit(15, 15, " WHERE b = 1"))):
    ...     print("-" if line.removed else "+", line.text, line.marked)
    - SELECT a ((7, 8),)
    + SELECT b ((7, 8),)
    + FROM s WHERE b = 1 ((6, 18),)
    """

    for (start, end), own in _group_by_lines(text, edits):
        number = text.count("\n", 0, start) + 1
        before: list[tuple[str, bool]] = []
        after: list[tuple[str, bool]] = []
        at = start
        for edit in own:
            kept = text[at : edit.start]
            before += [(kept, False), (text[edit.start : edit.end], True)]
            after += [(kept, False), (edit.text, True)]
            at = edit.end
        rest = (text[at:end], False)
        removed = _make_lines([*before, rest], number, removed=True)
        if any(text for text, is_removed in before if is_removed):
            yield from removed
        yield from _make_lines([*after, rest], number, removed=False)


def render_repair(
    number: int,
    repair: Repair,
    text: str,
    width: int,
    paint: Callable[[ChangedLine], str] = lambda line: line.text,
) -> list[str]:
    """A repair as lines: its title, its effect, and the lines that it changes; long ones are shortened.

    ``paint`` renders a changed line, for example in colour.
    """
    start = f"{number}. "
    indent = " " * len(start)
    changed = list(list_changed_lines(text, repair.edits))
    digits = len(str(changed[-1].number)) if changed else 0
    lines = [
        *textwrap.wrap(repair.title, width, initial_indent=start, subsequent_indent=indent),
        *textwrap.wrap(describe_effect(repair), width, initial_indent=indent, subsequent_indent=indent),
    ]
    for line in changed:
        sign = "-" if line.removed else "+"
        for index, part in enumerate(fit_line(line, width - len(indent) - digits - 3)):
            shown = line.number if index == 0 else ""
            lines.append(f"{indent}{shown:>{digits}} {sign} {paint(part)}")
    return lines


def fit_line(line: ChangedLine, width: int) -> list[ChangedLine]:
    """The line in parts that are as wide as that: what is far from the changes is left out of a long one.

    >>> columns = ", ".join("abcdefghijklmnopqrstuvwxyz")
    >>> line = ChangedLine(1, f"SELECT {columns} FROM s, t", False, ((90, 93),))
    >>> [(part.text, part.marked) for part in fit_line(line, 60)]
    [('SELECT a, b, c, d, e, f, g, h, … v, w, x, y, z FROM s, t', ((53, 56),))]
    """
    if len(line.text) <= width:
        return [line]
    marks = [any(first <= at < end for first, end in line.marked) for at in range(len(line.text))]
    text, marks = _leave_out(line, marks)
    parts: list[ChangedLine] = []
    while text.strip(" …"):
        cut = len(text)
        if cut > width:
            spaced = _TOGETHER.sub(lambda found: "_" * len(found.group()), text)
            cut = spaced.rfind(" ", len(_INDENT) + 1, width + 1) + 1 or spaced.find(" ", width) + 1 or cut
        parts.append(replace(line, text=text[:cut].rstrip(), marked=_list_marked(marks[:cut])))
        text, marks = text[cut:], marks[cut:]
        if text:
            text, marks = _INDENT + text, [False] * len(_INDENT) + marks
    return parts


def _leave_out(line: ChangedLine, marks: list[bool]) -> tuple[str, list[bool]]:
    """The start of a line and what is around its changes, with … for what is left out."""
    text = line.text
    shown: list[tuple[int, int]] = []
    for first, end in [(0, _START - _AROUND), *line.marked]:
        start = text.rfind(" ", 0, max(first - _AROUND, 0)) + 1
        stop = text.find(" ", end + _AROUND) if end + _AROUND < len(text) else -1
        stop = len(text) if stop < 0 or stop + _LEAST > len(text) else stop + 1
        if shown and start < shown[-1][1] + _LEAST:
            start = shown.pop()[0]
        shown.append((start, stop))
    found, flags = "", list[bool]()
    for first, end in shown:
        found, flags = found + text[first:end], flags + marks[first:end]
        if end < len(text):
            found, flags = f"{found}… ", [*flags, False, False]
    return found.rstrip(), flags


def _list_marked(marks: list[bool]) -> tuple[tuple[int, int], ...]:
    """The ranges of the places that are marked."""
    edges = [
        at for at in range(len(marks) + 1) if (marks[at - 1 : at] == [True]) != (marks[at : at + 1] == [True])
    ]
    return tuple(zip(edges[::2], edges[1::2], strict=True))


def describe_effect(repair: Repair) -> str:
    """What a repair does to the answer, and what the query then keeps."""
    if repair.verdict is None:
        found = "" if repair.share is None else f"; finds {repair.share:.1%} of the results of the sample"
        return f"{repair.meaning}{found}"
    assumed = f" if {repair.assumption}" if repair.meaning is Meaning.SAME else ""
    return f"{repair.meaning}{assumed}; keeps {describe_bound(repair.verdict)}"


def _group_by_lines(text: str, edits: Sequence[Edit]) -> list[tuple[tuple[int, int], list[Edit]]]:
    """The edits, in groups that touch the same lines, each with the range of these lines."""
    groups: list[tuple[tuple[int, int], list[Edit]]] = []
    for edit in edits:
        start = text.rfind("\n", 0, edit.start) + 1
        end = f"{text}\n".index("\n", edit.end)
        if groups and start <= groups[-1][0][1]:
            (first, last), own = groups.pop()
            groups.append(((first, max(last, end)), [*own, edit]))
        else:
            groups.append(((start, end), [edit]))
    return groups


def _make_lines(pieces: list[tuple[str, bool]], number: int, removed: bool) -> Iterator[ChangedLine]:
    line = ""
    marked: list[tuple[int, int]] = []
    for text, is_marked in pieces:
        for index, part in enumerate(text.split("\n")):
            if index:
                yield ChangedLine(number, line, removed, tuple(marked))
                line, marked, number = "", [], number + 1
            if is_marked and part:
                marked.append((len(line), len(line) + len(part)))
            line += part
    yield ChangedLine(number, line, removed, tuple(marked))
