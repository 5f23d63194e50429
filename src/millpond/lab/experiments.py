"""The experiments of section 6: each function takes settings and returns an experiment, ready to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from millpond.errors import MillpondError
from millpond.lab.online import cache_online, join_online, join_segments
from millpond.lab.results import Row
from millpond.lab.simulate import cache_player, choose_tables, join_player, run_tables, warm_up
from millpond.lab.workloads import REAL_MODEL, SYNTHETIC, Workload, bounded_normal, floor, load_real
from millpond.models.array_types import Ints
from millpond.models.chains import Walk
from millpond.models.score_surface import control_points, interpolate_surface
from millpond.models.score_tables import heeb_table
from millpond.models.segments import Segment, most_common_kind, split_into_segments

SIZES = (1, 2, 3, 5, 10, 15, 20, 25, 30, 40, 50)
REAL_SIZES = (10, 25, 50, 75, 100, 125, 150, 175, 200, 250, 300)
# The policies of figures 8 and 19, of figures 9 to 12, and of figure 13.
COMPARED = ("rand", "prob", "life", "flowexpect", "heeb", "rehearse", "opt")
BY_SIZE = ("rand", "prob", "life", "heeb", "rehearse", "opt")
CACHED = ("rand", "lru", "lfu", "heeb", "heeb-online", "rehearse", "lfd")


@dataclass(frozen=True)
class Settings:
    """The size of an experiment: the paper's, or with ``quick`` one that takes less than a minute."""

    quick: bool = False
    seed: int = 1
    real: Path | None = None

    @property
    def runs(self) -> int:
        return 3 if self.quick else 50

    @property
    def steps(self) -> int:
        return 1000 if self.quick else 5000

    @property
    def sizes(self) -> tuple[int, ...]:
        return (1, 2, 5, 10, 20, 50) if self.quick else SIZES


Rows = Iterator[Row]


@dataclass(frozen=True)
class PlannedExperiment:
    """An experiment ready to run: iterating over ``rows`` runs it; ``total`` is their number."""

    total: int
    rows: Rows


def _plan_grid(
    policies: Sequence[str], sizes: Sequence[int], row: Callable[[str, int], Row]
) -> PlannedExperiment:
    """The experiment with a row for every policy and size."""
    rows = (row(policy, size) for policy in policies for size in sizes)
    return PlannedExperiment(len(policies) * len(sizes), rows)


def _join_rows(
    name: str, config: str, work: Workload, policy: str, size: int, settings: Settings, runs: int
) -> Rows:
    player = join_player(policy, work, size, settings.seed)
    for run in range(runs):
        r, s = work.streams(settings.seed, run, settings.steps)
        yield Row(name, config, policy, size, run, player(r, s, run))


def _supported(work: Workload, policies: Sequence[str]) -> list[str]:
    """The policies that the workload supports: LIFE needs windows, and a walk has none (section 6.2)."""
    return [policy for policy in policies if policy != "life" or work.windows]


def compare_policies(settings: Settings) -> PlannedExperiment:
    """Figure 8: all policies on all synthetic workloads, with 10 kept tuples."""
    jobs = []
    for config, make in SYNTHETIC.items():
        work = make()
        for policy in _supported(work, COMPARED):
            runs = 1 if settings.quick and policy == "flowexpect" else settings.runs
            jobs.append((config, work, policy, runs))
    rows = (
        row
        for config, work, policy, runs in jobs
        for row in _join_rows("fig8", config, work, policy, 10, settings, runs)
    )
    return PlannedExperiment(sum(runs for *_, runs in jobs), rows)


def compare_sizes(name: str, config: str) -> Callable[[Settings], PlannedExperiment]:
    """Figures 9 to 12: policies on one workload, by the number of kept tuples."""

    def plan(settings: Settings) -> PlannedExperiment:
        work = SYNTHETIC[config]()
        policies = _supported(work, BY_SIZE)
        rows = (
            row
            for policy in policies
            for size in settings.sizes
            for row in _join_rows(name, config, work, policy, size, settings, settings.runs)
        )
        return PlannedExperiment(len(policies) * len(settings.sizes) * settings.runs, rows)

    return plan


