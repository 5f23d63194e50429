"""The parts of a verdict as fragments of HTML, without headings: what the report and the studio consist of.

Every function returns an empty text if there is nothing to show.  All text of the user's is escaped.  The
fragments need the style of ``render_section_style``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from millpond.analysis.explain import headline, list_kept, list_notes
from millpond.analysis.repair.model import Repair
from millpond.analysis.repair.show import describe_effect, list_changed_lines
from millpond.analysis.verdict import BOUNDED, UNBOUNDED, Verdict
from millpond.query.derived_names import strip_mark
from millpond.report.chart import CHART_STYLE, draw_chart
from millpond.report.graph import Sign, build_graphs
from millpond.report.growth import find_growth
from millpond.report.guilty import find_guilty
from millpond.report.highlight import Mark, highlight
from millpond.report.metrics_file import Batch, count_batches_per_point, make_charts
from millpond.report.picture import PICTURE_STYLE, draw_picture
from millpond.report.story import tell_story
from millpond.report.theme import PAGE_COLOURS
from millpond.report.timeline import TIMELINE_STYLE, draw_timeline, find_time_facts


@cache
def _open_templates() -> Environment:
    loader = PackageLoader("millpond.report")
    return Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def render_template(name: str, **values: Any) -> Markup:
    """A template of this package with its values; texts are escaped, except those that are Markup."""
    return Markup(_open_templates().get_template(name).render(**values))


def render_section_style() -> Markup:
    """The style of all fragments, with the colours of the page around them."""
    style = PAGE_COLOURS + PICTURE_STYLE + CHART_STYLE + TIMELINE_STYLE
    return Markup(style) + _read_style("sections.css")


def render_style() -> Markup:
    """The style of the report: of its fragments, and of the page around them."""
    return render_section_style() + _read_style("report.css")


def _read_style(name: str) -> Markup:
    loader = _open_templates().loader
    assert loader is not None
    return Markup(loader.get_source(_open_templates(), name)[0])


# --- the verdict -------------------------------------------------------------------------------------


def render_headline(verdict: Verdict) -> Markup:
    """The outcome and its size in one sentence."""
    outcome, _, rest = headline(verdict).partition(":")
    return render_template("headline.html", outcome=verdict.outcome, lead=outcome, rest=rest.strip())


def render_query(verdict: Verdict) -> Markup:
    """The query, highlighted, with the predicates and columns marked that make it unbounded."""
    text = verdict.query_text
    return render_template("query.html", sql=highlight(text, find_guilty(verdict)))


def render_reasons(verdict: Verdict) -> Markup:
    """The reasons of a verdict, and what else is to be said about it."""
    notes = list_notes(verdict)
    return render_template("reasons.html", reasons=verdict.reasons, notes=notes)


def render_picture(verdict: Verdict) -> Markup:
    """The picture of columns and predicates, with the signs that it uses explained."""
    graphs = build_graphs(verdict)
    edges = [edge for graph in graphs for edge in graph.edges]
    columns = [column for graph in graphs for box in graph.boxes for column in box.columns]
    return render_template(
        "picture.html",
        picture=Markup(draw_picture(verdict, with_style=False)),
        outcome=verdict.outcome,
        signs={edge.sign.name for edge in edges},
        roles={column.role.name for column in columns},
        has_time=any(column.is_time for column in columns),
        has_bounded=any(column.is_bounded for column in columns),
        has_guilty=any(e.is_guilty for e in edges) or any(c.is_guilty for c in columns),
        is_conditional=any(edge.is_conditional for edge in edges),
        less=bool({edge.sign for edge in edges} & {Sign.LESS, Sign.AT_MOST}),
    )


def render_time(verdict: Verdict) -> Markup:
    """The order of the streams in time, and how long rows are kept."""
    facts = find_time_facts(verdict)
    if facts is None:
        return Markup("")
    timeline = Markup(draw_timeline(facts.windows)) if facts.windows else ""
    return render_template("time.html", orders=facts.orders, timeline=timeline)


def render_blocks(verdict: Verdict) -> Markup:
    """The tree of blocks with the verdict on each."""
    if not verdict.blocks:
        return Markup("")
    return render_template("blocks.html", blocks=_list_blocks(verdict))


@dataclass(frozen=True)
class _BlockNode:
    name: str
    outcome: str
    text: str
    sql: Markup
    blocks: tuple[_BlockNode, ...]


def _list_blocks(verdict: Verdict) -> tuple[_BlockNode, ...]:
    return tuple(
        _BlockNode(
            strip_mark(name),
            block.outcome,
            headline(block).partition(":")[2].strip(),
            highlight(block.query_text) if block.query_text != verdict.query_text else Markup(""),
            _list_blocks(block),
        )
        for name, block in verdict.blocks.items()
    )


def render_kept(verdict: Verdict) -> Markup:
    """What is kept, as a table with the bound of each part."""
    rows = list_kept(verdict) if verdict.outcome == BOUNDED else []
    if not rows:
        return Markup("")
    total = verdict.state.entries
    size = verdict.state.bytes
    return render_template("kept.html", rows=rows, total=total, size=size)


def render_growth(verdict: Verdict, repairs: Sequence[Repair] = ()) -> Markup:
    """State against rows: this query beside Spark's own plan, and after a repair."""
    growth = find_growth(verdict, repairs)
    if growth is None:
        return Markup("")
    return render_template("growth.html", chart=Markup(draw_chart(growth.chart)), growth=growth)


