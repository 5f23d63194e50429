"""Shows pages from outside of ``docs/`` on the site, and turns links to them into links within it."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
# Pages of the repository, and where they are on the site.
PAGES = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "benchmarks/README.md": "benchmarks.md",
    "README.md": "index.md",  # the site has a start page of its own
}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by MkDocs: adds the pages."""
    for path, place in PAGES.items():
        if files.get_file_from_path(place) is None:
            files.append(File.generated(config, place, content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Called by MkDocs for every page."""
    place = page.file.src_uri
    path = next((path for path, known in PAGES.items() if known == place), None)
    is_outside = path is not None and not (ROOT / "docs" / place).exists()
    return relink(markdown, path if path and is_outside else f"docs/{place}", place)


def relink(markdown: str, path: str, place: str) -> str:
    """Return a page with the links of its ``path`` in the repository replaced by those of its ``place``.

    A link to a file that is not on the site becomes its text.

    >>> relink("[here](docs/how-to/ci.md#dbt), [licence](LICENSE)", "README.md", "index.md")
    '[here](how-to/ci.md#dbt), licence'
    >>> relink("[steps](../../CONTRIBUTING.md)", "docs/explained/lab.md", "explained/lab.md")
    '[steps](../contributing.md)'
    """

    def replace(link: re.Match[str]) -> str:
        target, hash_, anchor = link[3].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return link[0]
        found = os.path.normpath(PurePosixPath(path).parent / target)
        if found.startswith("docs/"):
            on_site = found.removeprefix("docs/")
        elif found in PAGES:
            on_site = PAGES[found]
        else:
            return link[2]
        relative = os.path.relpath(on_site, PurePosixPath(place).parent)
        return f"{link[1]}[{link[2]}]({relative}{hash_}{anchor})"

    return _LINK.sub(replace, markdown)
