"""Means over seeds with 95 % intervals, by Student's t."""

from math import sqrt

import numpy as np

# Of 1 to 30 degrees of freedom, so that 95 % lie within; Fisher's table.
QUANTILES = [12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
             2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
             2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423]
NORMAL = 1.959964


def quantile(degrees: int) -> float:
    """Beyond the table by the first terms of the expansion around the normal distribution's."""
    if degrees <= len(QUANTILES):
        return QUANTILES[degrees - 1]
    z = NORMAL
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def mean_and_half(values: list[float]) -> tuple[float, float | None]:
    """The mean and half the interval; None of one value."""
    if len(values) < 2:
        return float(np.mean(values)), None
    return float(np.mean(values)), quantile(len(values) - 1) * float(np.std(values, ddof=1)) / sqrt(len(values))
