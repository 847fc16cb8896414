"""Sweeps: points of an experiment that differ in one number."""

from collections import defaultdict
from dataclasses import dataclass
from math import isfinite

from plots.comparison import Comparison

FEWEST_POINTS = 3


@dataclass
class Sweep:
    """Points along one key of the configuration; `others` are what else varies in the experiment, as it is here."""

    key: str
    others: dict[str, str]
    points: list[Comparison]  # ascending in the key's number

    @property
    def experiment(self) -> str:
        return self.points[0].experiment


def find_sweeps(comparisons: list[Comparison]) -> list[Sweep]:
    """Along the numeric key with the most values of each experiment, one for each value of the other keys."""
    experiments = defaultdict(list)
    for comparison in comparisons:
        experiments[comparison.experiment].append(comparison)
    return [sweep for points in experiments.values() for sweep in sweeps_of(points)]


def sweeps_of(points: list[Comparison]) -> list[Sweep]:
    values = {key: {point.point[key] for point in points} for key in points[0].point}
    numeric = [key for key in values if all(map(is_number, values[key]))]
    if not numeric:
        return []
    along = max(numeric, key=lambda key: len(values[key]))
    groups = defaultdict(list)
    for point in points:
        groups[tuple((key, value) for key, value in point.point.items() if key != along)].append(point)
    return [Sweep(along, dict(others), sorted(members, key=lambda point: float(point.point[along])))
            for others, members in groups.items() if len(members) >= FEWEST_POINTS]


def is_number(text: str) -> bool:
    try:
        return isfinite(float(text))
    except ValueError:
        return False
