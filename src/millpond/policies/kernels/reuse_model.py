"""The reuse model: how long after a reference the next one to the same key comes.

In traces of real programs (loops, scans, aging) the next reference to a key is predicted by the time since
its last one and by its previous reuse distance.  So keys are put into classes by their last reuse distance;
keys seen once are their own class.  For every class the references are counted by age, in bins that widen
with age.  A row's score is the best rate of hits per step that it can earn if it is evicted at the best time.
In a loop longer than the cache the *oldest* rows score highest; after a scan the new rows score lowest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from millpond.models.array_types import Floats, Ints
from millpond.policies.kernels.compiled import compiled, inlined
from millpond.policies.kernels.growth import extend

# Bins per octave of age, octaves, and classes: keys seen once, and one class for each octave of the distance.
PARTS = 4
OCTAVES = 24
BINS = PARTS * OCTAVES
CLASSES = OCTAVES + 1
# References between two updates of the rates, and the factor by which an update fades the counts.
PERIOD = 500
FADING = 0.9
# The weight of the prior, in widths of a bin: every class starts with the rate of all classes together.
PRIOR = 20.0


@inlined
def age_bin(age: int) -> int:
    """The bin of an age: 0, 1, … and then PARTS bins for every doubling."""
    octave = 0
    while age >= 2 * PARTS:
        age >>= 1
        octave += 1
    return min(PARTS * octave + age, BINS - 1)


@inlined
def bin_start(place: int) -> int:
    """The lowest age in a bin."""
    if place < 2 * PARTS:
        return place
    octave = place // PARTS - 1
    return (place - octave * PARTS) << octave


@inlined
def reuse_class(distance: int) -> int:
    """The class of a key whose last two references lay this far apart."""
    return 1 + min(age_bin(distance) // PARTS, CLASSES - 2)


@inlined
def add_exposure(exposure: Floats, since: int, until: int) -> None:
    """Count the ages from ``since`` to ``until`` - 1 as exposure."""
    for place in range(age_bin(since), age_bin(until) + 1):
        low = max(since, bin_start(place))
        high = min(until, bin_start(place + 1)) if place < BINS - 1 else until
        if high > low:
            exposure[place] += high - low


@compiled
def update_rates(events: Floats, exposure: Floats, rates: Floats) -> None:
    """Update the best rate of hits per step of every class and bin, from its references and exposure.

    Within a bin references are assumed to come at a constant rate.
    """
    pooled_events = events.sum(axis=0)
    pooled_exposure = exposure.sum(axis=0)
    hazard = np.zeros(BINS)
    for group in range(CLASSES):
        for place in range(BINS):
            width = float(bin_start(place + 1) - bin_start(place))
            known = pooled_events[place] / pooled_exposure[place] if pooled_exposure[place] > 0 else 0.0
            hazard[place] = (events[group, place] + PRIOR * width * known) / (
                exposure[group, place] + PRIOR * width
            )
        for place in range(BINS):
            alive, hits, steps, best = 1.0, 0.0, 0.0, 0.0
            for later in range(place, BINS):
                width = float(bin_start(later + 1) - bin_start(later))
                if hazard[later] > 0:
                    lost = alive * -np.expm1(-hazard[later] * width)
                    hits += lost
                    steps += lost / hazard[later]
                    alive -= lost
                else:
                    steps += alive * width
                best = max(best, hits / steps)
                if alive < 1e-4:
                    break
            rates[group, place] = best


@compiled
def starting_rates() -> Floats:
    """The rates before any reference: the more recent a key, the higher."""
    rates = np.empty((CLASSES, BINS))
    for place in range(BINS):
        rates[:, place] = 1.0 / (1 + bin_start(place))
    return rates


class ReuseState(NamedTuple):
    """What the model knows of every key, and its counts by class and bin."""

    used: Ints  # by key: the step of its last reference, or -1
    since: Ints  # by key: the step up to which its age is counted as exposure
    group: Ints  # by key: its class
    events: Floats  # references
    exposure: Floats  # steps at that age
    rates: Floats


def empty_state() -> ReuseState:
    """The state before any reference; it has room for no key."""
    none = np.empty(0, np.int64)
    return ReuseState(
        none, none, none, np.zeros((CLASSES, BINS)), np.zeros((CLASSES, BINS)), starting_rates()
    )


def reserve_keys(state: ReuseState, count: int) -> ReuseState:
    """The state with room for at least ``count`` keys."""
    used, since, group, events, exposure, rates = state
    return ReuseState(
        extend(used, count, -1), extend(since, count, 0), extend(group, count, 0), events, exposure, rates
    )


@inlined
def record_reference(now: int, key: int, state: ReuseState) -> bool:
    """Count a reference; return whether the key is new."""
    used, group = state.used, state.group
    is_new = used[key] < 0
    if not is_new:
        age = now - used[key]
        add_exposure(state.exposure[group[key]], state.since[key] - used[key], age)
        state.events[group[key], age_bin(age)] += 1
        group[key] = reuse_class(age)
    used[key] = now
    state.since[key] = now
    return bool(is_new)


@compiled
def refresh(now: int, known: Ints, state: ReuseState) -> None:
    """Count the exposure of all known keys, update the rates and fade the counts; due every PERIOD steps."""
    for i in range(len(known)):
        key = known[i]
        used = state.used[key]
        add_exposure(state.exposure[state.group[key]], state.since[key] - used, now - used)
        state.since[key] = now
    update_rates(state.events, state.exposure, state.rates)
    state.events[:] *= FADING
    state.exposure[:] *= FADING