def compare_caching(settings: Settings) -> PlannedExperiment:
    """Figure 13: hits on REAL, by the size of the cache."""
    keys = load_real(settings.real, settings.seed)
    sizes = (10, 50, 100, 200) if settings.quick else REAL_SIZES

    def row(policy: str, size: int) -> Row:
        hits = int(cache_player(policy, size, REAL_MODEL, settings.seed)(keys).sum())
        return Row("fig13", "REAL", policy, size, 0, hits, hits / len(keys))

    return _plan_grid(CACHED, sizes, row)


# --- memory allocation (section 6.6) ---------------------------------------------------------------

LAGS = {f"lag={lag}": lag for lag in (0, 2, 4)}
SPREADS = {f"deviation x{factor}": factor for factor in (1, 2, 4)}


def _allocations(figure: str) -> dict[str, Workload]:
    """TOWER with equal streams, with R lagging behind S, and with S of a larger deviation."""
    same = (15, 15)
    lags = {config: bounded_normal(config, 1.0, 1.0, lag, same) for config, lag in LAGS.items()}
    spreads = {config: bounded_normal(config, 1.0, float(x), 0, same) for config, x in SPREADS.items()}
    return {"fig17": spreads, "fig18": lags}.get(figure, lags | spreads)


def _shares(work: Workload, size: int, settings: Settings, run: int) -> Ints:
    r, s = work.streams(settings.seed, run, settings.steps)
    return run_tables(choose_tables("heeb", work, size), size, r, s).kept_of_r


def measure_allocation(settings: Settings) -> PlannedExperiment:
    """Figure 14: the share of the memory that HEEB gives to R, by memory size."""
    works = _allocations("fig14")
    sizes = (5, 10) if settings.quick else (2, 5, 10, 15, 20)

    def row(config: str, size: int, run: int) -> Row:
        share = _shares(works[config], size, settings, run)[warm_up(size) :].mean() / size
        return Row("fig14", config, "heeb", size, run, float(share))

    rows = (row(config, size, run) for config in works for size in sizes for run in range(settings.runs))
    return PlannedExperiment(len(works) * len(sizes) * settings.runs, rows)


def measure_allocation_over_time(name: str) -> Callable[[Settings], PlannedExperiment]:
    """Figures 17 and 18: the share of 10 kept tuples that HEEB gives to R, over time."""
    size, points = 10, 50

    def plan(settings: Settings) -> PlannedExperiment:
        works = _allocations(name)
        return PlannedExperiment(len(works) * settings.runs * points, rows(works, settings))

    def rows(works: dict[str, Workload], settings: Settings) -> Rows:
        every = settings.steps // points
        for config, work in works.items():
            for run in range(settings.runs):
                shares = _shares(work, size, settings, run) / size
                for point, share in enumerate(shares.reshape(points, every).mean(axis=1), start=1):
                    yield Row(name, f"{config} step={point * every}", "heeb", size, run, float(share))

    return plan


# --- scores ----------------------------------------------------------------------------------------


def compute_walk_scores(settings: Settings) -> PlannedExperiment:
    """Figure 6: h of a random walk for caching, by distance, for drifts 0, 2 and 4; ``size`` is alpha."""
    distances = np.arange(-20, 41)
    rows = []
    for drift in (0, 2, 4):
        scores = heeb_table(Walk.normal(1.0, drift), 10.0, caching=True).look_up(distances, 0, 0)
        for distance, score in zip(distances, scores, strict=True):
            rows.append(Row("fig6", f"drift={drift} distance={distance}", "heeb", 10, 0, float(score)))
    return PlannedExperiment(len(rows), iter(rows))


SURFACE = (70, 433)  # the temperatures that occur in REAL, in tenths of a degree


