"""Policies whose models are identified while the streams are read."""

from __future__ import annotations

import numpy as np
import pytest

from millpond.lab.online import cache_online, has_useful_model, join_online, join_segments
from millpond.lab.simulate import cache_player, join_player
from millpond.lab.workloads import SYNTHETIC, Workload
from millpond.models.array_types import Ints
from millpond.models.chains import AutoRegressive
from millpond.models.identify import identify
from millpond.models.models import Model, Stationary, Trend
from millpond.models.noise import Noise
from millpond.models.segments import Segment, split_into_segments
from millpond.policies.registry import Use, policy_names

FALLING = Workload(
    "falling", Trend.line(-1, 0, Noise.normal(3.3, 10)), Trend.line(-1, 0, Noise.normal(5, 15)), float
)


def fixed(values: Ints) -> list[Segment]:
    """One segment with the model of the first tenth of the stream."""
    found = identify(values[: len(values) // 10])
    assert found is not None
    return [Segment(0, len(values), found.kind, found.model)]


def in_turn(first: Workload, second: Workload, steps: int) -> tuple[Ints, Ints]:
    """Streams that follow one workload and then another."""
    parts = zip(first.streams(1, 0, steps), second.streams(2, 0, steps), strict=True)
    r, s = (np.concatenate(pair) for pair in parts)
    return r, s


@pytest.mark.parametrize("first", ["WALK", "TOWER"])
def test_a_join_of_changing_streams_finds_more_with_models_identified_online(first: str) -> None:
    r, s = in_turn(SYNTHETIC[first](), FALLING, 2000)
    online = join_segments(r, s, split_into_segments(r), split_into_segments(s))
    once = join_segments(r, s, fixed(r), fixed(s))
    found, stale = (join_online("heeb", 10, parts, r, s) for parts in (online, once))
    assert found > 1.1 * stale


POPULAR = 1 / np.arange(1, 61) / (1 / np.arange(1, 61)).sum()


@pytest.mark.campaign
@pytest.mark.parametrize(
    "first, second",
    [
        (Stationary(Noise(0, POPULAR)), Stationary(Noise(0, POPULAR[::-1]))),
        (AutoRegressive(10.0, 0.8, 6.0), AutoRegressive(0.0, 0.8, 3.0)),
    ],
    ids=["other keys become popular", "another level and spread"],
)
def test_a_cache_of_changing_keys_hits_more_with_models_identified_online(
    first: Model, second: Model
) -> None:
    rng = np.random.default_rng(1)
    keys = np.concatenate([first.sample(rng, 2000), second.sample(rng, 2000)])
    found, stale = (
        cache_online("heeb", 5, parts, keys).sum() for parts in (split_into_segments(keys), fixed(keys))
    )
    assert found > 1.5 * stale
    assert found > cache_player("lru", 5, None)(keys).sum()


@pytest.mark.parametrize("name", ["TOWER", "ROOF"])
def test_identification_costs_little_on_streams_that_do_not_change(name: str) -> None:
    work = SYNTHETIC[name]()
    r, s = work.streams(1, 0, 2000)
    online = join_online(
        "heeb", 10, join_segments(r, s, split_into_segments(r), split_into_segments(s)), r, s
    )
    assert online > 0.97 * join_player("heeb", work, 10)(r, s, 0)


@pytest.mark.parametrize("policy", policy_names(Use.LAB_JOIN))
def test_every_join_policy_plays(policy: str) -> None:
    r, s = SYNTHETIC["TOWER"]().streams(1, 0, 160)
    parts = join_segments(r, s, split_into_segments(r), split_into_segments(s))
    least = 0 if policy == "lfu" else 1  # which never lets a new tuple prove itself
    found = join_online(policy, 4, parts, r, s)
    assert least <= found <= join_online("opt", 4, parts, r, s)


@pytest.mark.campaign
@pytest.mark.parametrize("policy", policy_names(Use.LAB_CACHE))
def test_every_cache_policy_plays(policy: str) -> None:
    keys = AutoRegressive(4.0, 0.6, 5.0).sample(np.random.default_rng(1), 600)
    parts = split_into_segments(keys)
    assert has_useful_model(parts)
    assert 0 < cache_online(policy, 8, parts, keys).sum() <= cache_player("lfd", 8, None)(keys).sum()


@pytest.mark.parametrize("policy", ["heeb", "heeb-online", "ao", "rehearse"])
def test_a_single_segment_equals_a_given_model(policy: str) -> None:
    model = AutoRegressive(4.0, 0.6, 5.0)
    keys = model.sample(np.random.default_rng(2), 800)
    parts = [Segment(0, 800, "ar1", model)]
    assert (cache_online(policy, 8, parts, keys) == cache_player(policy, 8, model)(keys)).all()


@pytest.mark.parametrize("policy", ["heeb", "heeb-adaptive", "life", "prob", "flowexpect"])
def test_segments_with_the_same_model_give_the_same_results(policy: str) -> None:
    work = SYNTHETIC["ROOF"]()
    r, s = work.streams(3, 0, 300)
    halves = [
        [Segment(0, cut, "trend", model), Segment(cut, 300, "trend", later)]
        for cut, model, later in ((100, work.r, _later(work.r, 100)), (170, work.s, _later(work.s, 170)))
    ]
    parts = join_segments(r, s, *halves)
    assert [part.start for part in parts] == [0, 100, 170]
    whole = join_segments(r, s, [Segment(0, 300, "trend", work.r)], [Segment(0, 300, "trend", work.s)])
    assert join_online(policy, 6, parts, r, s) == join_online(policy, 6, whole, r, s)


def _later(model: object, start: int) -> Trend:
    assert isinstance(model, Trend)
    return Trend(model.slope, model.intercept + start * model.slope, model.noise)
