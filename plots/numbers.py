"""Numbers: the quantities of a run, means over seeds with 95 % intervals, and how figures and pages write numbers.

A written number has enough digits to distinguish it from others. It is in scientific form if a plain number would be
all zeros or very long. workers/base/terminal_text.cpp uses the same rule for tables and messages.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import floor, inf, isfinite, isnan, log10, nan, sqrt

import numpy as np

from plots.comparison import Method
from plots.runs import Run

LEAST_PLAIN, FIRST_SCIENTIFIC, MOST_DECIMALS = 1e-4, 1e7, 6
ROUNDING = 1e-12
DIGITS, DIGITS_OF_UNCERTAINTY = 4, 2
MINUS, TIMES = "\u2212", "\u00d7"
RAISED = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
POWER = re.compile(r"e([-+]\d+)")

# Student's t for 1 to 30 degrees of freedom (Fisher's table): 95 % of the distribution lie within this distance of 0.
QUANTILES = [12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
             2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
             2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423]
NORMAL = 1.959964


def shown_number(value: float, digits: int = DIGITS, sign: str = "") -> str:
    """The value with `digits` significant digits, without zeros at the end: 0.52, 12346, 1.25e-07. From 1e-4 to 1e7 it
    is a plain number with all digits before the point. `sign`: "+" if positive numbers also get a sign."""
    value = inf - inf if isnan(value) else value
    if 10**digits <= abs(value) < FIRST_SCIENTIFIC:
        return f"{value:{sign}.0f}"
    return f"{value:{sign}.{digits}g}"


def with_decimals(value: float, decimals: int, sign: str = "") -> str:
    """The value with `decimals` decimals, such as 0.50. shown_number writes it if these would show fewer than two of
    its digits, or if it is 1e7 or more."""
    if is_plain(value, decimals):
        return f"{value:{sign}.{decimals}f}"
    return shown_number(value, min(max(decimals, 2), DIGITS), sign)


def is_plain(value: float, decimals: int) -> bool:
    """Whether the value is below 1e7 and `decimals` decimals show at least two of its digits."""
    return value == 0 or not isfinite(value) or 10.0 ** (1 - decimals) <= abs(value) < FIRST_SCIENTIFIC


class SamePlace:
    """Writes numbers that are read together, such as a mean and its deviation, up to the same decimal place."""

    def __init__(self, largest: float, last_place: int):
        self.last_place = last_place
        self.is_plain = not largest >= FIRST_SCIENTIFIC and (last_place >= -MOST_DECIMALS or largest >= LEAST_PLAIN)

    @classmethod
    def of(cls, mean: float, uncertainty: float | None) -> "SamePlace":
        """Writes up to the second digit of the uncertainty (a deviation, or half an interval), or without an
        uncertainty up to the fourth digit of the mean."""
        has_any = bool(uncertainty) and uncertainty > 0 and isfinite(uncertainty)
        shown = uncertainty if has_any else abs(mean)
        if not shown > 0 or not isfinite(shown):
            return cls(0, 0)
        digits = DIGITS_OF_UNCERTAINTY if has_any else DIGITS
        return cls(max(abs(mean), uncertainty if has_any else 0), place_of(shown) + 1 - digits)

    def __call__(self, value: float, sign: str = "") -> str:
        decimals = min(max(-self.last_place, 0), MOST_DECIMALS)
        if not isfinite(value):
            return f"{value:{sign}.0f}"
        rounds_to_zero = abs(value) < 0.5 * 10.0**self.last_place
        if self.is_plain:
            if rounds_to_zero or abs(value) >= 0.5 * 10.0**-decimals:
                return f"{value:{sign}.{decimals}f}"
        elif rounds_to_zero:
            return "0"
        elif -MOST_DECIMALS <= self.last_place and LEAST_PLAIN <= abs(value) < FIRST_SCIENTIFIC:
            return f"{value:{sign}.{decimals}f}"  # a large mean with a small deviation
        return f"{value:{sign}.{min(max(place_of(value) - self.last_place, 0), MOST_DECIMALS)}e}"


def place_of(value: float) -> int:
    """The power of ten of the value's first digit. 9.999999999999998 counts as 10."""
    return floor(log10(abs(value) * (1 + ROUNDING)))


