"""The experiments of section 6, each a function from settings to rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from millpond.errors import MillpondError
from millpond.lab.online import cache_online, join_online, paired
from millpond.lab.results import Row
from millpond.lab.simulate import cache_player, join_player, join_way, play, warm_up
from millpond.lab.workloads import REAL_MODEL, SYNTHETIC, Workload, bounded_normal, floor, real
from millpond.models.arrays import Ints
from millpond.models.chains import Walk
from millpond.models.models import Model
from millpond.models.scores import heeb_table
from millpond.models.stretches import Stretch, ruling_kind, stretches
from millpond.models.surface import control_points, interpolated

SIZES = (1, 2, 3, 5, 10, 15, 20, 25, 30, 40, 50)
REAL_SIZES = (10, 25, 50, 75, 100, 125, 150, 175, 200, 250, 300)
COMPARED = ("rand", "prob", "life", "flowexpect", "heeb", "rehearse", "opt")
BY_SIZE = ("rand", "prob", "life", "heeb", "rehearse", "opt")
CACHED = ("rand", "lru", "lfu", "heeb", "heeb-online", "rehearse", "lfd")


@dataclass(frozen=True)
class Settings:
    """How much to run: the paper's full size, or something that ends within a minute."""

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
class Planned:
    """An experiment about to run: how many rows it will give, and the rows as they come."""

    total: int
    rows: Rows


def _join_rows(
    name: str, config: str, work: Workload, policy: str, size: int, settings: Settings, runs: int
) -> Rows:
    player = join_player(policy, work, size, settings.seed)
    for run in range(runs):
        r, s = work.streams(settings.seed, run, settings.steps)
        yield Row(name, config, policy, size, run, player(r, s, run))


def _fitting(work: Workload, policies: Sequence[str]) -> list[str]:
    """The policies that the workload allows: a walk has no window, and so LIFE no lifetimes (section 6.2)."""
    return [policy for policy in policies if policy != "life" or work.windows]


def compared(settings: Settings) -> Planned:
    """Figure 8: all policies on all synthetic configurations, 10 kept tuples."""
    jobs = []
    for config, make in SYNTHETIC.items():
        work = make()
        for policy in _fitting(work, COMPARED):
            runs = 1 if settings.quick and policy == "flowexpect" else settings.runs
            jobs.append((config, work, policy, runs))
    rows = (
        row
        for config, work, policy, runs in jobs
        for row in _join_rows("fig8", config, work, policy, 10, settings, runs)
    )
    return Planned(sum(runs for *_, runs in jobs), rows)


def by_size(name: str, config: str) -> Callable[[Settings], Planned]:
    """Figures 9 to 12: one configuration, by the number of kept tuples."""

    def planned(settings: Settings) -> Planned:
        work = SYNTHETIC[config]()
        policies = _fitting(work, BY_SIZE)
        rows = (
            row
            for policy in policies
            for size in settings.sizes
            for row in _join_rows(name, config, work, policy, size, settings, settings.runs)
        )
        return Planned(len(policies) * len(settings.sizes) * settings.runs, rows)

    return planned


def cached(settings: Settings) -> Planned:
    """Figure 13: hits on REAL by the size of the cache."""
    keys = real(settings.real, settings.seed)
    sizes = (10, 50, 100, 200) if settings.quick else REAL_SIZES
    return cache_rows("fig13", "REAL", keys, sizes, CACHED, REAL_MODEL, settings.seed)


def cache_rows(
    name: str,
    config: str,
    keys: Ints,
    sizes: Sequence[int],
    policies: Sequence[str],
    model: Model | None,
    seed: int,
) -> Planned:
    """Hits of policies on one reference stream."""

    def row(policy: str, size: int) -> Row:
        hits = int(cache_player(policy, size, model, seed)(keys).sum())
        return Row(name, config, policy, size, 0, hits, hits / len(keys))

    return Planned(len(policies) * len(sizes), (row(policy, size) for policy in policies for size in sizes))


# --- memory allocation (section 6.6) ---------------------------------------------------------------

LAGS = {f"lag={lag}": lag for lag in (0, 2, 4)}
SPREADS = {f"deviation x{factor}": factor for factor in (1, 2, 4)}


def _allocations(figure: str) -> dict[str, Workload]:
    """TOWER with equal streams; then R lagging behind S, or S with a larger deviation."""
    same = (15, 15)
    lags = {config: bounded_normal(config, 1.0, 1.0, lag, same) for config, lag in LAGS.items()}
    spreads = {config: bounded_normal(config, 1.0, float(x), 0, same) for config, x in SPREADS.items()}
    return {"fig17": spreads, "fig18": lags}.get(figure, lags | spreads)


def _shares(work: Workload, size: int, settings: Settings, run: int) -> Ints:
    r, s = work.streams(settings.seed, run, settings.steps)
    return play(join_way("heeb", work, size), size, r, s).kept_of_r


def allocation(settings: Settings) -> Planned:
    """Figure 14: the share of the cache that HEEB gives to R, by its size."""
    works = _allocations("fig14")
    sizes = (5, 10) if settings.quick else (2, 5, 10, 15, 20)

    def row(config: str, size: int, run: int) -> Row:
        share = _shares(works[config], size, settings, run)[warm_up(size) :].mean() / size
        return Row("fig14", config, "heeb", size, run, float(share))

    rows = (row(config, size, run) for config in works for size in sizes for run in range(settings.runs))
    return Planned(len(works) * len(sizes) * settings.runs, rows)


