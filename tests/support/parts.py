"""The parts of a repair, as small as they can be, and the text with some of them only.

A part is what a reader of the text would call one: a condition of several that were added to a WHERE, either
end of a BETWEEN, one property, one CHECK, one column that has left a list.  Nothing here knows how the repair
was made; it only reads the edits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

from sqlglot import TokenType, tokenize

from millpond.analysis.repair.changes import apply_edits
from millpond.analysis.repair.model import Edit

# With more parts, only each one and every two of them are left out, not every set.
_MAX_EXHAUSTIVE = 6


@dataclass(frozen=True)
class _Piece:
    """What one edit consists of: its parts, and the edit with some of them (None if it has no effect)."""

    parts: tuple[str, ...]
    keep: Callable[[Collection[int]], Edit | None]


def list_lesser(text: str, edits: Sequence[Edit]) -> Iterator[tuple[str, str]]:
    """Every text with less than all parts of the edits, but some, and the parts that are left out."""
    pieces = [_split_edit(text, edit) for edit in edits]
    parts = [(number, index) for number, piece in enumerate(pieces) for index in range(len(piece.parts))]
    sizes = range(1, len(parts)) if len(parts) <= _MAX_EXHAUSTIVE else (1, 2)
    for left_out in chain.from_iterable(combinations(parts, size) for size in sizes):
        kept: list[Edit] = []
        for number, piece in enumerate(pieces):
            edit = piece.keep([i for i in range(len(piece.parts)) if (number, i) not in left_out])
            kept += [] if edit is None else [edit]
        yield _apply(text, kept), ", ".join(repr(pieces[n].parts[i]) for n, i in left_out)


def _apply(text: str, edits: Sequence[Edit]) -> str:
    """The text with the edits; a parenthesis that no other edit closes is not opened."""
    closings = sum(edit.text.startswith(")") for edit in edits)
    for edit in [each for each in edits if each.text == "("]:
        if closings == 0:
            edits = [each for each in edits if each is not edit]
        closings = max(0, closings - 1)
    return apply_edits(text, edits)


def _split_edit(text: str, edit: Edit) -> _Piece:
    if edit.text == "(":  # goes with what closes it
        return _Piece((), lambda kept: edit)
    if edit.start == edit.end:
        return _split_insertion(edit)
    removed = text[edit.start : edit.end]
    if not edit.text and (removed.lstrip().startswith(",") or removed.rstrip().endswith(",")):
        return _split_removal(removed, edit)
    return _Piece((edit.text or removed,), lambda kept: edit if kept else None)


def _split_insertion(edit: Edit) -> _Piece:
    opened = re.match(r"\s*(\)? ?AND |WHERE |, |GROUP BY |TBLPROPERTIES \()", edit.text)
    checks = edit.text.startswith(" CHECK ")
    if opened is None and not checks:
        return _Piece((edit.text,), lambda kept: edit if kept else None)
    opening = " " if opened is None else opened.group()
    closing = ")" if opening.endswith("(") else ""
    inner = edit.text[len(opening) : len(edit.text) - len(closing)]
    word = "CHECK" if checks else "AND" if opening.split()[-1] in ("AND", "WHERE") else ","
    elements = [_list_ends(each) for each in _split_list(inner, word)]
    separator = {"CHECK": " ", "AND": " AND ", ",": ", "}[word]

    def keep(kept: Collection[int]) -> Edit | None:
        numbers = iter(range(len(parts)))
        chosen = []
        for whole, ends in elements:
            own = [end for end in ends if next(numbers) in kept]
            chosen += [whole] if len(own) == len(ends) else own
        made = opening + separator.join(chosen) + closing
        return Edit(edit.start, edit.end, made) if chosen else None

    parts = tuple(end for _, ends in elements for end in ends)
    return _Piece(parts, keep)


def _split_removal(removed: str, edit: Edit) -> _Piece:
    """Elements that leave a list; one that is kept gets its comma back."""
    is_tail = removed.lstrip().startswith(",")
    elements = _split_list(removed.strip().strip(","), ",")

    def keep(kept: Collection[int]) -> Edit | None:
        back = [each.strip() for index, each in enumerate(elements) if index not in kept]
        made = "".join(f", {each}" if is_tail else f"{each}, " for each in back)
        return Edit(edit.start, edit.end, made) if kept else None

    return _Piece(tuple(elements), keep)


def _split_list(text: str, word: str) -> list[str]:
    """The elements of a list: CHECKs, conditions between ANDs, or expressions between commas."""
    places, depth, between = [], 0, False
    for token in tokenize(text, read="spark"):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        written = token.text.upper()
        between = between or (written == "BETWEEN" and depth == 0)
        if depth == 0 and written == word and token.token_type is not TokenType.STRING:
            if between and word == "AND":
                between = False
            else:
                places.append((token.start, token.start if word == "CHECK" else token.end + 1))
    places = places[1:] if word == "CHECK" else places
    starts = [0, *(end for _, end in places)]
    ends = [*(start for start, _ in places), len(text)]
    return [text[start:end].strip() for start, end in zip(starts, ends, strict=True)]


def _list_ends(element: str) -> tuple[str, tuple[str, ...]]:
    """An element with its parts: the ends of a BETWEEN, or itself."""
    found = re.fullmatch(r"(CHECK \()?(\S+) BETWEEN (.+?) AND (.+?)(\))?", element, re.DOTALL)
    if found is None:
        return element, (element,)
    start, name, low, high, end = (each or "" for each in found.groups())
    return element, (f"{start}{name} >= {low}{end}", f"{start}{name} <= {high}{end}")
