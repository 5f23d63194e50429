"""Places the boxes and edges of a graph: two stacks of boxes, and between them the edges.

Every edge leaves its column towards the space between the stacks and stays in it, so that it crosses no text.
The same graph always gives the same picture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from millpond.query.expressions import Ref
from millpond.report.graph import Box, Edge, Graph, GraphColumn

# Lengths in pixels.
CHARACTER = 7.83  # of the monospaced font of names
SMALL_CHARACTER = 6.63
MARGIN = 2.0
HEAD = 42.0
ROW = 24.0
ROW_WITH_BOUND = 38.0
FOOT = 20.0
_GAP = 22.0  # between the boxes of a stack
_MARKS = 26.0  # the room for the marks of a column
_LEAST_WIDTH, _MOST_WIDTH = 118.0, 190.0
_GUTTER = 128.0
_LABEL_HEIGHT = 17.0
# The most boxes for which every division into two stacks is tried.
_MOST_TRIED = 10
# Where along an edge its label is tried, the middle first; then above and below the edge.
_PLACES = (0.5, 0.4, 0.6, 0.3, 0.7, 0.22, 0.78)
_OFFSETS = (0.0, -9.0, 9.0)


@dataclass(frozen=True)
class PlacedColumn:
    """A column and the vertical space that it takes."""

    column: GraphColumn
    top: float
    height: float

    @property
    def middle(self) -> float:
        return self.top + self.height / 2


@dataclass(frozen=True)
class PlacedBox:
    """A box, the side on which it stands (0: left), its corner and size, and its columns."""

    box: Box
    side: int
    x: float
    y: float
    width: float
    height: float
    columns: tuple[PlacedColumn, ...]


@dataclass(frozen=True)
class PlacedEdge:
    """An edge as a cubic curve: its ends and their control points, and the middle and width of its label."""

    edge: Edge
    points: tuple[tuple[float, float], ...]
    label: tuple[float, float]
    label_width: float
    end_side: int


@dataclass(frozen=True)
class Layout:
    """A placed graph and the size of the picture."""

    width: float
    height: float
    boxes: tuple[PlacedBox, ...]
    edges: tuple[PlacedEdge, ...]


def place(graph: Graph) -> Layout:
    """Place the boxes and edges of a graph."""
    stacks = _divide(graph)
    widths = [max((_find_width(box) for box in stack), default=0.0) for stack in stacks]
    gutter = _find_gutter(graph) if stacks[1] or graph.edges else 0.0
    lefts = (MARGIN, MARGIN + widths[0] + gutter)
    heights = [_find_stack_height(stack) for stack in stacks]
    height = max(heights)
    boxes: list[PlacedBox] = []
    for side, stack in enumerate(stacks):
        y = MARGIN + (height - heights[side]) / 2
        for box in stack:
            boxes.append(_place_box(box, side, lefts[side], y, widths[side]))
            y += boxes[-1].height + _GAP
    edges = _place_edges(graph.edges, boxes, gutter)
    width = lefts[1] + widths[1] if gutter else lefts[0] + widths[0]
    bottom = max([MARGIN + height, *(each.label[1] + _LABEL_HEIGHT / 2 for each in edges)])
    return Layout(width + MARGIN, bottom + MARGIN, tuple(boxes), tuple(edges))


def shorten(text: str, most: int) -> str:
    """The text, cut where it is too long for its place.

    >>> shorten("impressions", 8)
    'impress…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def count_characters(width: float, character: float = CHARACTER) -> int:
    """How many characters fit into a width."""
    return max(int(width / character), 2)


# --- boxes -------------------------------------------------------------------------------------------


def _find_width(box: Box) -> float:
    texts = [len(box.alias) + (len(box.name) + 1 if box.name != box.alias else 0)]
    texts += [len(column.name) for column in box.columns]
    small = [len(box.kind), *(len(column.bound or "") for column in box.columns)]
    wanted = max([*(n * CHARACTER for n in texts), *(n * SMALL_CHARACTER for n in small)])
    return min(max(wanted + _MARKS + 20, _LEAST_WIDTH), _MOST_WIDTH)


def _find_box_height(box: Box) -> float:
    rows = sum(ROW_WITH_BOUND if column.bound else ROW for column in box.columns)
    return HEAD + rows + (FOOT if box.left_out else 0.0) + 4


def _find_stack_height(stack: Sequence[Box]) -> float:
    return sum(_find_box_height(box) for box in stack) + _GAP * max(len(stack) - 1, 0)


def _place_box(box: Box, side: int, x: float, y: float, width: float) -> PlacedBox:
    top, columns = y + HEAD, []
    for column in box.columns:
        height = ROW_WITH_BOUND if column.bound else ROW
        columns.append(PlacedColumn(column, top, height))
        top += height
    return PlacedBox(box, side, x, y, width, _find_box_height(box), tuple(columns))


def _find_gutter(graph: Graph) -> float:
    """The space between the stacks; wider if there are many edges, or long labels."""
    longest = max((len(edge.label) for edge in graph.edges), default=0)
    return min(max(_GUTTER, longest * SMALL_CHARACTER + 72, 90 + 9 * len(graph.edges)), 230.0)


def _divide(graph: Graph) -> tuple[list[Box], list[Box]]:
    """The boxes of the left and the right stack, so that few edges stay on one side and few cross."""
    boxes = graph.boxes
    if len(boxes) == 1:
        return [boxes[0]], []
    if len(boxes) > _MOST_TRIED:
        return list(boxes[::2]), list(boxes[1::2])
    divisions = ((0, *sides) for sides in product((0, 1), repeat=len(boxes) - 1))
    best = min((d for d in divisions if any(d)), key=lambda d: _find_cost(graph, d))
    left = [box for box, side in zip(boxes, best, strict=True) if side == 0]
    right = [box for box, side in zip(boxes, best, strict=True) if side == 1]
    return left, _order_like(right, left, graph.edges)