def typeset(text: str, minus: str = MINUS) -> str:
    """Writes powers of ten: 1.25e-07 becomes 1.25×10⁻⁷, and 1e-07 becomes 10⁻⁷."""
    def power(found: re.Match) -> str:
        return f"{TIMES}10{str(int(found[1])).translate(RAISED)}"

    text = POWER.sub(power, text)
    return re.sub(rf"(?<![\d.])1{TIMES}(?=10[^\d.])", "", text).replace("-", minus)


def typeset_number(value: float, digits: int = DIGITS) -> str:
    return typeset(shown_number(value, digits))


def quantile(degrees: int) -> float:
    """Student's t for a 95 % interval. Beyond the table: the first terms of an expansion around the normal quantile."""
    if degrees <= len(QUANTILES):
        return QUANTILES[degrees - 1]
    z = NORMAL
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def mean_and_half(values: list[float]) -> tuple[float, float | None]:
    """The mean of the values, and half its 95 % interval (None for a single value)."""
    if len(values) < 2:
        return float(np.mean(values)), None
    return float(np.mean(values)), quantile(len(values) - 1) * float(np.std(values, ddof=1)) / sqrt(len(values))


@dataclass(frozen=True)
class Quantity:
    """A number of a finished run, from its summary or from its method's formulas. nan or None if it is unknown."""

    title: str
    measure: str  # its name in claims and for `syncopate table --measure`
    value: Callable[[Run], float]
    formula: Callable[[Run, dict], float | None] = lambda run, by_formula: None
    linear: Callable[[float, float], float] | None = None  # linear scaling, from N workers and one worker's value
    best: Callable | None = None  # max or min; None if neither is better
    times: float = 1.0  # factor for display
    against_baseline: bool = False  # whether it is divided by the value of synchronous SGD, seed by seed


def predicted_samples_per_s(run: Run, by_formula: dict) -> float | None:
    summary, cluster = run.summary, run.config["cluster"]
    if not summary["kept_micro_batches"]:
        return None
    samples = summary["samples"] / summary["kept_micro_batches"]  # number of samples in a micro-batch
    planned = cluster["workers"] * cluster.get("micro_batches", 1) * samples
    return by_formula["kept"] * planned / by_formula["step_time_s"]


def per_worker(value: Callable[..., float | None]) -> Callable[..., float | None]:
    def divided(run: Run, *arguments) -> float | None:
        whole = value(run, *arguments)
        return None if whole is None else whole / run.config["cluster"]["workers"]
    return divided


def percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def number(value) -> float:
    """The value as a float; nan if it is missing or not finite."""
    return float(value) if value is not None and isfinite(value) else nan


def samples_per_s(run: Run) -> float:
    return run.summary["samples_per_virtual_s"]


SPEED = Quantity("Samples per second", "samples_per_s", samples_per_s, predicted_samples_per_s,
                 lambda workers, one: workers * one, best=max)
SPEED_OF_ONE = Quantity("Samples per second and worker", "", per_worker(samples_per_s),
                        per_worker(predicted_samples_per_s), lambda workers, one: one)
SPEED_UP = Quantity("S_eff: samples per second, against synchronous SGD", "micro_batches_per_s", samples_per_s,
                    lambda run, by_formula: by_formula.get("effective_speedup"), best=max, against_baseline=True)
STEP_TIME = Quantity("Time per optimizer step (s)", "step_time_s",
                     lambda run: run.summary["end_time_s"] / max(run.summary["steps"], 1),
                     lambda run, by_formula: by_formula["step_time_s"])
DROPPED = Quantity("Dropped micro-batches (%)", "drop_rate", lambda run: 100 * run.summary["drop_rate"],
                   lambda run, by_formula: percent(by_formula.get("drop_rate")), times=100)