def render_story(verdict: Verdict) -> Markup:
    """The witness of an unbounded query as a story."""
    if verdict.outcome != UNBOUNDED:
        return Markup("")
    return render_template("story.html", story=tell_story(verdict), assumptions=verdict.assumptions)


# --- repairs -----------------------------------------------------------------------------------------


def render_repairs(verdict: Verdict, repairs: Sequence[Repair]) -> Markup:
    """The repairs of a query, with the lines that they change."""
    if not repairs:
        return Markup("")
    script = verdict.query.script
    shown = [
        {
            "title": repair.title,
            "effect": describe_effect(repair),
            "changes": render_changes(script.text, repair) if script is not None else "",
        }
        for repair in repairs
    ]
    return render_template("repairs.html", repairs=shown)


def render_changes(text: str, repair: Repair) -> Markup:
    """The lines of a text that a repair changes, with what it deletes and inserts."""
    lines = list(_list_lines(text, repair))
    return render_template("changes.html", title=repair.title, lines=lines) if lines else Markup("")


def _list_lines(text: str, repair: Repair) -> Iterator[tuple[int, str, Markup]]:
    """The changed lines: number, sign and text."""
    for line in list_changed_lines(text, repair.edits):
        element = "del" if line.removed else "ins"
        marks = [Mark(start, end, element) for start, end in line.marked]
        yield line.number, "-" if line.removed else "+", highlight(line.text, marks)


# --- a run -------------------------------------------------------------------------------------------


def render_metrics(batches: Sequence[Batch]) -> Markup:
    """The micro-batches of a run: totals, and charts of state, rate, time and rows that were lost."""
    charts = [(chart, Markup(draw_chart(chart))) for chart in make_charts(batches)]
    bounds = [batch.state_bound for batch in batches if batch.state_bound is not None]
    totals = {
        "micro-batches": len(batches),
        "input rows": sum(b.input_rows for b in batches),
        "output rows": sum(b.output_rows for b in batches),
        "late rows": sum(b.late_rows for b in batches),
        "malformed rows": sum(b.malformed_rows for b in batches),
        "shed rows": sum(b.shed_rows for b in batches),
        "most entries": max(b.state_entries for b in batches),
        **({"bound of entries": max(bounds)} if bounds else {}),
        "most bytes": max(b.state_bytes for b in batches),
        "seconds": sum(b.seconds for b in batches),
    }
    return render_template(
        "metrics.html", charts=charts, totals=totals, per_point=count_batches_per_point(batches)
    )
