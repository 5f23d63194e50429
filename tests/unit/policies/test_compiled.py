"""Compiled functions: their cache on disk, and enums and named tuples in compiled code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from millpond.policies.kernels.compiled import compiled
from millpond.policies.kernels.kinds import CacheScore

SCRIPT = """
from typing import NamedTuple
import numpy as np
from millpond.policies.kernels.compiled import compiled

class {name}(NamedTuple):
    values: np.ndarray

@compiled
def total(state):
    return state.values.sum()

def main():
    print(total({name}(np.arange(4))), sum(total.stats.cache_hits.values()))
"""


def run_script(folder: Path, name: str) -> list[str]:
    (folder / "summing.py").write_text(SCRIPT.format(name=name))
    call = [sys.executable, "-c", "import sys; sys.path.insert(0, '.'); import summing; summing.main()"]
    found = subprocess.run(call, cwd=folder, capture_output=True, text=True, check=True)
    return found.stdout.split()


@pytest.mark.campaign
def test_the_cache_survives_the_renaming_of_a_state_class(tmp_path: Path) -> None:
    assert run_script(tmp_path, "Before") == ["6", "0"]
    assert run_script(tmp_path, "Later_") == ["6", "0"]  # a stale cache is not an error
    assert run_script(tmp_path, "Later_")[0] == "6"


@compiled
def _count_kinds(kinds: np.ndarray) -> int:
    count = 0
    for kind in kinds:
        if kind in (CacheScore.LRU, CacheScore.LFU):
            count += 1
        elif kind == CacheScore.REUSE:
            count += 10
    return count


def test_enums_compile_to_integers() -> None:
    kinds = [CacheScore.LRU, CacheScore.TABLE, CacheScore.LFU, CacheScore.REUSE]
    assert _count_kinds(np.array(kinds, np.int64)) == 12
