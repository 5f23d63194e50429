"""Agreement with libcachesim 0.3.5 on public traces, where MILLPOND_DATA or ../shared/data holds them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millpond.lab.simulate import cache_player
from millpond.lab.workloads import REAL_MODEL, read_keys

DATA = Path(os.environ.get("MILLPOND_DATA", Path(__file__).resolve().parents[4] / "shared" / "data"))
SERIES = DATA / "melbourne-max-temperatures.csv"

pytestmark = pytest.mark.skipif(not SERIES.exists(), reason="the traces are not part of the project")

# Hit ratios of LRU, LFU, ARC and Belady's algorithm without bypass.
LIBCACHESIM = {
    ("traces/lirs-multi1.trace.gz", 521): (0.4672, 0.4933, 0.4943, 0.5931),
    ("traces/lirs-gli.trace.gz", 505): (0.0095, 0.0138, 0.0138, 0.3460),
    ("traces/lirs-sprite.trace.gz", 353): (0.6563, 0.2305, 0.6539, 0.8230),
    ("melbourne-max-temperatures.csv", 100): (0.5375, 0.5910, 0.5282, 0.7677),
}


@pytest.mark.parametrize("name, size", LIBCACHESIM)
def test_classic_policies_agree_with_libcachesim(name: str, size: int) -> None:
    keys = read_keys(DATA / name)
    expected = LIBCACHESIM[name, size]
    for policy, ratio in zip(("lru", "lfu-cached", "arc"), expected, strict=False):
        assert cache_player(policy, size, None)(keys).mean() == pytest.approx(ratio, abs=6e-5)
    best = cache_player("lfd", size, None)(keys).mean()
    assert expected[3] - 6e-5 <= best < expected[3] + 0.005  # bypass gains a little
    for policy in ("reuse", "rehearse"):
        assert expected[0] < cache_player(policy, size, None)(keys).mean() <= best


def test_real_agrees_with_an_independent_implementation() -> None:
    keys = read_keys(SERIES)
    ratios = {
        "lru": (0.0992, 0.3781, 0.5375, 0.8307),
        "lfu": (0.0882, 0.3674, 0.6296, 0.8564),
        "heeb": (0.0715, 0.3307, 0.5970, 0.8679),
    }
    for policy, expected in ratios.items():
        found = [cache_player(policy, size, REAL_MODEL)(keys).mean() for size in (10, 50, 100, 200)]
        assert found == pytest.approx(expected, abs=6e-5)


@pytest.mark.campaign
@pytest.mark.parametrize("size", [10, 50, 100, 150, 200, 300])
def test_rehearsal_hits_no_less_than_heeb_and_leads_the_classics_in_the_middle(size: int) -> None:
    keys = read_keys(SERIES)
    hits = {policy: cache_player(policy, size, REAL_MODEL)(keys).sum() for policy in ("lru", "lfu", "heeb")}
    for policy in ("heeb-online", "rehearse"):
        own = cache_player(policy, size, REAL_MODEL)(keys).sum()
        assert own >= hits["heeb"]
        if 50 <= size <= 200:
            assert own > max(hits["lru"], hits["lfu"])