def _find_cost(graph: Graph, sides: Sequence[int]) -> tuple[float, int]:
    side_of = {box.alias: side for box, side in zip(graph.boxes, sides, strict=True)}
    inside = sum(
        side_of[edge.low.occurrence] == side_of[edge.high.occurrence]
        for edge in graph.edges
        if edge.low.occurrence != edge.high.occurrence
    )
    heights = [
        _find_stack_height([box for box in graph.boxes if side_of[box.alias] == side]) for side in (0, 1)
    ]
    turned = sum(side != i % 2 for i, side in enumerate(sides))
    return inside * 90 + abs(heights[0] - heights[1]) + max(heights) / 2, turned


def _order_like(stack: list[Box], other: Sequence[Box], edges: Sequence[Edge]) -> list[Box]:
    """The boxes of a stack, each near the middle of those in the other stack that it is compared with."""
    place_of = {box.alias: i for i, box in enumerate(other)}

    def find_middle(box: Box) -> float:
        ends = [(edge.low.occurrence, edge.high.occurrence) for edge in edges]
        both = ends + [(high, low) for low, high in ends]
        met = [place_of[there] for here, there in both if here == box.alias and there in place_of]
        return sum(met) / len(met) if met else len(other) / 2

    return sorted(stack, key=find_middle)


# --- edges -------------------------------------------------------------------------------------------


def _place_edges(edges: Sequence[Edge], boxes: Sequence[PlacedBox], gutter: float) -> list[PlacedEdge]:
    spots = {p.column.ref: (box, p) for box in boxes for p in box.columns}
    known = [edge for edge in edges if edge.low in spots and edge.high in spots]
    ports = _Ports(known, spots)
    placed: list[PlacedEdge] = []
    taken: list[tuple[float, float, float]] = []
    for number, edge in enumerate(known):
        points = _find_curve(ports.find(number, edge.low), ports.find(number, edge.high), spots, edge, gutter)
        width = len(edge.label) * SMALL_CHARACTER + 8
        label = _find_label_place(points, width, taken)
        taken.append((*label, width))
        placed.append(PlacedEdge(edge, points, label, width, spots[edge.high][0].side))
    return placed


class _Ports:
    """Where edges meet their columns: several edges of one column meet it at different heights."""

    def __init__(self, edges: Sequence[Edge], spots: dict[Ref, tuple[PlacedBox, PlacedColumn]]) -> None:
        self._spots = spots
        self._count = Counter(ref for edge in edges for ref in (edge.low, edge.high))
        self._rank: dict[tuple[int, Ref], int] = {}
        seen: Counter[Ref] = Counter()
        for number, ref, _ in sorted(self._list_ends(edges), key=lambda end: (str(end[1]), end[2], end[0])):
            self._rank[number, ref] = seen[ref]
            seen[ref] += 1

    def _list_ends(self, edges: Sequence[Edge]) -> Iterator[tuple[int, Ref, float]]:
        """Each end of each edge, with the height of its other end, which orders the ends of a column."""
        for number, edge in enumerate(edges):
            yield number, edge.low, self._spots[edge.high][1].middle
            yield number, edge.high, self._spots[edge.low][1].middle

    def find(self, number: int, ref: Ref) -> tuple[float, float]:
        box, placed = self._spots[ref]
        count = self._count[ref]
        step = min(8.0, (placed.height - 6) / max(count - 1, 1))
        y = placed.middle + (self._rank[number, ref] - (count - 1) / 2) * step
        return (box.x + box.width if box.side == 0 else box.x), y


def _find_curve(
    start: tuple[float, float],
    end: tuple[float, float],
    spots: dict[Ref, tuple[PlacedBox, PlacedColumn]],
    edge: Edge,
    gutter: float,
) -> tuple[tuple[float, float], ...]:
    """The curve from the smaller column to the larger one, inside the space between the stacks."""
    sides = spots[edge.low][0].side, spots[edge.high][0].side
    ways = [1 if side == 0 else -1 for side in sides]
    turn = min(gutter * 1.1, 34 + abs(start[1] - end[1]) * 0.3)
    bend = turn if sides[0] == sides[1] else gutter * 0.5
    return (
        start,
        (start[0] + ways[0] * bend, start[1]),
        (end[0] + ways[1] * bend, end[1]),
        end,
    )


def _find_point(points: Sequence[tuple[float, float]], t: float) -> tuple[float, float]:
    """The point of a cubic curve at ``t``."""
    weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3)
    x = sum(weight * point[0] for weight, point in zip(weights, points, strict=True))
    y = sum(weight * point[1] for weight, point in zip(weights, points, strict=True))
    return x, y


def _find_label_place(
    points: Sequence[tuple[float, float]], width: float, taken: Sequence[tuple[float, float, float]]
) -> tuple[float, float]:
    """The first place along the curve at which the label covers no other one; else the middle."""
    for offset, t in product(_OFFSETS, _PLACES):
        x, y = _find_point(points, t)
        y += offset
        if not any(
            abs(x - other[0]) < (width + other[2]) / 2 and abs(y - other[1]) < _LABEL_HEIGHT
            for other in taken
        ):
            return x, y
    return _find_point(points, 0.5)
