"""How speed, drop rate and accuracy depend on what is swept, such as the number of workers."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from plots import style
from plots.comparison import heading, subtitle
from plots.methods import BASELINE, Method, in_order, seeds_text
from plots.printable import printable
from plots.runs import Run
from plots.sweeps import Sweep
from plots.variation import as_words

THIN = [(0, (1, 1.3)), (0, (5, 1.5, 1, 1.5)), (0, (5, 1.5, 1, 1.5, 1, 1.5)), (0, (2, 3))]  # of formulas, the last first

DIGIT = 0.02  # of a panel's width


@dataclass
class Panel:
    """A quantity of a run, and the same quantity by one formula of its method; None where the
    formula does not give it."""

    title: str
    value: Callable[[Run], float]
    formula: Callable[[Run, dict], float | None] = lambda run, by_formula: None
    linear: Callable[[float, float], float] | None = None  # from N and one worker's share: linear scaling's value


LEAST_ASSUMED = ""  # stands for whichever of a method's formulas that is, at each point of the sweep


def formulas_of(run: Run, every: bool) -> dict[str, dict]:
    """What the method's formulas say, by name. The first is the one that assumes least, which is
    the last in the summary and the one in the table of results; without `every` it is the only
    one."""
    formulas = (run.summary.get("predicted") or [])[::-1]
    if every:
        return {formula["formula"]: formula for formula in formulas}
    return {LEAST_ASSUMED: formulas[0]} if formulas else {}


def predicted_samples_per_s(run: Run, by_formula: dict) -> float | None:
    summary, cluster = run.summary, run.config["cluster"]
    if not summary["kept_micro_batches"]:
        return None
    samples = summary["samples"] / summary["kept_micro_batches"]  # of a micro-batch
    planned = cluster["workers"] * cluster.get("micro_batches", 1) * samples
    return by_formula["kept"] * planned / by_formula["step_time_s"]


def per_worker(value: Callable[..., float | None]) -> Callable[..., float | None]:
    def divided(run: Run, *arguments) -> float | None:
        whole = value(run, *arguments)
        return None if whole is None else whole / run.config["cluster"]["workers"]
    return divided


def percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def samples_per_s(run: Run) -> float:
    return run.summary["samples_per_virtual_s"]


SPEED = Panel("Samples per second", samples_per_s, predicted_samples_per_s, lambda workers, one: workers * one)
SPEED_OF_ONE = Panel("Samples per second and worker", per_worker(samples_per_s), per_worker(predicted_samples_per_s),
                     lambda workers, one: one)
STEP_TIME = Panel("Time per optimizer step (s)", lambda run: run.summary["end_time_s"] / max(run.summary["steps"], 1),
                  lambda run, by_formula: by_formula["step_time_s"])
DROPPED = Panel("Dropped micro-batches (%)", lambda run: 100 * run.summary["drop_rate"],
                lambda run, by_formula: percent(by_formula.get("drop_rate")))
ACCURACY = Panel("Final test accuracy (%)", lambda run: 100 * (run.summary["final_test_accuracy"] or np.nan))


def sweep_figure(sweep: Sweep, looks: dict[str, dict], every_formula: bool = False):
    """Panels of what the summaries hold against the key's value. `looks`: by label. `every_formula`: draws all formulas
    of a method, not only the one that assumes least."""
    key, points = sweep.key, sweep.points
    methods = in_order([method for point in points for method in point.methods])
    names = shown_names(methods)
    styles = {name: looks[label] for label, name in names.items()}
    runs = [run for point in points for run in point.runs]
    dashes, colours = dashes_of(runs, every_formula), defaultdict(set)
    scales_workers = key == "cluster.workers"
    panels = [SPEED, SPEED_OF_ONE if scales_workers else STEP_TIME, DROPPED, ACCURACY]
    panels = [panel for panel in panels if np.nansum([panel.value(run) for run in runs]) > 0]
    width = 4.9 * len(panels) + style.label_inches(styles) + 0.4
    figure, axes = plt.subplots(1, len(panels), figsize=(width, 4.9), squeeze=False)
    figure.subplots_adjust(left=0.8 / width, right=1 - (0.5 + style.label_inches(styles)) / width, top=1 - 1.2 / 4.9,
                           bottom=0.13, wspace=0.24)
    quantity = printable(key.rsplit(".", 1)[-1])
    xs = [float(point.point[key]) for point in points]
    for axis, panel in zip(axes[0], panels):
        ends, drawn = {}, [panel.value(run) for run in runs]
        for method, name in names.items():
            at = [[run for member in point.methods if member.label == method for run in member.runs]
                  for point in points]
            there = [(x, members) for x, members in zip(xs, at) if members]
            ends[name] = draw_line(axis, [x for x, _ in there],
                                   [[panel.value(run) for run in members] for _, members in there], styles[name])
            for formula, dash in dashes.items():
                line = draw_formula(axis, formula, there, panel, {**styles[name], "dashes": dash})
                drawn += line
                if line:
                    colours[formula].add(styles[name]["color"])
        if scales_workers and panel.linear:
            drawn += draw_linear(axis, xs, panel, points[0])
        scale_axes(axis, xs, drawn)
        axis.set_title(panel.title, loc="left", fontsize=10)
        axis.set_xlabel(quantity.replace("_", " "))
    style.label_lines(axes[0][-1], ends, styles)
    explain_thin_lines(axes[0][0], runs, dashes, colours)
    shown = as_words({key: f"{xs[0]:g} to {xs[-1]:g}", **sweep.others}, ", ")
    style.title(figure, heading(points[0]), subtitle(points[0], shown, methods))
    return figure


def dashes_of(runs: list[Run], every: bool) -> dict[str, tuple]:
    """The dashes of each formula that is drawn, by name: all formulas of one run differ, and a
    formula keeps its own over the whole sweep."""
    places = {}
    for run in runs:
        for place, name in enumerate(formulas_of(run, every)):
            places[name] = max(place, places.get(name, 0))
    return {name: THIN[min(place, len(THIN) - 1)] for name, place in places.items()}


def draw_formula(axis, name: str, there: list[tuple[float, list[Run]]], panel: Panel, look: dict) -> list[float]:
    """What the method's formula of that name says, as a thin line without dots; returns its values."""
    every = name != LEAST_ASSUMED
    line = []
    for x, members in there:
        said = [panel.formula(run, formulas[name]) for run in members if name in (formulas := formulas_of(run, every))]
        if values := [value for value in said if value is not None]:
            line.append((x, float(np.mean(values))))
    if line:
        axis.plot(*zip(*line), color=look["color"], linewidth=1.1, linestyle=look["dashes"], gid="formula")
    return [y for _, y in line]


