"""The documentation site: it builds strictly, shows everything, and loads nothing from elsewhere."""

from __future__ import annotations

import logging
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

import millpond
from docs.hooks import reference_pages
from millpond.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning:(mkdocs|material|markdown|pymdownx)")


def build_site(folder: Path, docs: Path = ROOT / "docs") -> Path:
    """Build the site as ``mkdocs build --strict`` does."""
    config = load_config(
        str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder / "site"), docs_dir=str(docs)
    )
    build(config)
    return folder / "site"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_site(tmp_path_factory.mktemp("docs"))


class _Loads(HTMLParser):
    """Collects the addresses that a page loads by itself: scripts, styles, images, fonts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        is_loaded = tag in ("script", "img", "iframe", "source", "link") and given.get("rel") != "canonical"
        self.found += [given[key] or "" for key in ("src", "href") if is_loaded and key in given]


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        loads = _Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        assert loads.found
        assert not [each for each in loads.found if re.match(r"(https?:)?//", each)], page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", style.read_text(encoding="utf-8")), style


def test_every_generated_part_is_on_the_site(site: Path) -> None:
    commands = (site / "reference" / "commands" / "index.html").read_text(encoding="utf-8")
    assert all(f'id="millpond-{name}"' in commands for name in COMMANDS)
    assert "--checkpoint" in commands and "--baseline" in commands
    python = (site / "reference" / "python" / "index.html").read_text(encoding="utf-8")
    assert all(f"millpond.{name}<" in python for name in millpond.__all__)
    for page in site.rglob("*.html"):
        assert "generated:" not in page.read_text(encoding="utf-8"), page


def test_every_generated_part_is_used() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
    assert set(re.findall(r"<!-- generated: ([\w-]+) -->", pages)) == set(reference_pages.GENERATED)


def test_a_name_without_meaning_is_reported() -> None:
    with pytest.raises(LookupError, match="does not describe the metric: late_rows"):
        reference_pages.match_names(["late_rows"], {}, "the metric")
    with pytest.raises(LookupError, match="the metric that is gone: late_rows"):
        reference_pages.match_names([], {"late_rows": ""}, "the metric")


@pytest.mark.parametrize("text", ["[there](missing.md)", "[there](#missing)", "[there](/missing/)"])
def test_a_broken_link_fails(text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text(f"# Start\n\n{text}\n", encoding="utf-8")
    config = load_config(
        str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(tmp_path / "site"), docs_dir=str(docs),
        nav=[{"Start": "index.md"}], hooks=[], plugins=[], extra_css=[],
    )  # fmt: skip
    with pytest.raises(Abort), caplog.at_level(logging.WARNING):
        build(config)
    assert "missing" in caplog.text
