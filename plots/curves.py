"""From the evaluations of several seeds to one curve with a band."""

from dataclasses import dataclass

import numpy as np

from plots.methods import Method


@dataclass
class Curve:
    """The mean over seeds and its extremes; all arrays have one length."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def common_grid(xs: list[np.ndarray]) -> np.ndarray:
    """Points at which all of several ascending sequences can be interpolated: their own, from the latest beginning to
    the earliest end, so that a curve has points, and marks, only where something was measured, and is exact between
    them. The sequences themselves where they are equal; empty if they do not overlap."""
    if all(np.array_equal(x, xs[0]) for x in xs):
        return xs[0]
    begin, end = max(x[0] for x in xs), min(x[-1] for x in xs)
    points = np.unique(np.concatenate(xs))
    return points[(points >= begin) & (points <= end)]


def mean_curve(xs: list[np.ndarray], ys: list[np.ndarray]) -> Curve | None:
    """The curve of several (x, y) sequences, each ascending in x. Values that are not finite are left out, and
    so is a sequence that has no others (its run diverged). None where nothing remains."""
    finite = [np.isfinite(x) & np.isfinite(y) for x, y in zip(xs, ys)]
    pairs = [(x[kept], y[kept]) for x, y, kept in zip(xs, ys, finite) if kept.any()]
    grid = common_grid([x for x, _ in pairs]) if pairs else np.array([])
    if not len(grid):
        return None
    values = np.stack([np.interp(grid, x, y) for x, y in pairs])
    return Curve(grid, values.mean(0), values.min(0), values.max(0))


def method_curve(method: Method, x_column: str, y_column: str) -> Curve | None:
    tables = [run.metrics.sort_values(x_column, kind="stable") for run in method.runs]
    return mean_curve([table[x_column].to_numpy(float) for table in tables],
                      [table[y_column].to_numpy(float) for table in tables])


# A few methods far off would set the scale, so that the others lie on each other: where without them (no more than a
# quarter) the others spread over less than this share of the whole, these leave the panel.
CROWDED, MOST_BEYOND = 0.4, 0.25


def shown_range(curves: list[Curve], skip: float = 0.18) -> tuple[float, float]:
    """The values after the first `skip` of each curve, so that its steep beginning does not squeeze the rest; without those
    of a few methods that are far off."""
    ranges = []
    for curve in curves:
        kept = curve.x >= curve.x[0] + skip * (curve.x[-1] - curve.x[0])
        ranges.append((curve.low[kept].min(), curve.high[kept].max()))
    whole = ends_of(ranges)
    fewest = max(3, int(np.ceil((1 - MOST_BEYOND) * len(ranges))))
    for furthest_last in (sorted(ranges, key=lambda one: -one[0]), sorted(ranges, key=lambda one: one[1])):
        for count in range(len(ranges) - 1, fewest - 1, -1):
            low, high = ends_of(furthest_last[:count])
            if high - low < CROWDED * (whole[1] - whole[0]):
                return low, high
    return whole


def ends_of(ranges: list[tuple[float, float]]) -> tuple[float, float]:
    return min(low for low, _ in ranges), max(high for _, high in ranges)
