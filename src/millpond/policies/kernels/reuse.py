"""A model of reuse: how long after a reference the next one to the same key comes.

Traces of real programs loop, scan and age.  What predicts the next reference to a key there is not its value
but the steps since its last one, and how long it took to come back before.  So keys are put into classes by
their last reuse distance (those seen once are a class of their own), and for every class the chance of a
reference is counted by age, in bins that widen with age.  A row is then worth the best rate of hits a step
that it can earn if it is dropped at the best moment: in a loop longer than the cache that is highest for the
*oldest* rows, after a scan lowest for the new ones.
"""

from __future__ import annotations

import numpy as np

from millpond.models.arrays import Floats, Ints
from millpond.policies.kernels.compiled import compiled

# Bins an octave of age has, octaves that are told apart, and classes: seen once, or reused after an octave.
PARTS = 4
OCTAVES = 24
BINS = PARTS * OCTAVES
CLASSES = OCTAVES + 1
# References between two updates of the rates, and what an update leaves of the older counts.
PERIOD = 500
FADING = 0.9
# As many steps of every bin's width are counted in advance, at the rate of all classes together.
PRIOR = 20.0


@compiled
def age_bin(age: int) -> int:
    """The bin of an age: 0, 1, … and then PARTS bins for every doubling."""
    octave = 0
    while age >= 2 * PARTS:
        age >>= 1
        octave += 1
    return min(PARTS * octave + age, BINS - 1)


@compiled
def bin_start(place: int) -> int:
    """The lowest age in a bin."""
    if place < 2 * PARTS:
        return place
    octave = place // PARTS - 1
    return (place - octave * PARTS) << octave


@compiled
def reuse_class(distance: int) -> int:
    """The class of a key whose last two references lay this far apart."""
    return 1 + min(age_bin(distance) // PARTS, CLASSES - 2)


@compiled
def expose(exposure: Floats, since: int, until: int) -> None:
    """Count the ages from ``since`` to ``until`` - 1 as lived through."""
    for place in range(age_bin(since), age_bin(until) + 1):
        low = max(since, bin_start(place))
        high = min(until, bin_start(place + 1)) if place < BINS - 1 else until
        if high > low:
            exposure[place] += high - low


@compiled
def best_rates(events: Floats, exposure: Floats, rates: Floats) -> None:
    """For every class and bin, the best rate of hits a step, from counts of references and of ages lived.

    Within a bin references come at a constant rate.
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
    """Rates before anything is known: the more recent, the better."""
    rates = np.empty((CLASSES, BINS))
    for place in range(BINS):
        rates[:, place] = 1.0 / (1 + bin_start(place))
    return rates


@compiled
def catch_up(
    now: int, known: Ints, count: int, used: Ints, since: Ints, group: Ints, exposure: Floats
) -> None:
    """Count the ages that every known key has lived through since it was last looked at."""
    for i in range(count):
        key = known[i]
        expose(exposure[group[key]], since[key] - used[key], now - used[key])
        since[key] = now
