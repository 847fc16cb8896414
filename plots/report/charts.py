"""The curves of a page as numbers: of every method, against every axis, over its seeds."""

import numpy as np

from plots.comparison import Comparison
from plots.curves import Curve, method_curve
from plots.methods import Method
from plots.report.looks import page_look
from plots.report.markup import without_places
from plots.report.thinning import kept_points
from plots.style import time_unit

# The first is what curves open on: the question is what is learned in a given time.
AXES = [("time_s", "time"), ("communicated_bytes", "bytes"), ("step", "steps"), ("samples", "samples"), ("epoch", "epochs")]
VALUES = [("test_accuracy", "test accuracy", "target_accuracy"), ("test_loss", "test loss", "target_loss"),
          ("train_loss", "training loss", None)]


class Numbers:
    """Lists of numbers, equal ones once: lines share the points of their axes."""

    def __init__(self):
        self.lists: list[list] = []
        self.places: dict[tuple, int] = {}

    def place(self, values: np.ndarray) -> int:
        rounded = [shortened(float(value)) for value in values]
        place = self.places.setdefault(tuple(rounded), len(self.lists))
        if place == len(self.lists):
            self.lists.append(rounded)
        return place


def shortened(value: float) -> float | int | None:
    """To five digits, which no screen tells from more; null where it is not finite."""
    if not np.isfinite(value):
        return None
    short = float(f"{value:.5g}")
    return int(short) if short.is_integer() else short


def list_count(comparisons: list[Comparison]) -> int:
    """Of numbers, that all lines together need."""
    return len(AXES) * len(VALUES) * sum(4 if len(method.runs) > 1 else 2
                                         for comparison in comparisons for method in comparison.methods)


def lines_of(comparison: Comparison, looks: dict[str, dict], numbers: Numbers, most: int) -> dict:
    """What the page's script draws at this point of what varies."""
    config = comparison.runs[0].config
    longest = max((run.metrics["time_s"].max() for run in comparison.runs if len(run.metrics)), default=0)
    seconds, unit = time_unit(float(longest) if np.isfinite(longest) else 0)
    targets = config.get("evaluation", {})
    if targets.get("target_of", "test") != "test":
        targets = {}
    clock = clock_of(comparison)
    return {"axes": [{"key": key, "label": f"{clock} ({unit})" if key == "time_s" else label,
                      "short": clock if key == "time_s" else label, "divisor": seconds if key == "time_s" else 1}
                     for key, label in AXES],
            "values": [{"key": key, "label": label, "percent": key.endswith("accuracy"), "rising": key.endswith("accuracy"),
                        **({"target": targets[target]} if target and target in targets else {})}
                       for key, label, target in VALUES if has_values(comparison, key)],
            "methods": [{"name": without_places(method.name), "look": page_look(looks[method.label]), "seeds": len(method.runs),
                         "curves": curves_of(method, numbers, most)} for method in comparison.methods]}


def clock_of(comparison: Comparison) -> str:
    """By which the runs have their times."""
    clocks = {run.directory.name.endswith("-mpi") for run in comparison.runs}
    return {frozenset([False]): "virtual time", frozenset([True]): "wall-clock time"}.get(frozenset(clocks), "time")


def has_values(comparison: Comparison, column: str) -> bool:
    return any(np.isfinite(run.metrics[column].to_numpy(float)).any() for run in comparison.runs)


def curves_of(method: Method, numbers: Numbers, most: int) -> dict[str, list[int]]:
    """By "axis|value": the places of x and mean, and, of several seeds, of the lowest and the highest value."""
    curves = {}
    for axis, _ in AXES:
        for value, _, _ in VALUES:
            if curve := method_curve(method, axis, value):
                curves[f"{axis}|{value}"] = places(curve, numbers, most, band=len(method.runs) > 1)
    return curves


def places(curve: Curve, numbers: Numbers, most: int, band: bool) -> list[int]:
    kept = kept_points(curve.mean, most)
    return [numbers.place(values[kept]) for values in
            (curve.x, curve.mean, *((curve.low, curve.high) if band else ()))]
