"""Fewer points of a line that looks the same."""

import numpy as np

POINTS = 240  # of a line at most
NUMBERS = 450_000  # of all lines of a page: about 1.6 MB of it
FEWEST = 16


def points_per_line(lists: int) -> int:
    """So many that the page stays small, whatever the number of its lists of numbers."""
    return int(np.clip(NUMBERS // max(1, lists), FEWEST, POINTS))


def kept_points(values: np.ndarray, most: int) -> np.ndarray:
    """Positions of at most so many points (4 at least): both ends, and of equal pieces between them the lowest and the
    highest, so that no spike is lost."""
    if len(values) <= most:
        return np.arange(len(values))
    pieces = np.array_split(np.arange(1, len(values) - 1), (most - 2) // 2)
    extremes = [piece[at] for piece in pieces for at in (np.argmin(values[piece]), np.argmax(values[piece]))]
    return np.unique([0, *extremes, len(values) - 1])
