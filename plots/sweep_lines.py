"""A panel of a sweep: lines of means with bands, formulas, linear scaling, best points and what papers say."""

import re
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from plots import page, style
from plots.choice import same
from plots.methods import BASELINE
from plots.printable import printable
from plots.published import LOOK, Published
from plots.quantities import SPEED, SPEED_UP, Quantity, best_of, number, samples_per_s
from plots.runs import Run
from plots.sweeps import Line, Sweep
from plots.variation import BANDWIDTH, RATE, SIZES, is_number

THIN = [(0, (1, 1.3)), (0, (5, 1.5, 1, 1.5)), (0, (5, 1.5, 1, 1.5, 1, 1.5)), (0, (2, 3))]  # of formulas, the last first
MISSED = {"linestyle": "none", "marker": "x", "markeredgewidth": 1.3}  # the target, by a seed at least
MISSED_ROW = 0.05  # of the panel's height
ALIKE = 1e-4  # of values: shown as one
SAY_LITTLE = {"peak", "final", "minimum", "coefficient", "power"}  # keys, without the table they are in
LEAST_ASSUMED = ""  # stands for whichever of a method's formulas that is, at each point of the sweep


@dataclass
class Drawn:
    """What a panel has come to hold."""

    ends: dict[str, tuple[float, float]] = field(default_factory=dict)  # of lines, by their names
    values: list[float] = field(default_factory=list)
    formulas: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # the colours that each is drawn in
    sources: list[str] = field(default_factory=list)  # of what papers say


def draw_quantity(axis, sweep: Sweep, quantity: Quantity, names: dict[str, str], styles: dict[str, dict],
                  dashes: dict[str, tuple], published: list[Published]) -> Drawn:
    """`names`: of lines, by their labels; `styles`: by name; `dashes`: of formulas."""
    drawn = Drawn()
    rows = 0
    for line in sweep.lines:
        values, missed = without_missed(sweep, line, quantity, values_of(sweep, line, quantity))
        if missed:
            height = 0.97 - MISSED_ROW * rows  # one below the other: methods miss it at the same values
            rows += 1
            axis.plot(missed, [height] * len(missed), transform=axis.get_xaxis_transform(), gid="missed",
                      **MISSED, markeredgecolor=styles[names[line.label]]["color"], markersize=1.2 * page.current.marker)
        if values:
            draw_method(axis, sweep, line, quantity, values, names[line.label], styles, dashes, published, drawn)
    if sweep.key == "cluster.workers" and quantity.linear:
        drawn.values += draw_linear(axis, sweep, quantity)
    drawn.values = [value for value in drawn.values if np.isfinite(value)]
    return drawn


def without_missed(sweep: Sweep, line: Line, quantity: Quantity, values: dict) -> tuple[dict, list[float]]:
    """The values, and where a seed did not reach the target: a mean of the others would flatter the method."""
    if "_to_target" not in quantity.measure:
        return values, []
    missed = [x for x in sweep.xs if len(values.get(x, [])) < len(line.runs(x))]
    return {x: of_seeds for x, of_seeds in values.items() if x not in missed}, missed


def looks_of_lines(sweep: Sweep, names: dict[str, str], looks: dict[str, dict]) -> dict[str, dict]:
    """By name; without markers where the key does not concern the method, so that there are no points."""
    return {names[line.label]: style.without_marker(looks[line.label]) if line.everywhere else looks[line.label]
            for line in sweep.lines}


def draw_method(axis, sweep: Sweep, line: Line, quantity: Quantity, values: dict[float, list[float]], name: str, styles,
                dashes, published: list[Published], drawn: Drawn) -> None:
    look = styles[name]
    drawn.ends[name] = draw_line(axis, values, look, "everywhere" if line.everywhere else "method")
    drawn.values += [value for of_seeds in values.values() for value in of_seeds]
    if not line.everywhere and not trivially_best(sweep.key, quantity):
        ring(axis, {x: float(np.mean(of_seeds)) for x, of_seeds in values.items()}, quantity, look)
    for formula, dash in dashes.items():
        if said := draw_formula(axis, formula, sweep, line, quantity, {**look, "dashes": dash}):
            drawn.values += said
            drawn.formulas[formula].add(look["color"])
    for one in stated_at(sweep, line, quantity, published):
        value = quantity.times * one.value
        axis.plot(float(where_of(one.where, sweep.key)), value, color=look["color"], **LOOK,
                  markersize=2 * page.current.marker, gid="paper")
        drawn.values.append(value)
        drawn.sources.append(one.source)


