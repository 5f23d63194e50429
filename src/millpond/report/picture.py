"""Draws the picture of a query: its tables as boxes of columns, its predicates as lines between them.

After Figure 1 of paper 1: an arrow points from the smaller column to the larger one, a double line joins
equal ones, and columns with finitely many values are shaded.  What makes the query unbounded has the accent
colour.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from millpond.analysis.reasons import join_words
from millpond.analysis.verdict import Verdict
from millpond.report.graph import Box, Edge, Graph, GraphColumn, Role, Sign, build_graphs
from millpond.report.layout import (
    HEAD,
    SMALL_CHARACTER,
    Layout,
    PlacedBox,
    PlacedColumn,
    PlacedEdge,
    count_characters,
    place,
    shorten,
)
from millpond.report.theme import PICTURE_COLOURS

_CAPTION = 24.0  # the height of the caption of a select
_BETWEEN = 26.0
_LEAST_CAPTION = 190.0
_ARROW = 8.0

# The picture takes the colours of the page around it, and has its own where there are none.
PICTURE_STYLE = (
    PICTURE_COLOURS + ".mp-picture{display:block;max-width:100%;height:auto;color:var(--pic-text);"
    "font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}"
    ".mp-picture text{fill:var(--pic-text)}.mp-picture .dim{fill:var(--pic-dim)}"
    ".mp-picture .small{font-size:11px}.mp-picture .head{font-weight:700}"
    ".mp-picture .derived{font-style:italic}"
    ".mp-picture .box{fill:var(--pic-back);stroke:var(--pic-line);stroke-width:1.2}"
    ".mp-picture .bar{fill:var(--pic-code)}"
    ".mp-picture .bounded{fill:var(--pic-shade)}"
    ".mp-picture .guilty-row{fill:none;stroke:var(--pic-accent);stroke-width:1.6}"
    ".mp-picture text.guilty{fill:var(--pic-accent);font-weight:700}"
    ".mp-picture .line{fill:none;stroke:var(--pic-edge);stroke-width:1.6}"
    ".mp-picture .tip{fill:var(--pic-edge)}.mp-picture .mark{fill:var(--pic-text)}"
    ".mp-picture .ring{fill:none;stroke:var(--pic-text);stroke-width:1.5}"
    ".mp-picture .guilty .line{stroke:var(--pic-accent);stroke-width:2.2}"
    ".mp-picture .guilty .tip{fill:var(--pic-accent)}.mp-picture .guilty text{fill:var(--pic-accent)}"
    ".mp-picture .double{stroke-width:5}.mp-picture .guilty .double{stroke-width:6}"
    ".mp-picture .inside{fill:none;stroke:var(--pic-back);stroke-width:2}"
    ".mp-picture .conditional .line{stroke-dasharray:5 4}.mp-picture .dotted{stroke-dasharray:2 4}"
    ".mp-picture .plate{fill:var(--pic-back)}"
)


def draw_picture(verdict: Verdict, with_style: bool = True) -> str:
    """The picture of a query as an ``<svg>`` element; several on a page need ``PICTURE_STYLE`` once."""
    graphs = build_graphs(verdict)
    layouts = [place(graph) for graph in graphs]
    width = max(layout.width for layout in layouts)
    if any(graph.caption for graph in graphs):
        width = max(width, _LEAST_CAPTION)
    drawn, y = [], 0.0
    for graph, layout in zip(graphs, layouts, strict=True):
        if graph.caption:
            caption = shorten(graph.caption, count_characters(width, SMALL_CHARACTER))
            drawn.append(_draw_text("small dim", 4, y + 14, caption))
            y += _CAPTION
        drawn.append(f'<g transform="translate(0 {_number(y)})">{"".join(_draw_layout(layout))}</g>')
        y += layout.height + _BETWEEN
    height = y - _BETWEEN
    title = _describe_title(graphs)
    style = f"<style>{PICTURE_STYLE}</style>" if with_style else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="mp-picture mp-{escape(verdict.outcome)}" role="img" '
        f'aria-label="{escape(title)}" width="{_number(width)}" height="{_number(height)}" '
        f'viewBox="0 0 {_number(width)} {_number(height)}">'
        f"<title>{escape(title)}</title><desc>{escape(describe_graphs(graphs))}</desc>"
        f"{style}{''.join(drawn)}</svg>"
    )


def describe_graphs(graphs: Sequence[Graph]) -> str:
    """The content of the picture in words, for those who cannot see it."""
    lines = []
    for graph in graphs:
        lines += [f"{graph.caption}:"] if graph.caption else []
        lines += [_describe_box(box) for box in graph.boxes]
        lines += [f"{_name_edge(edge)}{' (guilty)' if edge.is_guilty else ''}." for edge in graph.edges]
    return " ".join(lines)


def _describe_title(graphs: Sequence[Graph]) -> str:
    names = dict.fromkeys(box.name for graph in graphs for box in graph.boxes)
    return f"Columns and predicates of {join_words(list(names))}"


def _describe_box(box: Box) -> str:
    columns = []
    for column in box.columns:
        facts = [column.bound] if column.bound else []
        facts += ["bounded"] if column.is_bounded else []
        facts += [column.role.value] if column.role is not Role.NONE else []
        columns.append(column.name + (f" ({', '.join(facts)})" if facts else ""))
    alias = f" as {box.alias}" if box.alias != box.name else ""
    return f"{box.kind} {box.name}{alias}: {', '.join(columns)}."


def _name_edge(edge: Edge) -> str:
    by = f" {edge.shift}" if edge.shift else ""
    return f"{edge.low} {edge.sign.value} {edge.high}{by}"


# --- drawing -----------------------------------------------------------------------------------------


def _draw_layout(layout: Layout) -> Iterator[str]:
    for box in layout.boxes:
        yield from _draw_box(box)
    # What is guilty comes last, on top of other lines.
    edges = sorted(layout.edges, key=lambda each: each.edge.is_guilty)
    for each in edges:
        yield _draw_line(each)
    for each in edges:
        yield _draw_label(each)


def _draw_box(placed: PlacedBox) -> Iterator[str]:
    box, x, y, width = placed.box, placed.x, placed.y, placed.width
    name = box.name if box.alias == box.name else f"{box.name} {box.alias}"
    full = box.name if box.alias == box.name else f"{box.name} AS {box.alias}"
    shown = shorten(name, count_characters(width - 20))
    kind = shorten(box.kind, count_characters(width - 20, SMALL_CHARACTER))
    yield f"<g><title>{escape(f'{box.kind} {full}')}</title>"
    yield _draw_rect("box", x, y, width, placed.height, 8)
    yield (
        f'<path class="bar" d="M{_number(x + 0.6)} {_number(y + HEAD - 4)}v-{_number(HEAD - 12)}'
        f"q0-7.4 7.4-7.4h{_number(width - 16)}q7.4 0 7.4 7.4v{_number(HEAD - 12)}"
        f'z"/>'
    )
    yield _draw_text("head", x + 10, y + 17, shown)
    yield _draw_text("small dim", x + 10, y + 31, kind) + "</g>"
    for column in placed.columns:
        yield from _draw_column(placed, column)
    if box.left_out:
        more = f"+ {box.left_out} not used"
        yield _draw_text("small dim", x + 10, y + placed.height - 9, more)


def _draw_column(box: PlacedBox, placed: PlacedColumn) -> Iterator[str]:
    column, width = placed.column, box.width
    marks = 24 if _has_marks(column) else 0
    left = box.x + (10 + marks if box.side == 0 else 10)
    room = width - 18 - marks
    name = shorten(column.name, count_characters(room))
    yield f"<g><title>{escape(_describe_column(column))}</title>"
    if column.is_bounded:
        yield _draw_rect("bounded", box.x + 3, placed.top + 1, width - 6, placed.height - 2, 4)
    if column.is_guilty:
        yield _draw_rect("guilty-row", box.x + 3, placed.top + 1, width - 6, placed.height - 2, 4)
    classes = [word for word, here in (("guilty", column.is_guilty), ("derived", column.is_derived)) if here]
    classes += ["dim"] if not column.is_used else []
    yield _draw_text(" ".join(classes), left, placed.top + 16.5, name)
    if column.bound:
        bound = shorten(column.bound, count_characters(room, SMALL_CHARACTER))
        yield _draw_text("small dim", left, placed.top + 30.5, bound)
    if _has_marks(column):
        middle = box.x + 16 if box.side == 0 else box.x + width - 16
        yield from _draw_marks(column, middle, placed.top + 12)
    yield "</g>"


def _has_marks(column: GraphColumn) -> bool:
    return column.role is not Role.NONE or column.is_time


def _draw_marks(column: GraphColumn, x: float, y: float) -> Iterator[str]:
    """A disc for a column of the result, a ring for a group column, Σ for an aggregate, hands for time."""
    if column.role is Role.SHOWN:
        yield f'<circle class="mark" cx="{_number(x)}" cy="{_number(y)}" r="4"/>'
    elif column.role is Role.GROUPED:
        yield f'<circle class="ring" cx="{_number(x)}" cy="{_number(y)}" r="4"/>'
    elif column.role is Role.AGGREGATED:
        yield f'<text text-anchor="middle" x="{_number(x)}" y="{_number(y + 4.5)}">Σ</text>'
    else:
        yield (
            f'<circle class="ring" cx="{_number(x)}" cy="{_number(y)}" r="5.5"/>'
            f'<path class="ring" d="M{_number(x)} {_number(y - 3.2)}V{_number(y)}L{_number(x + 2.4)} '
            f'{_number(y + 1.6)}"/>'
        )


def _describe_column(column: GraphColumn) -> str:
    facts = [column.type, *([column.bound] if column.bound else [])]
    facts.append("finitely many values" if column.is_bounded else "infinitely many values")
    facts += [column.role.value] if column.role is not Role.NONE else []
    facts += ["the time column"] if column.is_time else []
    facts += [] if column.is_used else ["not used"]
    return f"{column.ref.occurrence}.{column.name}: {', '.join(facts)}"


def _draw_line(placed: PlacedEdge) -> str:
    edge = placed.edge
    classes = [
        "edge",
        *(["guilty"] if edge.is_guilty else []),
        *(["conditional"] if edge.is_conditional else []),
    ]
    points = placed.points
    is_arrow = edge.sign in (Sign.LESS, Sign.AT_MOST)
    way = 1 if placed.end_side == 0 else -1
    end = (points[3][0] + way * _ARROW, points[3][1]) if is_arrow else points[3]
    control = (points[2][0] + way * _ARROW, points[2][1]) if is_arrow else points[2]
    path = f"M{_pair(points[0])}C{_pair(points[1])} {_pair(control)} {_pair(end)}"
    title = edge.text + (" (only below an OR)" if edge.is_conditional else "")
    if edge.sign is Sign.EQUAL:
        lines = f'<path class="line double" d="{path}"/><path class="inside" d="{path}"/>'
    elif edge.sign is Sign.DIFFERENT:
        lines = f'<path class="line dotted" d="{path}"/>'
    else:
        tip, back = points[3], points[3][0] + way * (_ARROW + 1)
        lines = (
            f'<path class="line" d="{path}"/><path class="tip" d="M{_pair(tip)}L{_pair((back, tip[1] - 4.5))}'
            f'L{_pair((back, tip[1] + 4.5))}z"/>'
        )
    return f'<g class="{" ".join(classes)}"><title>{escape(title)}</title>{lines}</g>'


def _draw_label(placed: PlacedEdge) -> str:
    (x, y), width, edge = placed.label, placed.label_width, placed.edge
    guilty = ' class="guilty"' if edge.is_guilty else ""
    return (
        f"<g{guilty}><title>{escape(edge.text)}</title>"
        + _draw_rect("plate", x - width / 2, y - 8, width, 16, 4)
        + f'<text class="small" text-anchor="middle" x="{_number(x)}" y="{_number(y + 4)}">'
        f"{escape(edge.label)}</text></g>"
    )


def _draw_rect(name: str, x: float, y: float, width: float, height: float, radius: float) -> str:
    return (
        f'<rect class="{name}" x="{_number(x)}" y="{_number(y)}" width="{_number(width)}" '
        f'height="{_number(height)}" rx="{_number(radius)}"/>'
    )


def _draw_text(name: str, x: float, y: float, text: str) -> str:
    classes = f' class="{name}"' if name else ""
    return f'<text{classes} x="{_number(x)}" y="{_number(y)}">{escape(text)}</text>'


def _pair(point: tuple[float, float]) -> str:
    return f"{_number(point[0])} {_number(point[1])}"


def _number(value: float) -> str:
    """
    >>> _number(12.0), _number(12.345)
    ('12', '12.3')
    """
    return f"{value:.1f}".removesuffix(".0")