ACCURACY = Quantity("Final test accuracy (%)", "final_test_accuracy",
                    lambda run: 100 * number(run.summary.get("final_test_accuracy")), best=max, times=100)
LOSS = Quantity("Final test loss", "final_test_loss", lambda run: number(run.summary.get("final_test_loss")), best=min)
TIME_TO_TARGET = Quantity("Time to target (s)", "time_to_target_s",
                          lambda run: number((run.summary.get("time_to_target") or {}).get("time_s")), best=min)
BYTES = Quantity("Data sent in total (bytes)", "communicated_bytes", lambda run: number(run.summary.get("communicated_bytes")))
END_TIME = Quantity("Time of the run (s)", "end_time_s", lambda run: number(run.summary.get("end_time_s")), best=min)


KNOWN = {one.measure: one for one in (SPEED, SPEED_UP, STEP_TIME, DROPPED, ACCURACY, LOSS, TIME_TO_TARGET, BYTES, END_TIME)}
OF_TARGET = {"steps_to_target": "step", "samples_to_target": "samples"}  # keys of a summary's time_to_target
# Titles of measures whose names are not English.
TITLES = {"largest_eigenvalue_fall": "Fall of sharpness (largest eigenvalue of the Hessian)",
          "final_largest_eigenvalue": "Final sharpness (largest eigenvalue of the Hessian)",
          "final_hessian_trace": "Final trace of the Hessian",
          "hessian_trace_log_change": "Change of the logarithm of the Hessian's trace",
          "longest_test_accuracy": "Test accuracy on the longest samples", "longest_kept_share": "Kept share of the longest samples",
          "first_formula_over_step_time": "Time per step, by formula divided by simulated",
          "first_formula_over_throughput": "Samples per second, by formula divided by simulated",
          "mean_squared_gradient_norm": "Mean squared norm of the gradient", "rounds": "Synchronisations",
          "largest_period": "Largest period (steps)"}


def claimed_quantity(claim: dict) -> Quantity:
    """The quantity of a claim's measure. Its value is nan for a run whose summary lacks it."""
    measure, times = claim["measure"], float((claim.get("shown") or {}).get("times", 1))
    of_target = OF_TARGET.get(measure)

    def value(run: Run) -> float:
        return times * number((run.summary.get("time_to_target") or {}).get(of_target) if of_target else run.summary.get(measure))

    return Quantity(measure_title(measure) + (" (%)" if times == 100 else ""), measure, value, times=times)


def measure_title(measure: str) -> str:
    """A measure in words, with the unit of a time: "Steps to target", "Time to equal loss (s)"."""
    if measure in TITLES:
        return TITLES[measure]
    is_rate = measure.endswith("_per_s")
    title = (measure.replace("_per_s", "_per_second") if is_rate else measure.removesuffix("_s")).replace("_", " ")
    title = title.replace("micro batch", "micro-batch").replace("hessian", "Hessian")
    return title[:1].upper() + title[1:] + (" (s)" if measure.endswith("_s") and not is_rate else "")


def best_of(points: dict[float, float], quantity: Quantity) -> float | None:
    """The x at which the quantity is best; None if neither direction is better, or if fewer than two values differ."""
    there = {x: y for x, y in points.items() if isfinite(y)}
    if quantity.best is None or len(there) < 2 or max(there.values()) == min(there.values()):
        return None
    return quantity.best(there, key=lambda x: (there[x], -x if quantity.best is max else x) if isfinite(x) else inf)


def values_of(methods: list[Method], quantity: Quantity) -> dict[str, list[float]]:
    """The values of all seeds, by method. Empty for a method with a seed without a value, such as a seed that never met
    the target, because the mean of its other seeds would flatter the method."""
    found = {}
    for method in methods:
        values = [quantity.value(run) for run in method.runs]
        found[method.name] = values if np.isfinite(values).all() else []
    return found


def means(methods: list[Method], quantity: Quantity) -> dict[str, float]:
    """The mean over the seeds, by method. Leaves out methods with a seed that lacks the quantity."""
    return {name: float(np.mean(values)) for name, values in values_of(methods, quantity).items() if values}
