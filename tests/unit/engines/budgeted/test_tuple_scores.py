"""Scores of tuples: by models of their partners, by frequencies, by age and use."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from millpond.engines.budgeted.partner_stream import WindowFront
from millpond.engines.budgeted.program import JoinKeyKind, LevelProgram, SideProgram
from millpond.engines.budgeted.tuple_scores import CandidateTuples, LevelScorer
from millpond.errors import MillpondError
from millpond.lab.workloads import SYNTHETIC, workload_of
from millpond.models.array_types import Floats, Ints
from millpond.models.models import Stationary, Trend
from millpond.models.noise import Noise
from millpond.models.score_tables import heeb_table
from millpond.policies.heeb import published_alpha
from millpond.policies.registry import PolicyChoice

SIDE = SideProgram("s", "0", "0", b"")
NUMBER = LevelProgram(SIDE, SIDE, JoinKeyKind.NUMBER, "TRUE", exact=True, whole=True, windowed=False)
BAND = replace(NUMBER, kind=JoinKeyKind.BAND, low=-1.0, high=2.0)
WINDOW = replace(NUMBER, windowed=True, low=0.0, high=10.0)
Numbers = Ints | Floats
RNG = np.random.default_rng(0)


def tuples(*values: float, places: tuple[float, ...] = (), came: tuple[float, ...] = ()) -> CandidateTuples:
    count = len(values)
    numbers = np.arange(count, dtype=np.float64)
    return CandidateTuples(
        np.array(values),
        np.array(places or [0.0] * count),
        np.array(came) if came else numbers,
        numbers[::-1].copy(),
        np.arange(count),
    )


def train_scorer(level: LevelProgram, choice: PolicyChoice, left: Numbers, right: Numbers) -> LevelScorer:
    scorer = LevelScorer(level, choice, (choice.models.get("R"), choice.models.get("S")), 10, 1)
    for partner, values in zip(scorer.partners, (left, right), strict=True):
        partner.observe(values, np.zeros(len(values)), values, len(values))
    return scorer


@pytest.mark.parametrize("name", ["TOWER", "ROOF", "WALK"])
def test_scores_with_given_models_are_those_of_the_paper(name: str) -> None:
    """H at the step and last value of the partner stream, with the alpha of the paper."""
    work = SYNTHETIC[name]()
    r, s = work.streams(0, 0, 500)
    scorer = train_scorer(NUMBER, PolicyChoice("heeb", {"R": work.r, "S": work.s}), r, s)
    alpha = workload_of(name, work.r, work.s).alpha(10)
    values = np.arange(int(s[-1]) - 8, int(s[-1]) + 9)
    found = scorer.score_tuples(0, tuples(*values), RNG, 500)
    assert found == pytest.approx(heeb_table(work.s, alpha).look_up(values, 499, int(s[-1])), abs=1e-12)


@pytest.mark.parametrize("name", ["TOWER", "ROOF", "WALK"])
def test_scores_with_identified_models_have_nearly_the_order_of_the_true_ones(name: str) -> None:
    work = SYNTHETIC[name]()
    r, s = work.streams(0, 0, 1000)
    true = train_scorer(NUMBER, PolicyChoice("heeb", {"R": work.r, "S": work.s}), r, s)
    identified = train_scorer(NUMBER, PolicyChoice("auto"), r, s)
    values = tuples(*np.arange(int(s[-1]) - 5, int(s[-1]) + 6))
    a, b = (scorer.score_tuples(0, values, RNG, 1000) for scorer in (true, identified))
    assert np.corrcoef(np.argsort(np.argsort(a)), np.argsort(np.argsort(b)))[0, 1] > 0.9
    assert type(identified.partners[1].model) is type(work.s)


def test_without_a_model_frequent_values_have_the_highest_scores() -> None:
    rng = np.random.default_rng(1)
    right = rng.choice(np.array([10**9, -5, 77]), 3000, p=[0.6, 0.3, 0.1])
    scorer = train_scorer(NUMBER, PolicyChoice("auto"), right, right)
    scores = scorer.score_tuples(0, tuples(10**9, -5, 77, 4), RNG, 3000)
    assert list(np.argsort(-scores)) == [0, 1, 2, 3] and scores[3] == 0
    assert scorer.partners[1].model is None


@pytest.mark.parametrize(("side", "low", "high"), [(0, -1, 2), (1, -2, 1)])
def test_the_score_in_a_band_is_the_sum_over_its_values(side: int, low: int, high: int) -> None:
    model = Trend.line(1.0, 0, Noise.normal(3.0))
    times = np.arange(300)
    scorer = train_scorer(BAND, PolicyChoice("heeb", {"R": model, "S": model}), times, times)
    found = scorer.score_tuples(side, tuples(300.0, 310.0), RNG, 300)
    table = heeb_table(model, published_alpha(model, model, 10))
    expected = [
        sum(float(table.look_up(np.array([v + d]), 299, 299)[0]) for d in range(low, high + 1))
        for v in (300, 310)
    ]
    assert found == pytest.approx(expected)


def test_the_score_in_a_band_without_a_model_counts_recent_values() -> None:
    values = np.array([1.0, 2.0, 3.0, 10.0, 20.0])
    scorer = train_scorer(replace(BAND, whole=False), PolicyChoice("prob"), values, values)
    assert scorer.score_tuples(0, tuples(1.5, 10.0, 30.0), RNG, 5) == pytest.approx([0.6, 0.2, 0.0])
    one_sided = train_scorer(
        replace(BAND, whole=False, low=0.0, high=None), PolicyChoice("prob"), values, values
    )
    assert one_sided.score_tuples(0, tuples(2.5), RNG, 5) == pytest.approx([0.6])
    assert one_sided.score_tuples(1, tuples(2.5), RNG, 5) == pytest.approx([0.4])


def test_a_tuple_that_has_left_the_window_has_score_zero() -> None:
    scorer = train_scorer(WINDOW, PolicyChoice("auto"), np.full(50, 7), np.full(50, 7))
    for partner in scorer.partners:
        partner.front = WindowFront(100.0, 1.0)
    scores = scorer.score_tuples(0, tuples(7, 7, 7, places=(80.0, 91.0, 100.0)), RNG, 50)
    assert scores[0] == 0 < scores[1] < scores[2]
    alone = train_scorer(NUMBER, PolicyChoice("auto"), np.full(50, 7), np.full(50, 7)).score_tuples(
        0, tuples(7), RNG, 50
    )
    assert scores[2] == pytest.approx(alone[0] * (1 - np.exp(-10 / 10)))


def test_a_window_front_moves_only_if_positions_rise() -> None:
    rising = WindowFront().advance(np.arange(100.0), 100)
    assert rising.reached == 99 and rising.speed == pytest.approx(1.0)
    jumping = WindowFront().advance(np.array([5.0, 1.0] * 50), 100)
    assert jumping.speed == 0 and np.isinf(jumping.steps_until(np.array([0.0]))).all()


def test_fifo_lru_lfu_and_rand_score_by_age_use_and_chance() -> None:
    values = np.full(3, 7)
    kept = tuples(7, 7, 7)

    def order(name: str) -> list[int]:
        scores = train_scorer(NUMBER, PolicyChoice(name), values, values).score_tuples(0, kept, RNG, 3)
        return [int(place) for place in np.argsort(scores)]

    assert (order("fifo"), order("lru"), order("lfu")) == ([0, 1, 2], [2, 1, 0], [0, 1, 2])
    random = train_scorer(NUMBER, PolicyChoice("rand"), values, values).score_tuples(
        0, kept, np.random.default_rng(5), 3
    )
    assert len(set(random.tolist())) == 3


def test_statistics_are_restored_from_the_state() -> None:
    work = SYNTHETIC["WALK"]()
    r, s = work.streams(0, 0, 700)
    scorer, again = (
        train_scorer(NUMBER, PolicyChoice("auto"), r, s),
        train_scorer(NUMBER, PolicyChoice("auto"), r[:1], s[:1]),
    )
    for mine, theirs in zip(again.partners, scorer.partners, strict=True):
        mine.load(theirs.state())
    values = tuples(*range(-30, 30))
    assert (again.score_tuples(0, values, RNG, 700) == scorer.score_tuples(0, values, RNG, 700)).all()


def test_alpha_is_counted_in_steps_of_the_partner_stream() -> None:
    """A partner stream that is twice as fast has twice as many steps in the same time."""
    values = np.full(100, 7)
    scorer = train_scorer(NUMBER, PolicyChoice("auto", alpha=5.0), values, np.full(200, 7))
    model = Stationary(Noise.point(7))
    expected = heeb_table(model, 10.0).look_up(np.array([7]), 199, 7)
    assert scorer.score_tuples(0, tuples(7), RNG, 100) == pytest.approx(expected)


def test_unknown_policies_are_refused() -> None:
    with pytest.raises(MillpondError, match="there is no policy 'best'; choose from auto, heeb"):
        PolicyChoice("best")