def draw_linear(axis, xs: list[float], panel: Panel, smallest) -> list[float]:
    """What as many workers would do if nobody waited, by synchronous SGD's on the fewest; returns
    its values."""
    first = next((method for method in smallest.methods if method.algorithm == BASELINE), smallest.methods[0])
    one = float(np.mean([samples_per_s(run) / busy_share(run) for run in first.runs])) / xs[0]
    line = [panel.linear(x, one) for x in xs]
    axis.plot(xs, line, color=style.FAINT, linewidth=1.1, linestyle=style.DASHES[1], gid="linear", zorder=1)
    return line


def busy_share(run: Run) -> float:
    """The share of the workers' time in which they do not wait; 1 where the summary does not say."""
    seconds = (run.summary.get("worker_seconds") or {}).get("summed")
    return 1 - seconds["wait"] / seconds["total"] if seconds and seconds["total"] > 0 else 1.0


def explain_thin_lines(axis, runs: list[Run], dashes: dict[str, tuple], colours: dict[str, set[str]]) -> None:
    """Says what lines without dots are, where there are any; a formula of one method alone in the
    method's colour."""
    kinds = {line.get_gid() for line in axis.lines}
    lines = [(dash, min(colours[name]) if len(colours[name]) == 1 else style.INK, formula_text(name, runs))
             for name, dash in dashes.items() if colours[name]]
    if "linear" in kinds:
        lines.append((style.DASHES[1], style.FAINT, "linear scaling: nobody waits"))
    if lines:
        axis.legend([plt.Line2D([], [], linestyle=dash, color=colour, linewidth=1.1) for dash, colour, _ in lines],
                    [name for _, _, name in lines], frameon=False, fontsize=9, loc="best")


def formula_text(name: str, runs: list[Run]) -> str:
    """The formula's name; for the one that assumes least, the names of all that do so at some point
    of the sweep."""
    if name != LEAST_ASSUMED:
        return name
    names = dict.fromkeys(run.summary["predicted"][-1]["formula"] for run in runs if run.summary.get("predicted"))
    return "by formula: " + "\n".join(names)


def shown_names(methods: list[Method]) -> dict[str, str]:
    """Each label as the figure shows it: with its number of seeds where that is not the same
    everywhere."""
    most = max(len(method.runs) for method in methods)
    names = {}
    for label in dict.fromkeys(method.label for method in methods):
        counts = sorted({len(method.runs) for method in methods if method.label == label})
        seeds = seeds_text(counts[-1]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
        names[label] = label if counts == [most] else f"{label} ({seeds})"
    return names


def draw_line(panel, x: list[float], values: list[list[float]], look: dict) -> tuple[float, float]:
    """Mean over seeds with a band at each point; returns the line's end."""
    mean, low, high = ([reduce(at) for at in values] for reduce in (np.mean, np.min, np.max))
    panel.fill_between(x, low, high, color=look["color"], alpha=0.16, linewidth=0)
    panel.plot(x, mean, marker="o", markersize=4.5, **look)
    return x[-1], mean[-1]


def scale_axes(panel, xs: list[float], values: list[float]) -> None:
    """Logarithmic where the values span more than a decade."""
    if xs[0] > 0 and xs[-1] / xs[0] >= 10:
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_locator(FixedLocator(legible(xs)))
        panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: size_text(x)))
    if min(values) > 0 and max(values) / min(values) >= 10:
        panel.set_yscale("log")
        panel.yaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_major_formatter(style.SHORT)


def legible(xs: list[float]) -> list[float]:
    """Those of ascending values, the last first, whose texts do not run into each other on a logarithmic axis."""
    kept = xs[-1:]
    for x in reversed(xs[:-1]):
        widest = max(len(size_text(x)), len(size_text(kept[-1])))
        if np.log(kept[-1] / x) >= DIGIT * (1 + widest) * np.log(xs[-1] / xs[0]):
            kept.append(x)
    return kept


def size_text(x: float) -> str:
    return f"{x:g}" if abs(x) < 10000 else style.short_number(x)
