"""From the evaluations of several seeds to one curve with a band."""

from dataclasses import dataclass

import numpy as np

from plots.methods import Method

GRID_POINTS = 400


@dataclass
class Curve:
    """The mean over seeds and its extremes; all arrays have one length."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def common_grid(xs: list[np.ndarray]) -> np.ndarray:
    """Points at which all of several ascending sequences can be interpolated: from the latest beginning to the
    earliest end. The sequences themselves where they are equal; one point if they share no more; empty if they do
    not overlap."""
    if all(np.array_equal(x, xs[0]) for x in xs):
        return xs[0]
    begin, end = max(x[0] for x in xs), min(x[-1] for x in xs)
    if begin == end:
        return np.array([begin])
    return np.linspace(begin, end, GRID_POINTS) if begin < end else np.array([])


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


def shown_range(curves: list[Curve], skip: float = 0.18) -> tuple[float, float]:
    """The values after the first `skip` of each curve, so that its steep beginning does not squeeze the rest."""
    low, high = [], []
    for curve in curves:
        kept = curve.x >= curve.x[0] + skip * (curve.x[-1] - curve.x[0])
        low.append(curve.low[kept].min())
        high.append(curve.high[kept].max())
    return min(low), max(high)
