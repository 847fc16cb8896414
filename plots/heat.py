"""Grids: runs of an experiment that differ in two numbers. Each method has a heat map, with the best cell framed."""

from collections import defaultdict
from dataclasses import dataclass, field

import matplotlib.pyplot as plt
import numpy as np

from plots import style
from plots.comparison import (BASELINE, OWN, Comparison, Method, are_one_to_one, flat, heading, in_words, settings, subtitle,
                              value_text, without_band)
from plots.curves import ACROSS
from plots.numbers import ACCURACY, BYTES, LOSS, SPEED, SPEED_UP, Quantity, best_of
from plots.sheet import Place, Sheet, shared_out
from plots.sweeps import FEWEST_POINTS, along_axis, number_of, size_text_of, span
from plots.terminal import printable

FEWEST_ROWS = 2  # fewest rows of a map
COLOURS = "cividis"  # perceptually uniform, also in grey and for colour-blind readers
MOST_NUMBERS = 64  # most places of a map into which their values are written


@dataclass
class Grid:
    """Methods at the values of two keys. `others`: other keys that vary in the experiment, with their values here."""

    x_key: str  # the key with more values
    y_key: str
    others: dict[str, str]
    where: Comparison
    methods: dict[str, dict[tuple[float, float], Method]] = field(default_factory=dict)  # by label, then by place
    baselines: dict[tuple[float, float], Method] = field(default_factory=dict)  # synchronous SGD, by place
    x_names: dict[float, str] = field(default_factory=dict)  # names of the x values in the sweep
    y_names: dict[float, str] = field(default_factory=dict)

    @property
    def experiment(self) -> str:
        return self.where.experiment

    @property
    def labels(self) -> list[str]:
        """The labels of methods with a map. The method by which others are divided has no map."""
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
        """The quantity of the maps: accuracy or loss; without a model S_eff if synchronous SGD is at every place,
        otherwise speed."""
        runs = [run for places in self.methods.values() for method in places.values() for run in method.runs]
        places = {place for of_method in self.methods.values() for place in of_method}
        has_others = any(method.algorithm != BASELINE for of_method in self.methods.values() for method in of_method.values())
        speed = SPEED_UP if has_others and places <= set(self.baselines) else SPEED
        return next((one for one in (ACCURACY, LOSS) if any(np.isfinite(one.value(run)) for run in runs)), speed)

    @property
    def quantities(self) -> list[Quantity]:
        """The quantity of the maps. If it is accuracy or loss, also bytes unless they are equal at all places."""
        sent = [value for label in self.labels for value in self.values(label, BYTES).ravel() if np.isfinite(value)]
        return [self.quantity] + [BYTES] * (self.quantity in (ACCURACY, LOSS) and len({round(value) for value in sent}) > 1)

    def values(self, label: str, quantity: Quantity | None = None) -> np.ndarray:
        """[y, x]: the mean over the seeds; nan if the place has no run, or a seed lacks the quantity."""
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
    """The grids, one along each method's two keys with the most values: at least FEWEST_POINTS and FEWEST_ROWS values.
    Methods with the same keys share a grid."""
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
    """The keys whose values are all numbers, at least two of them different. Leaves out a key whose values correspond
    one to one to those of an earlier key. Returns the number of each value, by key."""
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
    """Whether the values of both keys correspond one to one."""
    return are_one_to_one({(place.get(key), place.get(other)) for place, _, _ in places})


def heat_figure(grid: Grid):
    """The figure: a map for each quantity and method."""
    quantities = grid.quantities
    values = {(label, quantity): grid.values(label, quantity) for quantity in quantities for label in grid.labels}
    rows = [row for quantity in quantities for row in shared_out([(label, quantity) for label in grid.labels], ACROSS)]
    if len(grid.labels) == 1:
        rows = shared_out(list(values), ACROSS)
    narrowest = 3.6 if len(rows[0]) > 1 else 5.6  # room for the subtitle
    width, height = max(narrowest, 0.62 * len(grid.xs)), max(2.4, 0.4 * len(grid.ys))
    shown = in_words({grid.x_key: span(grid.x_names), grid.y_key: span(grid.y_names), **grid.others})
    sheet = Sheet([[Place(width=width, height=height, left=0.95 if number == 0 else 0.85) for number, _ in enumerate(row)] for row in rows],
                  heading(grid.where), without_band(subtitle(grid.where, shown)) + "  ·  mean of all seeds, framed: the best")
    for panel, (label, quantity) in zip(sheet.panels, [cell for row in rows for cell in row]):
        draw_map(panel, grid, quantity, values[label, quantity], *range_of([values[other, quantity] for other in grid.labels]))
        sheet.entitle(panel, f"{label}: {quantity.title}")
    return sheet.finish()


def range_of(maps: list[np.ndarray]) -> tuple[float, float]:
    """The range of the values of all maps, which use the same colours."""
    low, high = (reduce([reduce(found[np.isfinite(found)]) for found in maps if np.isfinite(found).any()])
                 for reduce in (np.min, np.max))
    return low, high


def draw_map(panel, grid: Grid, quantity: Quantity, found: np.ndarray, low: float, high: float) -> None:
    image = panel.imshow(found, cmap=COLOURS, vmin=low, vmax=high, aspect="auto", origin="lower")
    (x_label, x_texts), (y_label, y_texts) = along_axis(grid.x_key, grid.x_names), along_axis(grid.y_key, grid.y_names)
    panel.set_xticks(range(len(grid.xs)), [printable(size_text_of(x_texts[x])) for x in grid.xs])
    panel.set_yticks(range(len(grid.ys)), [printable(size_text_of(y_texts[y])) for y in grid.ys])
    panel.set_xlabel(x_label)
    panel.set_ylabel(y_label)
    panel.grid(visible=False)
    if found.size <= MOST_NUMBERS:
        write_numbers(panel, image, found)
    elif not style.page.is_column:
        panel.figure.colorbar(image, cax=panel.inset_axes([1.01, 0, 0.03, 1]), format=style.SHORT).ax.tick_params(labelsize="small")
    mark_best(panel, quantity, found)


def write_numbers(panel, image, found: np.ndarray) -> None:
    for row, column in zip(*np.nonzero(np.isfinite(found))):
        red, green, blue, _ = image.cmap(image.norm(found[row, column]))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
        panel.text(column, row, short(found[row, column]), ha="center", va="center", fontsize="x-small",
                   color="white" if dark else "black")


def short(value: float) -> str:
    return style.short_number(float(f"{value:.3g}"))


def mark_best(panel, quantity: Quantity, found: np.ndarray) -> None:
    places = {number: value for number, value in enumerate(found.ravel()) if np.isfinite(value)}
    if (best := best_of(places, quantity)) is not None:
        row, column = divmod(int(best), found.shape[1])
        panel.add_patch(plt.Rectangle((column - 0.46, row - 0.46), 0.92, 0.92, fill=False, edgecolor="#D55E00",
                                      linewidth=1.3 * style.page.line, gid="best"))
