"""How speed, drop rate and accuracy depend on what is swept, such as the number of workers."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from plots import style
from plots.comparison import Comparison, heading, subtitle
from plots.methods import Method, in_order, seeds_text

PANELS = [("Samples per second", lambda run: run.summary["samples_per_virtual_s"]),
          ("Time per optimizer step (s)", lambda run: run.summary["end_time_s"] / max(run.summary["steps"], 1)),
          ("Dropped micro-batches (%)", lambda run: 100 * run.summary["drop_rate"]),
          ("Final test accuracy (%)", lambda run: 100 * (run.summary["final_test_accuracy"] or np.nan))]


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
    panels = [(label, value) for label, value in PANELS if np.nansum([value(run) for run in runs]) > 0]
    width = 4.9 * len(panels) + style.label_inches(styles) + 0.4
    figure, axes = plt.subplots(1, len(panels), figsize=(width, 4.9), squeeze=False)
    figure.subplots_adjust(left=0.8 / width, right=1 - (0.5 + style.label_inches(styles)) / width, top=1 - 1.2 / 4.9,
                           bottom=0.13, wspace=0.24)
    quantity = key.rsplit(".", 1)[-1]
    xs = [float(point.point[key]) for point in points]
    for panel, (label, value) in zip(axes[0], panels):
        ends = {}
        for method, name in names.items():
            values = [[value(run) for member in point.methods if member.label == method for run in member.runs]
                      for point in points]
            ends[name] = draw_line(panel, [x for x, at in zip(xs, values) if at], [at for at in values if at],
                                   styles[name])
        scale_axes(panel, xs, [value(run) for run in runs])
        panel.set_title(label, loc="left", fontsize=10)
        panel.set_xlabel(quantity.replace("_", " "))
    style.label_lines(axes[0][-1], ends, styles)
    style.title(figure, heading(points[0]), subtitle(points[0], f"{quantity}={xs[0]:g} to {xs[-1]:g}", methods))
    return figure


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
