"""Grids: runs of an experiment that differ in two numbers."""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from plots.comparison import Comparison
from plots.methods import BASELINE, OWN, Method, settings
from plots.quantities import ACCURACY, BYTES, LOSS, SPEED, SPEED_UP, Quantity
from plots.sweeps import FEWEST_POINTS, number_of
from plots.variation import flat, value_text

FEWEST_ROWS = 2  # of a map


@dataclass
class Grid:
    """Methods at the values of two keys; `others` are what else varies, as it is here."""

    x_key: str  # the one with more values
    y_key: str
    others: dict[str, str]
    where: Comparison
    methods: dict[str, dict[tuple[float, float], Method]] = field(default_factory=dict)  # by label, then place
    baselines: dict[tuple[float, float], Method] = field(default_factory=dict)  # synchronous SGD beside them
    x_names: dict[float, str] = field(default_factory=dict)  # what the sweep calls the values
    y_names: dict[float, str] = field(default_factory=dict)

    @property
    def experiment(self) -> str:
        return self.where.experiment

    @property
    def labels(self) -> list[str]:
        """Of the maps: what others are divided by has none."""
        against = {method.base for method in self.baselines.values()} if self.quantity.against_baseline else set()
        return [label for label in self.methods if label not in against]

    @property
    def xs(self) -> list[float]:
        return sorted(self.x_names)

    @property
    def ys(self) -> list[float]:
        return sorted(self.y_names)

    @property
    def quantity(self) -> Quantity:
        """What training comes to, or else speed: S_eff where synchronous SGD is at every place."""
        runs = [run for places in self.methods.values() for method in places.values() for run in method.runs]
        places = {place for of_method in self.methods.values() for place in of_method}
        has_others = any(method.algorithm != BASELINE for of_method in self.methods.values() for method in of_method.values())
        speed = SPEED_UP if has_others and places <= set(self.baselines) else SPEED
        return next((one for one in (ACCURACY, LOSS) if any(np.isfinite(one.value(run)) for run in runs)), speed)

    @property
    def quantities(self) -> list[Quantity]:
        """And what is sent, where that depends on the place."""
        sent = [value for label in self.labels for value in self.values(label, BYTES).ravel() if np.isfinite(value)]
        return [self.quantity] + [BYTES] * (self.quantity in (ACCURACY, LOSS) and len({round(value) for value in sent}) > 1)

    def values(self, label: str, quantity: Quantity | None = None) -> np.ndarray:
        """[y, x]: the mean over the seeds; nan where a run is missing, or a seed has no such number."""
        places, quantity = self.methods[label], quantity or self.quantity
        return np.array([[self.mean(places[x, y], (x, y), quantity) if (x, y) in places else np.nan for x in self.xs]
                         for y in self.ys])

    def mean(self, method: Method, place: tuple[float, float], quantity: Quantity) -> float:
        values = {run.seed: quantity.value(run) for run in method.runs}
        if quantity.against_baseline:
            others = {run.seed: quantity.value(run) for run in self.baselines[place].runs}
            values = {seed: value / others[seed] for seed, value in values.items() if others.get(seed)}
        return float(np.mean(list(values.values()))) if values else np.nan


def find_grids(comparisons: list[Comparison]) -> list[Grid]:
    """Of each method along its two keys with the most values, three and two at least; methods with the same keys together."""
    entries = defaultdict(list)
    for comparison in comparisons:
        for method in comparison.methods:
            place = {**comparison.point, **{OWN + key: value for key, value in method.own.items()}}
            entries[comparison.experiment, method.base].append((place, comparison, method))
    grids: dict[tuple, Grid] = {}
    for (experiment, base), places in entries.items():
        numbers = numbers_of(places)
        if len(numbers) < 2:
            continue
        x_key, y_key = sorted(numbers, key=lambda key: -len(numbers[key]))[:2]
        for place, comparison, method in places:
            others = {key: value for key, value in place.items() if key not in (x_key, y_key) and key in different(places)
                      and not any(together(places, key, axis) for axis in (x_key, y_key))}
            grid = grids.setdefault((experiment, x_key, y_key, *others.items()), Grid(x_key, y_key, others, comparison))
            x, y = numbers[x_key][place[x_key]], numbers[y_key][place[y_key]]
            grid.methods.setdefault(base, {})[x, y] = method
            if baseline := next((other for other in comparison.methods if other.algorithm == BASELINE), None):
                grid.baselines[x, y] = baseline
            grid.x_names[x], grid.y_names[y] = value_text(x_key, place[x_key]), value_text(y_key, place[y_key])
    return [grid for grid in grids.values() if len(grid.xs) >= FEWEST_POINTS and len(grid.ys) >= FEWEST_ROWS
            and any(np.isfinite(grid.values(label)).any() for label in grid.labels)]


def numbers_of(places: list[tuple]) -> dict[str, dict[str, float]]:
    """By key the number behind each of its values, where all are numbers, two at least, and no earlier key goes with it."""
    found: dict[str, dict[str, float]] = {}
    for key in dict.fromkeys(key for place, _, _ in places for key in place):
        if not all(key in place for place, _, _ in places):
            continue
        numbers = {place[key]: number_of(place[key], setting(key, method)) for place, _, method in places}
        if (None not in numbers.values() and len(set(numbers.values())) >= FEWEST_ROWS
                and not any(together(places, key, earlier) for earlier in found)):
            found[key] = numbers
    return found


def setting(key: str, method: Method) -> str | None:
    run = method.runs[0]
    return flat(settings(run)).get(key.removeprefix(OWN)) if key.startswith(OWN) else flat(run.config).get(key)


def different(places: list[tuple]) -> set[str]:
    keys = {key for place, _, _ in places for key in place}
    return {key for key in keys if len({place.get(key) for place, _, _ in places}) > 1}


def together(places: list[tuple], key: str, other: str) -> bool:
    """Whether each value of one has its own value of the other."""
    pairs = {(place.get(key), place.get(other)) for place, _, _ in places}
    return len(pairs) == len({one for one, _ in pairs}) == len({one for _, one in pairs})