def formulas_of(run: Run, every: bool) -> dict[str, dict]:
    """What the method's formulas say, by name. The first is the one that assumes least, which is
    the last in the summary and the one in the table of results; without `every` it is the only
    one."""
    formulas = (run.summary.get("predicted") or [])[::-1]
    if every:
        return {formula["formula"]: formula for formula in formulas}
    return {LEAST_ASSUMED: formulas[0]} if formulas else {}


def trivially_best(key: str, quantity: Quantity) -> bool:
    """More workers are faster."""
    return key == "cluster.workers" and quantity in (SPEED, SPEED_UP)


def values_of(sweep: Sweep, line: Line, quantity: Quantity) -> dict[float, list[float]]:
    """By the key's number: of all seeds. Of what is divided by the baseline's, of seeds that both have, where any other
    method is there beside it."""
    values = {}
    baseline = next((other for other in sweep.lines if algorithm_of(other) == BASELINE), None)
    if quantity.against_baseline and (baseline is None or len(sweep.lines) < 2):
        return {}
    for x in sweep.xs:
        of_seeds = [(run.seed, number(quantity.value(run))) for run in line.runs(x)]
        if quantity.against_baseline:
            by_seed = {run.seed: number(quantity.value(run)) for run in baseline.runs(x)}
            of_seeds = [(seed, value / by_seed[seed]) for seed, value in of_seeds if by_seed.get(seed)]
        if there := [value for _, value in of_seeds if np.isfinite(value)]:
            values[x] = there
    return values


def algorithm_of(line: Line) -> str:
    return (line.everywhere or next(iter(line.methods.values()))).algorithm


def dashes_of(runs: list[Run], every: bool) -> dict[str, tuple]:
    """The dashes of each formula that is drawn, by name: all formulas of one run differ, and a
    formula keeps its own over the whole sweep."""
    places = {}
    for run in runs:
        for place, name in enumerate(formulas_of(run, every)):
            places[name] = max(place, places.get(name, 0))
    return {name: THIN[min(place, len(THIN) - 1)] for name, place in places.items()}


def draw_formula(axis, name: str, sweep: Sweep, line: Line, quantity: Quantity, look: dict) -> list[float]:
    """What the method's formula of that name says, as a thin line without dots; returns its values."""
    every, points = name != LEAST_ASSUMED, []
    for x in sweep.xs:
        said = [quantity.formula(run, formulas[name]) for run in line.runs(x) if name in (formulas := formulas_of(run, every))]
        if values := [value for value in said if value is not None]:
            points.append((x, float(np.mean(values))))
    if points:
        axis.plot(*zip(*points), color=look["color"], linewidth=0.58 * page.current.line, linestyle=look["dashes"],
                  gid="formula")
    return [y for _, y in points]


def draw_linear(axis, sweep: Sweep, quantity: Quantity) -> list[float]:
    """What as many workers would do if nobody waited, by synchronous SGD's on the fewest; returns
    its values."""
    fewest = sweep.xs[0]
    there = [line for line in sweep.lines if line.runs(fewest)]
    # Without synchronous SGD the fastest stands for it: others leave work out, or wait.
    chosen = [line for line in there if algorithm_of(line) == BASELINE] or there
    one = max(float(np.mean([samples_per_s(run) / busy_share(run) for run in line.runs(fewest)])) for line in chosen) / fewest
    values = [quantity.linear(x, one) for x in sweep.xs]
    axis.plot(sweep.xs, values, color=style.FAINT, linewidth=0.58 * page.current.line, linestyle=style.DASHES[1], gid="linear",
              zorder=1)
    return values


def busy_share(run: Run) -> float:
    """The share of the workers' time in which they do not wait; 1 where the summary does not say."""
    seconds = (run.summary.get("worker_seconds") or {}).get("summed")
    return 1 - seconds["wait"] / seconds["total"] if seconds and seconds["total"] > 0 else 1.0


def stated_at(sweep: Sweep, line: Line, quantity: Quantity, published: list[Published]) -> list[Published]:
    """What papers say of this method at some value of the key, and at this place of the others."""
    baseline = next((other.label for other in sweep.lines if algorithm_of(other) == BASELINE), "")
    return [one for one in published
            if one.is_of(quantity) and one.method == base_of(line) and one.against in ("", baseline)
            and where_of(one.where, sweep.key) is not None
            and all(where_of(one.where, key) is None or same(where_of(one.where, key), value)
                    for key, value in sweep.others.items())]


def base_of(line: Line) -> str:
    return (line.everywhere or next(iter(line.methods.values()))).base


def where_of(where: dict[str, str], key: str) -> str | None:
    """The value of the key, which claims may name by its end."""
    return next((value for name, value in where.items() if name == key or name.endswith("." + key)), None)


