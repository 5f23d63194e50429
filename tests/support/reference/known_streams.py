"""Models of streams that are known in advance, as values (section 5.1) or as distributions of each step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millpond.models.array_types import Floats, Ints, integers
from millpond.models.models import Model, Past
from millpond.models.noise import Noise


@dataclass(frozen=True, eq=False)
class Offline(Model):
    """A stream known in advance: ``values[t]`` comes at step t, and nothing after the last one."""

    values: Ints

    def chances(self, values: Ints, ahead: int, past: Past) -> Floats:
        coming = self.values[past.now + 1 : past.now + 1 + ahead]
        chances = np.zeros((ahead, len(values)))
        chances[: len(coming)] = coming[:, None] == values[None, :]
        return chances

    def reach(self, ahead: int) -> tuple[int, int]:
        return int(self.values.min()), int(self.values.max())

    def sample(self, rng: np.random.Generator, steps: int) -> Ints:
        return self.values[:steps]


@dataclass(frozen=True, eq=False)
class Scripted(Model):
    """Independent steps with different distributions: that of step t is ``steps[t]``."""

    steps: tuple[Noise, ...]

    def chances(self, values: Ints, ahead: int, past: Past) -> Floats:
        coming = self.steps[past.now + 1 : past.now + 1 + ahead]
        chances = np.zeros((ahead, len(values)))
        for delta, noise in enumerate(coming):
            chances[delta] = noise(values)
        return chances

    def reach(self, ahead: int) -> tuple[int, int]:
        return min(noise.first for noise in self.steps), max(noise.last for noise in self.steps)

    def sample(self, rng: np.random.Generator, steps: int) -> Ints:
        return integers([noise.sample(rng, 1)[0] for noise in self.steps[:steps]])
