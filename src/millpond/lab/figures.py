"""Figures of the experiments in the style of the paper, as SVG and PNG."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from millpond.lab.results import Average, Row, averages
from millpond.policies.registry import policy_info

# The style of a policy in every figure; colours from Okabe and Ito's colour-blind-safe palette.
STYLES: dict[str, dict[str, str]] = {
    "rand": {"color": "#999999", "marker": "x", "linestyle": ":"},
    "prob": {"color": "#E69F00", "marker": "^", "linestyle": "--"},
    "life": {"color": "#CC79A7", "marker": "v", "linestyle": "--"},
    "fifo": {"color": "#999999", "marker": "1", "linestyle": "--"},
    "lru": {"color": "#E69F00", "marker": "^", "linestyle": "--"},
    "lfu": {"color": "#CC79A7", "marker": "v", "linestyle": "--"},
    "lfu-cached": {"color": "#CC79A7", "marker": "<", "linestyle": ":"},
    "arc": {"color": "#56B4E9", "marker": "D", "linestyle": "--"},
    "lru-2": {"color": "#F0E442", "marker": "2", "linestyle": "--"},
    "ao": {"color": "#F0E442", "marker": "3", "linestyle": "--"},
    "reuse": {"color": "#0072B2", "marker": "P", "linestyle": "-."},
    "flowexpect": {"color": "#56B4E9", "marker": "D", "linestyle": "-."},
    "heeb": {"color": "#0072B2", "marker": "o", "linestyle": "-"},
    "heeb-adaptive": {"color": "#56B4E9", "marker": "o", "linestyle": "-."},
    "heeb-online": {"color": "#56B4E9", "marker": "o", "linestyle": "-."},
    # Hollow and dashed, so that both lines are visible where it equals HEEB.
    "rehearse": {"color": "#D55E00", "marker": "s", "linestyle": "--", "fillstyle": "none"},
    "opt": {"color": "#009E73", "marker": "*", "linestyle": "-"},
    "lfd": {"color": "#009E73", "marker": "*", "linestyle": "-"},
}
_MARGIN = "bars: 95 % confidence of the mean"


def draw(name: str, rows: Sequence[Row]) -> Figure:
    """Draw the figure of an experiment."""
    return _DRAWINGS.get(name, _draw_by_size)(rows)


def save(figure: Figure, directory: Path, name: str) -> list[Path]:
    """Write the figure as SVG and PNG; the same rows give the same bytes of SVG."""
    written = []
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        for suffix, metadata in (("svg", {"Date": None}), ("png", {})):
            path = directory / f"{name}.{suffix}"
            figure.savefig(path, dpi=144, bbox_inches="tight", metadata=metadata)
            written.append(path)
    return written


def _new_figure(width: float = 6.4, height: float = 4.2) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    return figure, axes


def _draw_by_size(
    rows: Sequence[Row], x_label: str = "memory size (tuples)", y_label: str | None = None
) -> Figure:
    """One line per policy, by size."""
    ratios = any(row.hit_ratio is not None for row in rows)
    found = averages(rows, ratios)
    figure, axes = _new_figure()
    for policy in dict.fromkeys(row.policy for row in rows):
        points = {size: value for (_, name, size), value in found.items() if name == policy}
        _draw_line(axes, points, policy_info(policy).label, STYLES[policy])
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label or ("hit ratio" if ratios else "result tuples, average of all runs"))
    axes.set_ylim(bottom=0)
    axes.set_title(rows[0].config)
    axes.legend(frameon=False, fontsize="small")
    _note_margin(axes, found.values())
    return figure


def _draw_line(axes: Axes, points: dict[float, Average], label: str, style: dict[str, str]) -> None:
    x = list(points)
    axes.errorbar(
        x,
        [value.mean for value in points.values()],
        yerr=[value.margin for value in points.values()] if any(v.margin for v in points.values()) else None,
        label=label,
        markersize=7 if style.get("fillstyle") == "none" else 5,
        capsize=2,
        linewidth=1.4,
        **style,  # type: ignore[arg-type]
    )


def _note_margin(axes: Axes, values: Iterable[Average]) -> None:
    if any(value.margin > 0 for value in values):
        axes.annotate(
            _MARGIN, (1, -0.16), xycoords="axes fraction", ha="right", fontsize="x-small", color="gray"
        )


def _draw_comparison(rows: Sequence[Row]) -> Figure:
    """Figure 8: bars, grouped by workload."""
    found = averages(rows)
    configs = list(dict.fromkeys(row.config for row in rows))
    policies = list(dict.fromkeys(row.policy for row in rows))
    figure, axes = _new_figure(7.6)
    width = 0.8 / len(policies)
    for place, policy in enumerate(policies):
        here = [(i, c) for i, c in enumerate(configs) if (c, policy, 10) in found]
        axes.bar(
            [i + (place - (len(policies) - 1) / 2) * width for i, _ in here],
            [found[c, policy, 10].mean for _, c in here],
            width,
            yerr=[found[c, policy, 10].margin for _, c in here],
            label=policy_info(policy).label,
            color=STYLES[policy]["color"],
            edgecolor="black",
            linewidth=0.4,
            capsize=1.5,
            error_kw={"linewidth": 0.8},
        )
    axes.set_ylim(bottom=0)
    axes.set_xticks(range(len(configs)), configs)
    axes.set_ylabel("result tuples, average of all runs")
    axes.set_title("10 kept tuples")
    figure.legend(frameon=False, fontsize="small", ncols=4, loc="outside upper center")
    _note_margin(axes, found.values())
    return figure


def _draw_allocation(rows: Sequence[Row]) -> Figure:
    """Figure 14: the share of R by size, one line per workload."""
    figure, axes = _new_figure()
    found = averages(rows)
    for place, config in enumerate(dict.fromkeys(row.config for row in rows)):
        points = {size: value for (name, _, size), value in found.items() if name == config}
        _draw_line(axes, points, config, _line_style(place))
    return _finish_shares(figure, axes, "memory size (tuples)")


def _draw_over_time(rows: Sequence[Row]) -> Figure:
    """Figures 17 and 18: the share of R over time, one line per workload."""
    figure, axes = _new_figure()
    found = averages(rows)
    for place, config in enumerate(dict.fromkeys(row.config.split(" step=")[0] for row in rows)):
        points = {
            float(name.split(" step=")[1]): value
            for (name, _, _), value in found.items()
            if name.split(" step=")[0] == config
        }
        _draw_line(axes, points, config, _line_style(place) | {"marker": ""})
    return _finish_shares(figure, axes, "step")


def _finish_shares(figure: Figure, axes: Axes, x_label: str) -> Figure:
    axes.axhline(0.5, color="gray", linewidth=0.6)
    axes.set_ylim(0, 1)
    axes.set_xlabel(x_label)
    axes.set_ylabel("share of the cache held by R")
    axes.set_title("TOWER, HEEB")
    axes.legend(frameon=False, fontsize="small", ncols=2)
    return figure


def _line_style(place: int) -> dict[str, str]:
    colours = ("#000000", "#0072B2", "#56B4E9", "#000000", "#D55E00", "#E69F00")
    lines = ("-", "-", "-", "--", "--", "--")
    markers = ("o", "o", "o", "s", "s", "s")
    return {"color": colours[place % 6], "linestyle": lines[place % 6], "marker": markers[place % 6]}


def _draw_walk_scores(rows: Sequence[Row]) -> Figure:
    """Figure 6: h by distance, one curve per drift."""
    figure, axes = _new_figure()
    for place, drift in enumerate(dict.fromkeys(row.config.split()[0] for row in rows)):
        points = [
            (int(row.config.rsplit("=", 1)[1]), row.results) for row in rows if row.config.split()[0] == drift
        ]
        x, y = zip(*points, strict=True)
        axes.plot(x, y, label=f"drift {drift.split('=')[1]}", **_line_style(place) | {"marker": "."})  # type: ignore[arg-type]
    axes.set_xlabel("join value minus the walk's current value")
    axes.set_ylabel("h")
    axes.set_title(f"random walk with normal steps, alpha = {rows[0].size:g}")
    axes.legend(frameon=False)
    return figure


def _draw_surfaces(rows: Sequence[Row]) -> Figure:
    """Figures 15 and 16: the exact surface, and its interpolation from 25 control points."""
    from millpond.lab.experiments import SURFACE
    from millpond.models.score_surface import control_points

    figure = Figure(figsize=(10.5, 4.6), layout="constrained")
    top = max(row.results for row in rows)
    for place, (policy, title) in enumerate(
        (("actual", "actual"), ("approximated", "from 25 control points"))
    ):
        axes = figure.add_subplot(1, 2, place + 1, projection="3d")
        scores = np.array([row.results for row in rows if row.policy == policy])
        side = round(len(scores) ** 0.5)
        degrees = np.linspace(*SURFACE, side) / 10
        value, last = np.meshgrid(degrees, degrees)
        heights = scores.reshape(side, side)
        axes.plot_surface(value, last, heights, cmap="viridis", linewidth=0.1, alpha=0.9)
        if policy == "approximated":
            points = control_points(SURFACE, 5)
            nearest = np.abs(degrees[:, None] - points / 10).argmin(axis=0)
            x, y = np.meshgrid(degrees[nearest], degrees[nearest])
            axes.scatter(x, y, heights[np.ix_(nearest, nearest)], color="black", s=14, depthshade=False)
        axes.set_zlim(0, top)
        axes.set_xlabel("temperature of the row")
        axes.set_ylabel("last temperature")
        axes.set_zlabel("h")
        axes.set_title(f"HEEB for REAL, {title}")
    return figure


def _draw_look_ahead(rows: Sequence[Row]) -> Figure:
    """Figure 19: by look-ahead; the axis starts just below the lowest line, because the lines are close."""
    figure = _draw_by_size(rows, "look-ahead of FLOWEXPECT (steps)")
    (axes,) = figure.axes
    axes.set_ylim(bottom=0.9 * min(value.mean for value in averages(rows).values()))
    axes.legend(frameon=False, fontsize="small", ncols=2, loc="upper center", bbox_to_anchor=(0.5, 0.88))
    axes.set_title(f"{rows[0].config}, 20 kept tuples, 500 steps")
    return figure


_DRAWINGS: dict[str, Callable[[Sequence[Row]], Figure]] = {
    "fig6": _draw_walk_scores,
    "fig8": _draw_comparison,
    "fig14": _draw_allocation,
    "fig15": _draw_surfaces,
    "fig17": _draw_over_time,
    "fig18": _draw_over_time,
    "fig19": _draw_look_ahead,
}