def draw_line(panel, values: dict[float, list[float]], look: dict, gid: str) -> tuple[float, float]:
    """Mean over seeds with a band at each point; returns the line's end."""
    x = list(values)
    mean, low, high = ([reduce(of_seeds) for of_seeds in values.values()] for reduce in (np.mean, np.min, np.max))
    panel.fill_between(x, low, high, color=look["color"], alpha=0.16, linewidth=0)
    panel.plot(x, mean, **look, gid=gid)
    return x[-1], mean[-1]


def ring(panel, means: dict[float, float], quantity: Quantity, look: dict) -> None:
    """Around the best point."""
    if (x := best_of(means, quantity)) is not None:
        panel.plot(x, means[x], "o", color="none", markersize=2.1 * page.current.marker, markeredgecolor=look["color"],
                   markeredgewidth=1.4, zorder=5, gid="best", clip_on=False)


def scale_axes(panel, xs: list[float], values: list[float], names: dict[float, str] | None = None) -> None:
    """Logarithmic where values are spaced so: over more than a decade, or by equal factors. `names`: of the values."""
    if is_spaced_by_factors(xs):
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_locator(FixedLocator(legible(xs)))
        panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: size_text(x)))
    if names and any(size_text(x) != size_text_of(name) for x, name in names.items()):  # the sweep gives them names
        if all(is_number(name) for name in names.values()):
            panel.set_xticks(shown := legible(xs) if is_spaced_by_factors(xs) else xs, [names[x] for x in shown])
        else:
            panel.set_xticks(xs, [printable(names[x]) for x in xs], rotation=25, ha="right")
    if values and min(values) > 0 and max(values) / min(values) >= 10:
        panel.set_yscale("log")
        panel.yaxis.set_minor_locator(NullLocator())
        if max(values) / min(values) < 100:
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    elif values and max(values) - min(values) <= ALIKE * max(map(abs, values)):  # lest an axis speak of differences in late digits
        panel.set_ylim(values[0] - 0.1 * (abs(values[0]) or 1), values[0] + 0.1 * (abs(values[0]) or 1))
    else:
        panel.yaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10]))  # 42.2 and 42.25, not 42.225
    panel.yaxis.set_major_formatter(style.SHORT)
    panel.yaxis.set_minor_formatter(NullFormatter())


def is_spaced_by_factors(xs: list[float]) -> bool:
    if xs[0] <= 0 or len(xs) < 3:
        return bool(xs[0] > 0 and xs[-1] / xs[0] >= 10)
    factors, steps = np.divide(xs[1:], xs[:-1]), np.diff(xs)
    return bool(xs[-1] / xs[0] >= 10 or (factors.max() < 1.01 * factors.min() and steps.max() > 1.5 * steps.min()))


def legible(xs: list[float]) -> list[float]:
    """Those of ascending values, the last first, whose texts do not run into each other on a logarithmic axis."""
    digit = 0.02 if not page.current.is_column else 0.035  # of a panel's width
    kept = xs[-1:]
    for x in reversed(xs[:-1]):
        widest = max(len(size_text(x)), len(size_text(kept[-1])))
        if np.log(kept[-1] / x) >= digit * (1 + widest) * np.log(xs[-1] / xs[0]):
            kept.append(x)
    return kept


def key_label(key: str) -> str:
    """The key's last part, with its unit in brackets."""
    *parents, last = printable(key).split(".")
    words = f"{parents[-1]}: {last}" if parents and last in SAY_LITTLE else last
    words = re.sub(r"_(bytes)?_?per_s$", lambda found: f" ({found[1] or '1'}/s)", words)
    words = re.sub(r"_s$", " (s)", words)
    return words.replace("_", " ").replace("micro batch", "micro-batch")


def along_axis(key: str, names: dict[float, str]) -> tuple[str, dict[float, str]]:
    """The axis's label, and the values' names; those of bandwidths in one unit, which the label has, as of numbers."""
    if not key.endswith(BANDWIDTH) or not all(RATE.fullmatch(name) for name in names.values()):
        label = key_label(key)
        return (label if all(map(is_number, names.values())) else label.split(" (")[0]), names
    size, letter = next(((size, letter) for size, letter in SIZES if 8 * max(names) >= size), (1, ""))
    return f"bandwidth ({letter}bit/s)", {x: f"{8 * x / size:g}" for x in names}


def size_text_of(name: str) -> str:
    try:
        return size_text(float(name))
    except ValueError:
        return name


def size_text(x: float) -> str:
    return f"{x:g}" if abs(x) < 10000 else style.short_number(x)
