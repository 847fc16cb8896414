"""How speed, drop rate and accuracy depend on what is swept, such as the number of workers."""

from collections.abc import Callable
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from plots import style
from plots.comparison import Comparison, heading, subtitle
from plots.methods import BASELINE, Method, in_order, seeds_text
from plots.runs import Run

THIN = (0, (1, 1.3))  # lines of formulas


@dataclass
class Panel:
    """A quantity of a run, and the same as its method's formula has it (None: the summary holds none)."""

    title: str
    value: Callable[[Run], float]
    formula: Callable[[Run], float | None] = lambda run: None
    linear: Callable[[float, float], float] | None = None  # from N and one worker's share: linear scaling's value


def predicted(run: Run) -> dict:
    """What the first of the method's formulas says; empty where it has none."""
    return (run.summary.get("predicted") or [{}])[0]


def predicted_samples_per_s(run: Run) -> float | None:
    by_formula, summary, cluster = predicted(run), run.summary, run.config["cluster"]
    if not by_formula or not summary["kept_micro_batches"]:
        return None
    samples = summary["samples"] / summary["kept_micro_batches"]  # of a micro-batch
    planned = cluster["workers"] * cluster.get("micro_batches", 1) * samples
    return by_formula["kept"] * planned / by_formula["step_time_s"]


def per_worker(value: Callable[[Run], float | None]) -> Callable[[Run], float | None]:
    def divided(run: Run) -> float | None:
        whole = value(run)
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
                  lambda run: predicted(run).get("step_time_s"))
DROPPED = Panel("Dropped micro-batches (%)", lambda run: 100 * run.summary["drop_rate"],
                lambda run: percent(predicted(run).get("drop_rate")))
ACCURACY = Panel("Final test accuracy (%)", lambda run: 100 * (run.summary["final_test_accuracy"] or np.nan))


def sweep_figures(comparisons: list[Comparison], looks: dict[str, dict[str, dict]]):
    """Experiment and figure, for each in which exactly one numeric key varies, over at least three values.
    `looks`: by experiment and label."""
    for experiment in dict.fromkeys(comparison.experiment for comparison in comparisons):
        points = [comparison for comparison in comparisons if comparison.experiment == experiment]
        keys = list(points[0].point)
        if len(keys) == 1 and len(points) >= 3 and all(is_number(point.point[keys[0]]) for point in points):
            points.sort(key=lambda point: float(point.point[keys[0]]))
            yield experiment, sweep_figure(keys[0], points, looks[experiment])


def is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def sweep_figure(key: str, points: list[Comparison], looks: dict[str, dict]):
    """Panels of what the summaries hold against the key's value."""
    methods = in_order([method for point in points for method in point.methods])
    names = shown_names(methods)
    styles = {name: looks[label] for label, name in names.items()}
    runs = [run for point in points for run in point.runs]
    scales_workers = key == "cluster.workers"
    panels = [SPEED, SPEED_OF_ONE if scales_workers else STEP_TIME, DROPPED, ACCURACY]
    panels = [panel for panel in panels if np.nansum([panel.value(run) for run in runs]) > 0]
    width = 4.9 * len(panels) + style.label_inches(styles) + 0.4
    figure, axes = plt.subplots(1, len(panels), figsize=(width, 4.9), squeeze=False)
    figure.subplots_adjust(left=0.8 / width, right=1 - (0.5 + style.label_inches(styles)) / width, top=1 - 1.2 / 4.9,
                           bottom=0.13, wspace=0.24)
    quantity = key.rsplit(".", 1)[-1]
    xs = [float(point.point[key]) for point in points]
    for axis, panel in zip(axes[0], panels):
        ends, drawn = {}, [panel.value(run) for run in runs]
        for method, name in names.items():
            at = [[run for member in point.methods if member.label == method for run in member.runs]
                  for point in points]
            there = [(x, members) for x, members in zip(xs, at) if members]
            ends[name] = draw_line(axis, [x for x, _ in there],
                                   [[panel.value(run) for run in members] for _, members in there], styles[name])
            drawn += draw_formula(axis, there, panel, styles[name])
        if scales_workers and panel.linear:
            drawn += draw_linear(axis, xs, panel, points[0])
        scale_axes(axis, xs, drawn)
        axis.set_title(panel.title, loc="left", fontsize=10)
        axis.set_xlabel(quantity.replace("_", " "))
    style.label_lines(axes[0][-1], ends, styles)
    explain_thin_lines(axes[0][0])
    style.title(figure, heading(points[0]), subtitle(points[0], f"{quantity}={xs[0]:g} to {xs[-1]:g}", methods))
    return figure


def draw_formula(axis, there: list[tuple[float, list[Run]]], panel: Panel, look: dict) -> list[float]:
    """What the method's formula says, as a thin line without dots; returns its values."""
    by_formula = [(x, [value for run in members if (value := panel.formula(run)) is not None]) for x, members in there]
    line = [(x, float(np.mean(values))) for x, values in by_formula if values]
    if line:
        axis.plot(*zip(*line), color=look["color"], linewidth=1.1, linestyle=THIN, gid="formula")
    return [y for _, y in line]


def draw_linear(axis, xs: list[float], panel: Panel, smallest: Comparison) -> list[float]:
    """What as many workers would do if nobody waited, by synchronous SGD's on the fewest; returns its values."""
    first = next((method for method in smallest.methods if method.algorithm == BASELINE), smallest.methods[0])
    one = float(np.mean([samples_per_s(run) / busy_share(run) for run in first.runs])) / xs[0]
    line = [panel.linear(x, one) for x in xs]
    axis.plot(xs, line, color=style.FAINT, linewidth=1.1, linestyle=style.DASHES[1], gid="linear", zorder=1)
    return line


def busy_share(run: Run) -> float:
    """The share of the workers' time in which they do not wait; 1 where the summary does not say."""
    seconds = (run.summary.get("worker_seconds") or {}).get("summed")
    return 1 - seconds["wait"] / seconds["total"] if seconds and seconds["total"] > 0 else 1.0


def explain_thin_lines(axis) -> None:
    """Says what lines without dots are, where there are any."""
    kinds = {line.get_gid() for line in axis.lines}
    lines = [(THIN, style.INK, "by formula"), (style.DASHES[1], style.FAINT, "linear scaling: nobody waits")]
    shown = [line for line, kind in zip(lines, ("formula", "linear")) if kind in kinds]
    if shown:
        axis.legend([plt.Line2D([], [], linestyle=dash, color=colour, linewidth=1.1) for dash, colour, _ in shown],
                    [name for _, _, name in shown], frameon=False, fontsize=9, loc="best")


def shown_names(methods: list[Method]) -> dict[str, str]:
    """Each label as the figure shows it: with its number of seeds where that is not the same everywhere."""
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
        panel.xaxis.set_major_locator(FixedLocator(xs))
        panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}" if abs(x) < 10000 else style.short_number(x)))
    if min(values) > 0 and max(values) / min(values) >= 10:
        panel.set_yscale("log")
        panel.yaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_major_formatter(style.SHORT)
