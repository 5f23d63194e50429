"""``millpond lab``: its experiments, its arguments, and the files it writes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.errors import MillpondError, describe_os_error
from millpond.policies.registry import Use, policy_info, policy_names

if TYPE_CHECKING:  # slow to import, and every command imports this module for its arguments
    from millpond.lab.experiments import PlannedExperiment
    from millpond.lab.results import Row

FIGURES = {
    "fig6": "scores of a random walk with drift",
    "fig8": "all policies on the synthetic streams TOWER, ROOF, FLOOR and WALK",
    "fig9": "policies on TOWER, by memory size",
    "fig10": "policies on ROOF, by memory size",
    "fig11": "policies on FLOOR, by memory size",
    "fig12": "policies on WALK, by memory size",
    "fig13": "caching policies on REAL (daily temperatures), by memory size",
    "fig14": "share of the memory that HEEB gives to stream R",
    "fig15": "scores of REAL's AR(1) model, exact and interpolated (figures 15 and 16)",
    "fig17": "share of stream R over time, by variance",
    "fig18": "share of stream R over time, by lag",
    "fig19": "FLOWEXPECT by its look-ahead",
}
ON_FILES = {
    "cache": "caching policies on your own trace (--trace)",
    "join": "joining policies on your own streams (--r and --s)",
}
# How much of a file is read with --quick.
QUICK_REFERENCES = 50_000
QUICK_STEPS = 2000


@dataclass(frozen=True)
class Report:
    """The rows of an experiment, and the files they were written to."""

    name: str
    rows: list[Row]
    files: list[Path]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``millpond lab``."""
    names = {**FIGURES, **ON_FILES}
    parser.add_argument(
        "name",
        metavar="NAME",
        choices=names,
        help="; ".join(f"{name}: {what}" for name, what in names.items()),
    )
    parser.add_argument(
        "--output", metavar="DIR", required=True, help="directory for results.csv and the figure"
    )
    parser.add_argument("--quick", action="store_true", help="run a smaller experiment, in under a minute")
    parser.add_argument("--seed", type=int, default=1, help="seed of all random streams (default: 1)")
    parser.add_argument(
        "--real", metavar="FILE", type=Path, help="fig13: CSV file of the series, with lines Date,Temperature"
    )
    parser.add_argument("--trace", metavar="FILE", type=Path, help="cache: one key per line, may be .gz")
    parser.add_argument("--r", metavar="FILE", type=Path, help="join: stream R, one value per line")
    parser.add_argument("--s", metavar="FILE", type=Path, help="join: stream S, one value per line")
    parser.add_argument("--sizes", metavar="N,…", help="cache, join: memory sizes (default: 10,50,100)")
    parser.add_argument("--policies", metavar="NAME,…", help=_policies_help())


def _policies_help() -> str:
    cache, join = (", ".join(policy_names(use)) for use in (Use.LAB_CACHE, Use.LAB_JOIN))
    return f"policies to compare (default: most); cache: {cache}; join: {join}"


def run(arguments: argparse.Namespace, watch: Callable[[PlannedExperiment], Iterator[Row]]) -> Report:
    """Run the experiment, passing its rows through ``watch`` as they come, and write its files."""
    if arguments.seed < 0:
        raise MillpondError("--seed must not be negative", remedy="give 0 or more")
    name: str = arguments.name
    _refuse_unused_options(arguments)
    _require_files(arguments)
    # Slow to import, so after the checks.
    from millpond.lab.experiments import EXPERIMENTS, Settings
    from millpond.lab.figures import draw, save
    from millpond.lab.results import write_csv

    if name in ON_FILES:
        experiment = _plan_cache(arguments) if name == "cache" else _plan_join(arguments)
    else:
        experiment = EXPERIMENTS[name](Settings(arguments.quick, arguments.seed, arguments.real))
    directory = _make_directory(arguments.output)
    rows = list(watch(experiment))
    table = directory / "results.csv"
    write_csv(rows, table)
    return Report(name, rows, [table, *save(draw(name, rows), directory, name)])


def _refuse_unused_options(arguments: argparse.Namespace) -> None:
    """Refuse options that the experiment does not use."""
    belongs = {
        "real": {"fig13"},
        "trace": {"cache"},
        "r": {"join"},
        "s": {"join"},
        "sizes": set(ON_FILES),
        "policies": set(ON_FILES),
    }
    for option, names in belongs.items():
        if getattr(arguments, option) is not None and arguments.name not in names:
            raise MillpondError(
                f"{arguments.name} does not use --{option}",
                remedy=f"leave it out; it belongs to {' and '.join(sorted(names))}",
            )


def _require_files(arguments: argparse.Namespace) -> None:
    """Refuse an experiment on files without its files."""
    if arguments.name == "cache" and arguments.trace is None:
        raise MillpondError("cache needs a trace", remedy="give --trace FILE, with one key per line")
    if arguments.name == "join" and (arguments.r is None or arguments.s is None):
        raise MillpondError("join needs two streams", remedy="give --r FILE and --s FILE, one value per line")
    if arguments.name in ON_FILES:
        _parse_sizes(arguments.sizes)


def _make_directory(path: str) -> Path:
    directory = Path(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MillpondError(f"cannot create the folder {path}: {describe_os_error(error)}") from None
    return directory


def _parse_sizes(text: str | None) -> list[int]:
    try:
        sizes = [int(part) for part in (text or "10,50,100").split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        raise MillpondError(f"{text!r} is not a list of memory sizes", remedy="write --sizes 10,50,100")
    return sizes


def _parse_policies(text: str | None, known: Sequence[str], usual: Sequence[str]) -> list[str]:
    names = text.lower().split(",") if text is not None else list(usual)
    for name in names:
        if name not in known:
            raise MillpondError(
                f"there is no policy {name!r} for this experiment", remedy=f"choose from {', '.join(known)}"
            )
    return names


def _plan_cache(arguments: argparse.Namespace) -> PlannedExperiment:
    from millpond.lab.experiments import compare_on_trace
    from millpond.lab.online import has_useful_model
    from millpond.lab.workloads import read_keys
    from millpond.models.segments import split_into_segments

    sizes = _parse_sizes(arguments.sizes)
    keys = read_keys(arguments.trace)
    if arguments.quick:
        keys = keys[:QUICK_REFERENCES]
    segments = split_into_segments(keys)
    known = policy_names(Use.LAB_CACHE)
    usual = [name for name in known if has_useful_model(segments) or not policy_info(name).needs_model]
    policies = _parse_policies(arguments.policies, known, usual)
    return compare_on_trace(arguments.trace.name, keys, sizes, policies, segments, arguments.seed)


def _plan_join(arguments: argparse.Namespace) -> PlannedExperiment:
    from millpond.lab.experiments import compare_on_streams
    from millpond.lab.workloads import read_keys

    sizes = _parse_sizes(arguments.sizes)
    slow = ("flowexpect", "heeb-adaptive") if arguments.quick else ("flowexpect",)
    known = policy_names(Use.LAB_JOIN)
    policies = _parse_policies(arguments.policies, known, [name for name in known if name not in slow])
    r, s = read_keys(arguments.r), read_keys(arguments.s)
    steps = min(len(r), len(s))
    if arguments.quick:
        steps = min(steps, QUICK_STEPS)
    return compare_on_streams(r[:steps], s[:steps], sizes, policies, arguments.seed)
