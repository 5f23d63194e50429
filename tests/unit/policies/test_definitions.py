"""Every policy has a definition, and its compiled loop in the lab gives the same results."""

from __future__ import annotations

import numpy as np
import pytest

from millpond.lab.simulate import cache_player, join_player, run_in_cache_store, warm_up
from millpond.lab.workloads import SYNTHETIC
from millpond.models.array_types import integers
from millpond.models.chains import AutoRegressive
from millpond.policies.definitions import CACHE_DEFINITIONS, JOIN_DEFINITIONS, CacheSetting, JoinSetting
from millpond.policies.registry import Use, policy_names
from millpond.policies.store import NEVER, JoinStore

MODEL = AutoRegressive(4.0, 0.6, 3.0)


def test_every_policy_that_scores_candidates_has_a_definition() -> None:
    assert set(policy_names(Use.LAB_JOIN)) - set(JOIN_DEFINITIONS) == {"opt", "rehearse"}
    assert set(policy_names(Use.LAB_CACHE)) - set(CACHE_DEFINITIONS) == {"arc", "heeb-online"}


@pytest.mark.parametrize("policy", sorted(set(JOIN_DEFINITIONS) - {"rand", "heeb-adaptive"}))
def test_the_lab_joins_as_the_definition_says(policy: str) -> None:
    work, size = SYNTHETIC["ROOF"](), 5
    r, s = work.streams(1, 0, 200)
    leaves = work.leaves(r, s) if policy in ("prob", "life", "lru", "lfu", "fifo") else None
    r_end, s_end = leaves if leaves is not None else (np.full(200, NEVER), np.full(200, NEVER))
    store = JoinStore(size, JOIN_DEFINITIONS[policy](JoinSetting(work.r, work.s, size, work.alpha(size))))
    found = [
        store.step(t, integers(r[t]), integers(s[t]), int(r_end[t]), int(s_end[t])) for t in range(len(r))
    ]
    assert join_player(policy, work, size)(r, s, 0) == sum(found[warm_up(size) :])


@pytest.mark.parametrize("policy", sorted(set(CACHE_DEFINITIONS) - {"rand"}))
def test_the_lab_caches_as_the_definition_says(policy: str) -> None:
    keys = MODEL.sample(np.random.default_rng(1), 400)
    hits = run_in_cache_store(policy, CacheSetting(keys, 6, MODEL))
    assert cache_player(policy, 6, MODEL)(keys).tolist() == hits.tolist()


def test_a_definition_that_needs_a_model_says_so() -> None:
    with pytest.raises(ValueError, match="needs a model"):
        CACHE_DEFINITIONS["heeb"](CacheSetting(np.arange(3), 2))
