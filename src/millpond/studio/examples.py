"""The examples of the studio: files of this package with streams and several queries each."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent / "examples"
_NAMES = ("clicks", "orders", "sensors", "auctions")  # in the order of the menu; the first is shown at first


@dataclass(frozen=True)
class Example:
    """A text with its name, and the title and the question that its first two lines give."""

    name: str
    title: str
    about: str
    text: str

    def to_json(self) -> dict[str, str]:
        return asdict(self)


@cache
def list_examples() -> tuple[Example, ...]:
    """
    >>> [example.title for example in list_examples()]
    ['Clicks and impressions', 'Orders and payments', 'Sensors', 'Auctions']
    """
    return tuple(_read_example(name) for name in _NAMES)


def _read_example(name: str) -> Example:
    text = (_FOLDER / f"{name}.sql").read_text(encoding="utf-8")
    title, about, *_ = (line.removeprefix("-- ") for line in text.splitlines())
    return Example(name, title, about, text)
