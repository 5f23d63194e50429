"""The workloads of section 6.1 (TOWER, ROOF, FLOOR, WALK and REAL), and traces from files."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from millpond.errors import MillpondError, describe_os_error
from millpond.models.array_types import Ints, integers
from millpond.models.chains import AutoRegressive, Walk
from millpond.models.lifetime import alpha_for
from millpond.models.models import Model, Trend
from millpond.models.noise import Noise
from millpond.policies.heeb import published_alpha

# Section 6.5: temperatures in tenths of a degree.
REAL_MODEL = AutoRegressive(55.9, 0.72, 42.2)
REAL_LENGTH = 3650


@dataclass(frozen=True, eq=False)
class Workload:
    """The models of two streams to join, and the alpha that section 5 chooses for a memory size."""

    name: str
    r: Model
    s: Model
    alpha: Callable[[int], float]

    def streams(self, seed: int, run: int, steps: int) -> tuple[Ints, Ints]:
        """The streams of one run, which the seed and the run determine."""
        rng = np.random.default_rng([seed, run])
        return self.r.sample(rng, steps), self.s.sample(rng, steps)

    @property
    def windows(self) -> bool:
        """Whether the bounds of the noise limit the lifetime of each tuple."""
        return isinstance(self.r, Trend) and isinstance(self.s, Trend)

    def leaves(self, r: Ints, s: Ints) -> tuple[Ints, Ints] | None:
        """For each tuple, the first step at which no partner can come any more; None without such a step."""
        if isinstance(self.r, Trend) and isinstance(self.s, Trend) and self.r.slope and self.s.slope:
            return self.s.leaves(r), self.r.leaves(s)
        return None


def _trend(name: str, r: Noise, s: Noise, lifetime: float, lag: int = 1) -> Workload:
    alpha = alpha_for(lifetime)
    line = Fraction(1)
    return Workload(name, Trend(line, Fraction(-lag), r), Trend(line, Fraction(0), s), lambda size: alpha)


def bounded_normal(
    name: str, r: float, s: float, lag: int = 1, bounds: tuple[int, int] = (10, 15)
) -> Workload:
    """Section 5.4: trends of slope 1 with normal noise of the given deviations within bounds of the line.

    The estimated lifetime of a tuple is the time in which the line rises by twice the average deviation.
    """
    return _trend(name, Noise.normal(r, bounds[0]), Noise.normal(s, bounds[1]), r + s, lag)


def tower() -> Workload:
    """Narrow normal noise: the next values are nearly known."""
    return bounded_normal("TOWER", 1.0, 2.0)


def roof() -> Workload:
    """Wide normal noise."""
    return bounded_normal("ROOF", 3.3, 5.0)


def floor() -> Workload:
    """Section 5.3: uniform noise; the estimated lifetime is half the average width of the noise."""
    return _trend("FLOOR", Noise.uniform(-10, 10), Noise.uniform(-15, 15), (10 + 15) / 2)


def walk() -> Workload:
    """Section 5.5: two random walks with normal steps; alpha is the memory size."""
    return Workload("WALK", Walk.normal(1.0), Walk.normal(1.0), float)


def workload_of(name: str, r: Model, s: Model) -> Workload:
    """The workload of two models, with the alpha that section 5 chooses for them."""
    return Workload(name, r, s, lambda size: published_alpha(r, s, size))


SYNTHETIC: dict[str, Callable[[], Workload]] = {"TOWER": tower, "ROOF": roof, "FLOOR": floor, "WALK": walk}


# --- files -----------------------------------------------------------------------------------------


def read_keys(path: Path) -> Ints:
    """Read the keys of a trace: one per line (integers or words), or the tenths of a degree of a series.

    A series has lines ``Date,Temperature``.  ``.gz`` files are decompressed; blank lines and lines with a
    single ``*`` are skipped.
    """
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise MillpondError(
            f"cannot read the trace {path}: {_describe(error)}",
            remedy="give one key per line, as text or .gz",
        ) from None
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and line != "*"]
    if lines and "," in lines[0]:
        return _parse_temperatures(path, lines[1:])
    if not lines:
        raise MillpondError(f"the trace {path} has no keys", remedy="give one key per line")
    try:
        return integers([int(line) for line in lines])
    except (ValueError, OverflowError):
        return integers(np.unique(np.array(lines), return_inverse=True)[1])


def _describe(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return describe_os_error(error)
    return "it is damaged" if isinstance(error, EOFError | OSError) else "it is not UTF-8 text"


def _parse_temperatures(path: Path, rows: list[str]) -> Ints:
    try:
        degrees = [float(row.rsplit(",", 1)[1].strip('"')) for row in rows]
    except (ValueError, IndexError):
        raise MillpondError(
            f"the trace {path} has a line without a number after its last comma",
            remedy="give Date,Temperature lines below a header line, or one key per line",
        ) from None
    return integers(np.rint(np.array(degrees) * 10))


def load_real(path: Path | None, seed: int) -> Ints:
    """REAL: the series in the file, or without a file a series drawn from the published AR(1) model."""
    if path is not None:
        return read_keys(path)
    return REAL_MODEL.sample(np.random.default_rng([seed, 0]), REAL_LENGTH)
