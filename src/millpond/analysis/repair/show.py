"""Shows a repair: the lines of the text that it changes, and what the changed query keeps."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from millpond.analysis.explain import describe_bound
from millpond.analysis.repair.model import Edit, Meaning, Repair


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

    >>> for line in list_changed_lines("SELECT a\\nFROM s", (Edit(15, 15, " WHERE b = 1"),)):
    ...     print("-" if line.removed else "+", line.text, line.marked)
    - FROM s ()
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
        yield from _make_lines([*before, rest], number, removed=True)
        yield from _make_lines([*after, rest], number, removed=False)


def render_repair(
    number: int,
    repair: Repair,
    text: str,
    width: int,
    paint: Callable[[ChangedLine], str] = lambda line: line.text,
) -> list[str]:
    """A repair as lines: its title, its effect, and the lines that it changes, whatever their width.

    ``paint`` renders a changed line, for example in colour.
    """
    start = f"{number}. "
    indent = " " * len(start)
    changed = list(list_changed_lines(text, repair.edits))
    digits = len(str(changed[-1].number)) if changed else 0
    return [
        *textwrap.wrap(repair.title, width, initial_indent=start, subsequent_indent=indent),
        *textwrap.wrap(describe_effect(repair), width, initial_indent=indent, subsequent_indent=indent),
        *(
            f"{indent}{line.number:>{digits}} {'-' if line.removed else '+'} {paint(line)}"
            for line in changed
        ),
    ]


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
