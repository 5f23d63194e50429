"""``millpond lab``: which experiments there are, what they are told, and what they leave behind."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.errors import MillpondError
from millpond.policies.registry import Use, policy_info, policy_names

if TYPE_CHECKING:  # every command reads the arguments below; only `lab` needs what follows
    from millpond.lab.experiments import Planned
    from millpond.lab.results import Row

FIGURES = {
    "fig6": "scores of a random walk with drift",
    "fig8": "all policies on all synthetic streams",
    "fig9": "TOWER by memory size",
    "fig10": "ROOF by memory size",
    "fig11": "FLOOR by memory size",
    "fig12": "WALK by memory size",
    "fig13": "REAL, caching, by memory size",
    "fig14": "memory that HEEB gives to R",
    "fig15": "scores of REAL's AR(1) model, exact and interpolated (with figure 16)",
    "fig17": "memory given to R over time, by variance",
    "fig18": "memory given to R over time, by lag",
    "fig19": "look-ahead of FLOWEXPECT",
}
OWN = {
    "cache": "policies on a reference trace of yours (--trace)",
    "join": "policies on two streams of yours (--r and --s)",
}
# How much of a file a quick run reads.
QUICK_REFERENCES = 50_000
QUICK_STEPS = 2000


@dataclass(frozen=True)
class Report:
    """The rows of an experiment, and the files they were written to."""

    name: str
    rows: list[Row]
    files: list[Path]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``millpond lab``."""
    names = {**FIGURES, **OWN}
    parser.add_argument(
        "name",
        metavar="NAME",
        choices=names,
        help="; ".join(f"{name}: {what}" for name, what in names.items()),
    )
    parser.add_argument("--output", metavar="DIR", required=True, help="where results.csv and the picture go")
    parser.add_argument("--quick", action="store_true", help="a smaller experiment that ends within a minute")
    parser.add_argument("--seed", type=int, default=1, help="of all random streams (default: 1)")
    parser.add_argument(
        "--real", metavar="FILE", type=Path, help="fig13: the series, Date,Temperature a line"
    )
    parser.add_argument("--trace", metavar="FILE", type=Path, help="cache: one key a line, .gz or not")
    parser.add_argument("--r", metavar="FILE", type=Path, help="join: one value a line")
    parser.add_argument("--s", metavar="FILE", type=Path, help="join: one value a line")
    parser.add_argument("--sizes", metavar="N,…", help="cache, join: memory sizes (default: 10,50,100)")
    parser.add_argument("--policies", metavar="NAME,…", help="cache, join: which policies (default: most)")


def run(arguments: argparse.Namespace, watch: Callable[[Planned], Iterator[Row]]) -> Report:
    """Run the experiment, its rows passing through ``watch`` as they come, and write its files."""
    from millpond.lab.experiments import EXPERIMENTS, Settings
    from millpond.lab.figures import draw, save
    from millpond.lab.results import write_csv

    if arguments.seed < 0:
        raise MillpondError("a seed is not negative")
    name: str = arguments.name
    _refuse_strangers(arguments)
    if name in OWN:
        found = _cache(arguments) if name == "cache" else _join(arguments)
    else:
        found = EXPERIMENTS[name](Settings(arguments.quick, arguments.seed, arguments.real))
    directory = _directory(arguments.output)
    rows = list(watch(found))
    table = directory / "results.csv"
    write_csv(rows, table)
    return Report(name, rows, [table, *save(draw(name, rows), directory, name)])


def _refuse_strangers(arguments: argparse.Namespace) -> None:
    """An option that the experiment does not read is a mistake."""
    belongs = {
        "real": {"fig13"},
        "trace": {"cache"},
        "r": {"join"},
        "s": {"join"},
        "sizes": set(OWN),
        "policies": set(OWN),
    }
    for option, names in belongs.items():
        if getattr(arguments, option) is not None and arguments.name not in names:
            raise MillpondError(
                f"--{option} means nothing to {arguments.name}",
                remedy=f"it goes with {' and '.join(sorted(names))}",
            )


def _directory(path: str) -> Path:
    directory = Path(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MillpondError(f"cannot make the directory {path}: {error.strerror}") from None
    return directory


def _sizes(text: str | None) -> list[int]:
    try:
        sizes = [int(part) for part in (text or "10,50,100").split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        raise MillpondError(f"{text!r} is not a list of memory sizes", remedy="write --sizes 10,50,100")
    return sizes


def _policies(text: str | None, known: Sequence[str], usual: Sequence[str]) -> list[str]:
    names = text.lower().split(",") if text is not None else list(usual)
    for name in names:
        if name not in known:
            raise MillpondError(f"there is no policy {name!r} here", remedy=f"choose from {', '.join(known)}")
    return names


def _cache(arguments: argparse.Namespace) -> Planned:
    from millpond.lab.experiments import cache_file
    from millpond.lab.online import ordered
    from millpond.lab.workloads import read_keys
    from millpond.models.stretches import stretches

    if arguments.trace is None:
        raise MillpondError("cache needs a reference trace", remedy="give --trace FILE, one key a line")
    sizes = _sizes(arguments.sizes)
    keys = read_keys(arguments.trace)
    if arguments.quick:
        keys = keys[:QUICK_REFERENCES]
    parts = stretches(keys)
    known = policy_names(Use.LAB_CACHE)
    usual = [name for name in known if ordered(parts) or not policy_info(name).needs_model]
    policies = _policies(arguments.policies, known, usual)
    return cache_file(arguments.trace.name, keys, sizes, policies, parts, arguments.seed)


def _join(arguments: argparse.Namespace) -> Planned:
    from millpond.lab.experiments import join_files
    from millpond.lab.workloads import read_keys

    if arguments.r is None or arguments.s is None:
        raise MillpondError("join needs two streams", remedy="give --r FILE and --s FILE, one value a line")
    sizes = _sizes(arguments.sizes)
    slow = ("flowexpect", "heeb-adaptive") if arguments.quick else ("flowexpect",)
    known = policy_names(Use.LAB_JOIN)
    policies = _policies(arguments.policies, known, [name for name in known if name not in slow])
    r, s = read_keys(arguments.r), read_keys(arguments.s)
    steps = min(len(r), len(s))
    if arguments.quick:
        steps = min(steps, QUICK_STEPS)
    return join_files(r[:steps], s[:steps], sizes, policies, arguments.seed)
