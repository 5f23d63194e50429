"""Places in a text, as the page counts them."""

from __future__ import annotations

import re
from itertools import accumulate

from millpond.errors import Position

_WORD = re.compile(r"\w+|\S|$")


class TextPlaces:
    """Converts positions and offsets of Python into offsets that count UTF-16 code units.

    >>> places = TextPlaces("SELECT '🎉',\\n  ad")
    >>> places.find(Position(2, 3)), places.span(14, 16)
    (14, {'from': 15, 'to': 17})
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = [0, *(found.end() for found in re.finditer("\n", text))]
        self._units = [0, *accumulate(1 + (ord(character) > 0xFFFF) for character in text)]

    def find(self, position: Position | None) -> int:
        """The offset of a position; one beyond the text is its end."""
        if position is None or position.line > len(self._lines):
            return 0 if position is None else len(self.text)
        return min(self._lines[position.line - 1] + position.column - 1, len(self.text))

    def find_end_of_word(self, start: int) -> int:
        """The end of the word or of the sign at an offset."""
        found = _WORD.match(self.text, start)
        return found.end() if found else start

    def span(self, start: int, end: int) -> dict[str, int]:
        """The part of the text between two offsets, as the page has it."""
        last = len(self.text)
        return {"from": self._units[min(start, last)], "to": self._units[min(end, last)]}