def over_time(name: str) -> Callable[[Settings], Planned]:
    """Figures 17 and 18: the share of a cache of 10 that HEEB gives to R, over time."""
    size, points = 10, 50

    def planned(settings: Settings) -> Planned:
        works = _allocations(name)
        return Planned(len(works) * settings.runs * points, rows(works, settings))

    def rows(works: dict[str, Workload], settings: Settings) -> Rows:
        every = settings.steps // points
        for config, work in works.items():
            for run in range(settings.runs):
                shares = _shares(work, size, settings, run) / size
                for point, share in enumerate(shares.reshape(points, every).mean(axis=1), start=1):
                    yield Row(name, f"{config} step={point * every}", "heeb", size, run, float(share))

    return planned


# --- scores ----------------------------------------------------------------------------------------


def walk_scores(settings: Settings) -> Planned:
    """Figure 6: h of a random walk, for caching, by distance and for drifts 0, 2 and 4; the size is alpha."""
    distances = np.arange(-20, 41)
    rows = []
    for drift in (0, 2, 4):
        scores = heeb_table(Walk.normal(1.0, drift), 10.0, caching=True).look_up(distances, 0, 0)
        for distance, score in zip(distances, scores, strict=True):
            rows.append(Row("fig6", f"drift={drift} distance={distance}", "heeb", 10, 0, float(score)))
    return Planned(len(rows), iter(rows))


SURFACE = (70, 433)  # the temperatures that occur in REAL, in tenths of a degree


def surface_scores(settings: Settings) -> Planned:
    """Figures 15 and 16: h of REAL's AR(1) model, exact and from 25 control points; the size is alpha."""
    alpha = 100.0
    exact = heeb_table(REAL_MODEL, alpha, caching=True)
    places = control_points(SURFACE, 21 if settings.quick else 53)
    rows = []
    for policy, table in (("actual", exact), ("approximated", interpolated(exact, SURFACE))):
        for last in places.tolist():
            for value, score in zip(places.tolist(), table.look_up(places, 0, last), strict=True):
                rows.append(Row("fig15", f"value={value} last={last}", policy, alpha, 0, float(score)))
    return Planned(len(rows), iter(rows))


def look_ahead(settings: Settings) -> Planned:
    """Figure 19: FlowExpect by its look-ahead (given as the size); 20 kept tuples, 500 steps of FLOOR."""
    work, size, steps = floor(), 20, 500
    runs = 2 if settings.quick else 50
    streams = [work.streams(settings.seed, run, steps) for run in range(runs)]
    aheads = (1, 2, 5, 10) if settings.quick else (1, 2, 3, 4, 5, 7, 10, 15, 20)
    jobs = [("flowexpect", ahead) for ahead in aheads]
    # The others do not look ahead: two points draw their line.
    jobs += [
        (policy, ahead) for policy in COMPARED if policy != "flowexpect" for ahead in (aheads[0], aheads[-1])
    ]

    def rows() -> Rows:
        for policy, ahead in jobs:
            player = join_player(policy, work, size, settings.seed, ahead)
            for run, (r, s) in enumerate(streams):
                yield Row("fig19", "FLOOR", policy, ahead, run, player(r, s, run))

    return Planned(len(jobs) * runs, rows())


# --- files -----------------------------------------------------------------------------------------


def cache_file(
    config: str,
    keys: Ints,
    sizes: Sequence[int],
    policies: Sequence[str],
    parts: Sequence[Stretch],
    seed: int,
) -> Planned:
    """Hits of policies on a given trace, with the models that were identified as it went."""

    def row(policy: str, size: int) -> Row:
        hits = int(cache_online(policy, size, parts, keys, seed).sum())
        return Row("cache", config, policy, size, 0, hits, hits / len(keys))

    return Planned(len(policies) * len(sizes), (row(policy, size) for policy in policies for size in sizes))


def join_files(r: Ints, s: Ints, sizes: Sequence[int], policies: Sequence[str], seed: int) -> Planned:
    """Results of policies on two given streams, whose models are identified as they go."""
    found = [stretches(values) for values in (r, s)]
    parts = paired(r, s, *found)
    if all(part.work is None for part in parts):
        raise MillpondError(
            "no model fits the streams: they are too short, or their values range too widely",
            remedy="give at least 60 integers each, within a million of each other",
        )
    config = " and ".join(ruling_kind(values) or "unknown" for values in found)

    def row(policy: str, size: int) -> Row:
        return Row("join", config, policy, size, 0, join_online(policy, size, parts, r, s, seed))

    return Planned(len(policies) * len(sizes), (row(policy, size) for policy in policies for size in sizes))


EXPERIMENTS: dict[str, Callable[[Settings], Planned]] = {
    "fig6": walk_scores,
    "fig8": compared,
    "fig9": by_size("fig9", "TOWER"),
    "fig10": by_size("fig10", "ROOF"),
    "fig11": by_size("fig11", "FLOOR"),
    "fig12": by_size("fig12", "WALK"),
    "fig13": cached,
    "fig14": allocation,
    "fig15": surface_scores,
    "fig17": over_time("fig17"),
    "fig18": over_time("fig18"),
    "fig19": look_ahead,
}
