"""Finds a value between two bounds that is not taken yet."""

from __future__ import annotations

from fractions import Fraction

# A bound and whether it is excluded; None if there is no bound.
End = tuple[Fraction, bool] | None


def find_free_value(
    low: End, high: End, step: Fraction, taken: set[Fraction], margin: int
) -> Fraction | None:
    """A value between two bounds, close to the lower one, that is not taken; None if there is none.

    With a single bound, ``margin`` steps next to it stay free, because other columns may need values there.
    """
    if step:
        return _find_stepped(low, high, step, taken, margin)
    return _find_dense(low, high, taken)


def _find_stepped(low: End, high: End, step: Fraction, taken: set[Fraction], margin: int) -> Fraction | None:
    if low is not None:
        start, way = -(-low[0] // step) * step, step
        if low[1] and start == low[0]:
            start += step
        start += margin * step if high is None else 0
    elif high is not None:
        start, way = (high[0] // step) * step, -step
        if high[1] and start == high[0]:
            start -= step
        start -= margin * step
    else:
        start, way = Fraction(0), step
    for _ in range(len(taken) + 1):
        if high is not None and (start > high[0] or (start == high[0] and high[1])):
            return None
        if start not in taken:
            return start
        start += way
    return None


def _find_dense(low: End, high: End, taken: set[Fraction]) -> Fraction | None:
    if low is not None and high is not None and low[0] == high[0]:
        return low[0] if not (low[1] or high[1] or low[0] in taken) else None
    if low is not None and high is not None:
        width = high[0] - low[0]
        choices = [low[0] + width * Fraction(k, len(taken) + 2) for k in range(1, len(taken) + 2)]
    elif low is not None:
        choices = [low[0] + k for k in range(1, len(taken) + 2)]
    elif high is not None:
        choices = [high[0] - k for k in range(1, len(taken) + 2)]
    else:
        choices = [Fraction(k) for k in range(len(taken) + 1)]
    return next((c for c in choices if c not in taken), None)
