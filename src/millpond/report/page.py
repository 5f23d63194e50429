"""The report: one page of HTML about all queries of a file, which needs nothing from another place."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from markupsafe import Markup

import millpond
from millpond.analysis.repair.model import Repair
from millpond.analysis.verdict import Verdict
from millpond.errors import one_line
from millpond.report import sections
from millpond.report.metrics_file import Batch

# Chooses the theme.  The button is hidden without it, and the page follows the reader's theme.
_SCRIPT = """
(function () {
  var root = document.documentElement, button = document.getElementById("theme");
  var dark = window.matchMedia("(prefers-color-scheme: dark)");
  function current() { return root.dataset.theme || (dark.matches ? "dark" : "light"); }
  function show() { button.textContent = current() === "dark" ? "Light theme" : "Dark theme"; }
  button.hidden = false;
  button.addEventListener("click", function () {
    root.dataset.theme = current() === "dark" ? "light" : "dark";
    show();
  });
  dark.addEventListener("change", show);
  show();
})();
"""


@dataclass(frozen=True)
class Section:
    """A part of the report on a query: its heading, its content and the anchor of the heading."""

    name: str
    title: str
    content: Markup


@dataclass(frozen=True)
class QueryReport:
    """The report on one query."""

    number: int
    verdict: Verdict
    title: str
    sections: tuple[Section, ...]


def render_page(
    verdicts: Sequence[Verdict],
    title: str,
    batches: Sequence[Batch] = (),
    repairs: Sequence[Sequence[Repair]] = (),
) -> str:
    """The page about the queries of a file named ``title``.

    It shows the repairs of each query, if they are given, and the run that the batches are of.
    """
    known = repairs or [()] * len(verdicts)
    pairs = zip(verdicts, known, strict=True)
    queries = [_report(number, *pair) for number, pair in enumerate(pairs, start=1)]
    digest = b64encode(sha256(_SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return sections.render_template(
        "report.html",
        title=title,
        queries=queries,
        style=sections.render_style(),
        script=Markup(_SCRIPT),
        policy=policy,
        version=millpond.__version__,
        metrics=sections.render_metrics(batches) if batches else Markup(""),
        headline=sections.render_headline,
    )


def _report(number: int, verdict: Verdict, repairs: Sequence[Repair]) -> QueryReport:
    parts = (
        ("query", "The query", sections.render_query(verdict)),
        ("why", "Why" if verdict.reasons else "Notes", sections.render_reasons(verdict)),
        ("proof", "The proof, in rows", sections.render_story(verdict)),
        ("picture", "Columns and predicates", sections.render_picture(verdict)),
        ("time", "Time", sections.render_time(verdict)),
        ("blocks", "Blocks", sections.render_blocks(verdict)),
        ("kept", "What is kept", sections.render_kept(verdict)),
        ("growth", "State against rows", sections.render_growth(verdict, repairs)),
        ("repairs", "Repairs", sections.render_repairs(verdict, repairs)),
    )
    found = tuple(Section(f"q{number}-{name}", title, part) for name, title, part in parts if part.strip())
    return QueryReport(number, verdict, one_line(verdict.query_text, 80), found)
