"""The score surface of an AR(1) model, interpolated from a few control points (section 6.5)."""

from __future__ import annotations

import numpy as np
from scipy.interpolate import RectBivariateSpline

from millpond.models.array_types import Ints
from millpond.models.chains import AutoRegressive
from millpond.models.score_tables import ScoreTable


def interpolate_surface(table: ScoreTable, domain: tuple[int, int], points: int = 5) -> ScoreTable:
    """Approximate an AR(1) table h(v, x) by bicubic interpolation of ``points`` x ``points`` control points.

    The control points are equally spaced over the domain in both directions; outside the domain a score is
    that of the nearest point inside.
    """
    model = table.model
    if not isinstance(model, AutoRegressive):
        raise TypeError("only the scores of an AR(1) model form a surface")
    controls = control_points(domain, points)
    heights = np.vstack([table.look_up(controls, 0, int(x)) for x in controls])
    spline = RectBivariateSpline(controls, controls, heights, kx=3, ky=3)
    places = np.clip(np.arange(model.low, model.high + 1), *domain)
    return ScoreTable(model, model.low, spline(places, places), table.below, table.above)


def control_points(domain: tuple[int, int], points: int) -> Ints:
    """Equally spaced integers that span the domain."""
    return np.rint(np.linspace(*domain, points)).astype(np.int64)