def compute_surface_scores(settings: Settings) -> PlannedExperiment:
    """Figures 15 and 16: h of REAL's AR(1) model, exact and from 25 control points; ``size`` is alpha."""
    alpha = 100.0
    exact = heeb_table(REAL_MODEL, alpha, caching=True)
    places = control_points(SURFACE, 21 if settings.quick else 53)
    rows = []
    for policy, table in (("actual", exact), ("approximated", interpolate_surface(exact, SURFACE))):
        for last in places.tolist():
            for value, score in zip(places.tolist(), table.look_up(places, 0, last), strict=True):
                rows.append(Row("fig15", f"value={value} last={last}", policy, alpha, 0, float(score)))
    return PlannedExperiment(len(rows), iter(rows))


def compare_look_aheads(settings: Settings) -> PlannedExperiment:
    """Figure 19: FlowExpect by its look-ahead, which is the ``size``; 20 kept tuples, 500 steps of FLOOR."""
    work, size, steps = floor(), 20, 500
    runs = 2 if settings.quick else 50
    streams = [work.streams(settings.seed, run, steps) for run in range(runs)]
    aheads = (1, 2, 5, 10) if settings.quick else (1, 2, 3, 4, 5, 7, 10, 15, 20)
    jobs = [("flowexpect", ahead) for ahead in aheads]
    # The other policies do not look ahead: two points give their line.
    jobs += [
        (policy, ahead) for policy in COMPARED if policy != "flowexpect" for ahead in (aheads[0], aheads[-1])
    ]

    def rows() -> Rows:
        for policy, ahead in jobs:
            player = join_player(policy, work, size, settings.seed, ahead)
            for run, (r, s) in enumerate(streams):
                yield Row("fig19", "FLOOR", policy, ahead, run, player(r, s, run))

    return PlannedExperiment(len(jobs) * runs, rows())


# --- files -----------------------------------------------------------------------------------------


def compare_on_trace(
    config: str,
    keys: Ints,
    sizes: Sequence[int],
    policies: Sequence[str],
    segments: Sequence[Segment],
    seed: int,
) -> PlannedExperiment:
    """The hits of policies on a user's trace, with the models that were identified in it."""

    def row(policy: str, size: int) -> Row:
        hits = int(cache_online(policy, size, segments, keys, seed).sum())
        return Row("cache", config, policy, size, 0, hits, hits / len(keys))

    return _plan_grid(policies, sizes, row)


def compare_on_streams(
    r: Ints, s: Ints, sizes: Sequence[int], policies: Sequence[str], seed: int
) -> PlannedExperiment:
    """The results of policies on a user's two streams, whose models are identified as they come."""
    found = [split_into_segments(values) for values in (r, s)]
    segments = join_segments(r, s, *found)
    if all(segment.work is None for segment in segments):
        raise MillpondError(
            "no model fits the streams: they are too short, or their values range too widely",
            remedy="give at least 60 integers each, within a million of each other",
        )
    config = " and ".join(most_common_kind(values) or "unknown" for values in found)

    def row(policy: str, size: int) -> Row:
        return Row("join", config, policy, size, 0, join_online(policy, size, segments, r, s, seed))

    return _plan_grid(policies, sizes, row)


EXPERIMENTS: dict[str, Callable[[Settings], PlannedExperiment]] = {
    "fig6": compute_walk_scores,
    "fig8": compare_policies,
    "fig9": compare_sizes("fig9", "TOWER"),
    "fig10": compare_sizes("fig10", "ROOF"),
    "fig11": compare_sizes("fig11", "FLOOR"),
    "fig12": compare_sizes("fig12", "WALK"),
    "fig13": compare_caching,
    "fig14": measure_allocation,
    "fig15": compute_surface_scores,
    "fig17": measure_allocation_over_time("fig17"),
    "fig18": measure_allocation_over_time("fig18"),
    "fig19": compare_look_aheads,
}
