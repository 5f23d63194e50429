"""``--quick`` runs a small part of every experiment.

Speed depends on the machine, the amount of work does not.  So these tests limit the number of steps over all
runs and policies, and the number of FlowExpect's steps, each of which costs as much as a hundred others.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from millpond.cli.main import main
from millpond.lab import command, experiments
from millpond.lab.command import FIGURES
from millpond.lab.experiments import EXPERIMENTS, Settings
from millpond.lab.simulate import JoinPlayer
from millpond.lab.workloads import REAL_LENGTH, SYNTHETIC, Workload
from millpond.models.array_types import Ints
from millpond.models.segments import split_into_segments

# The most steps of all policies and runs together, and of FlowExpect.
MOST_STEPS = 150_000
MOST_PLANNED = 10_000


def count_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The number of steps of each policy in the quick experiment, without simulating them."""
    steps: dict[str, int] = {}

    def count(policy: str, r: Ints) -> None:
        steps[policy] = steps.get(policy, 0) + len(r)

    def player(policy: str, work: Workload, size: int, seed: int = 0, ahead: int = 5) -> JoinPlayer:
        def play(r: Ints, s: Ints, run: int) -> int:
            count(policy, r)
            return 0

        return play

    def shares(work: Workload, size: int, settings: Settings, run: int) -> Ints:
        r, _ = work.streams(settings.seed, run, settings.steps)
        count("heeb", r)
        return np.zeros(len(r), np.int64)

    def hits(policy: str, size: int, model: object, seed: int = 0) -> object:
        def play(keys: Ints) -> Ints:
            count(policy, keys)
            return np.zeros(len(keys), np.int64)

        return play

    monkeypatch.setattr(experiments, "join_player", player)
    monkeypatch.setattr(experiments, "cache_player", hits)
    monkeypatch.setattr(experiments, "_shares", shares)
    planned = EXPERIMENTS[name](Settings(quick=True))
    assert len(list(planned.rows)) == planned.total
    return steps


@pytest.mark.parametrize("name", FIGURES)
def test_a_quick_experiment_is_small(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = count_steps(name, monkeypatch)
    assert sum(steps.values()) <= MOST_STEPS
    assert steps.get("flowexpect", 0) <= MOST_PLANNED
    assert bool(steps) == (name not in ("fig6", "fig15"))  # which show scores and simulate nothing


def test_the_full_size_is_the_paper_s() -> None:
    full = Settings()
    assert (full.runs, full.steps) == (50, 5000)
    assert (min(full.sizes), max(full.sizes)) == (1, 50)
    assert (experiments.REAL_SIZES[0], experiments.REAL_SIZES[-1], REAL_LENGTH) == (10, 300, 3650)


@pytest.mark.parametrize("name", ["cache", "join"])
def test_a_quick_run_reads_a_part_of_a_long_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "QUICK_REFERENCES", 300)
    monkeypatch.setattr(command, "QUICK_STEPS", 300)
    lengths: list[int] = []

    def noted(values: Ints) -> object:
        lengths.append(len(values))
        return split_into_segments(values)

    monkeypatch.setattr(experiments, "split_into_segments", noted)
    monkeypatch.setattr("millpond.models.segments.split_into_segments", noted)
    for file, values in zip("rs", SYNTHETIC["TOWER"]().streams(1, 0, 2000), strict=True):
        (tmp_path / file).write_text("\n".join(map(str, values)))
    files = ["--trace", str(tmp_path / "r")]
    if name == "join":
        files = ["--r", str(tmp_path / "r"), "--s", str(tmp_path / "s")]
    out = ["--sizes", "3", "--output", str(tmp_path)]
    assert main(["lab", name, *files, "--quick", *out]) == 0
    assert set(lengths) == {300}


def test_quick_files_are_of_bounded_size() -> None:
    assert command.QUICK_REFERENCES <= 50_000
    assert command.QUICK_STEPS <= 2000
