"""Adapts the Markdown of the pages, as a repository browser shows it, to the site.

- ```` ```json data/clicks/1.json ```` is a file: its name becomes the title of the block.
- ```` ```python ```` with ``>>>`` is a session, without the empty line that doctest needs before the fence.
- A picture (SVG) becomes part of its page, where it follows the colours of the site.
"""

from __future__ import annotations

import re
from pathlib import Path

PICTURES = Path(__file__).parents[1] / "pictures"

_FILE = re.compile(r"^(```)(\w+) (\S+)$", re.MULTILINE)
_SESSION = re.compile(r"^```python\n(?=>>> )(.*?)\n*^```$", re.MULTILINE | re.DOTALL)
_PICTURE = re.compile(r"^!\[[^\]]*\]\(\S*pictures/(\w+\.svg)\)$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Called by MkDocs for every page."""
    return adapt(markdown)


def adapt(markdown: str) -> str:
    """Return the page as the site's Markdown extensions read it.

    >>> adapt("```json data/1.json\\n{}\\n```")
    '```json title="data/1.json"\\n{}\\n```'
    >>> adapt("```python\\n>>> 1\\n1\\n\\n```")
    '```pycon\\n>>> 1\\n1\\n```'
    """
    sessions = _SESSION.sub(r"```pycon\n\1\n```", markdown)
    files = _FILE.sub(r'\1\2 title="\3"', sessions)
    return _PICTURE.sub(lambda found: f"<figure>\n{read_picture(found[1])}</figure>", files)


def read_picture(name: str) -> str:
    """Return the text of a picture, as one block of HTML: without empty lines."""
    text = (PICTURES / name).read_text(encoding="utf-8")
    return re.sub(r"\n\s*", "\n", text)
