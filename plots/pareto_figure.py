"""Accuracy in the end against what it took, time and bytes: a point per method, and the front of those that none beats in
both."""

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from plots import page, style
from plots.comparison import Comparison
from plots.intervals import mean_and_half
from plots.methods import Method
from plots.pareto import front
from plots.quantities import ACCURACY, BYTES, END_TIME, LOSS, Quantity
from plots.regimes_figure import ACROSS, described, name_of
from plots.sheet import Place, Sheet, shared_out

COSTS = {"time": (END_TIME, "time of the run", style.time_unit), "bytes": (BYTES, "sent by all", style.byte_unit)}
BUDGETS = {"time": "seconds", "bytes": "bytes"}  # what counts them: then all runs have as much

SIGNS = "  ·  grey line: the Pareto front; bars: 95 % intervals"


def pareto_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str,
                  axes: tuple[str, ...] = tuple(COSTS)):
    """The figure, or None where fewer than two methods have an accuracy or a loss, or where all cost the same. `looks`:
    by label."""
    gain = next((gain for gain in (ACCURACY, LOSS) if len(means(methods, gain)) > 1), None)
    if gain is None:
        return None
    panels = [name for name in axes if name in COSTS and differ(methods, name)]
    if not panels:
        return None
    styles = {method.name: looks[method.label] for method in methods}
    sheet = Sheet([[Place(list(styles) if name == panels[-1] else [], width=5.0, height=3.7) for name in panels]],
                  heading, subtitle.split("  ·  line: mean")[0] + SIGNS)
    for panel, name in zip(sheet.panels, panels):
        ends = draw_panel(panel, methods, styles, gain, *COSTS[name])
        sheet.entitle(panel, f"{gain.title} against {'time' if name == 'time' else 'bytes'}")
        if name == panels[-1]:
            sheet.name_lines(panel, ends, without_lines(styles))
    return sheet.finish()


def pareto_panels(comparisons: list[Comparison], looks: dict[str, dict], heading: str, axes: tuple[str, ...] = tuple(COSTS)):
    """The same of points side by side, for each of the axes along which methods differ at any point; None where there is
    none. `looks`: by label, of all methods of all comparisons."""
    gain = next((gain for gain in (ACCURACY, LOSS) if all(len(means(one.methods, gain)) > 1 for one in comparisons)), None)
    shown = [name for name in axes if name in COSTS and any(differ(one.methods, name) for one in comparisons)]
    if gain is None or not shown:
        return None
    names = list(dict.fromkeys(method.label for one in comparisons for method in one.methods))
    rows = [[(name, one) for one in line] for name in shown for line in shared_out(comparisons, ACROSS)]
    sheet = Sheet([[Place(names if cell is line[-1] else [], width=3.6, height=2.6) for cell in line] for line in rows], heading,
                  "  ·  ".join(part for part in described(comparisons).split("  ·  ")
                               if not part.startswith(("line: mean", "band:"))) + SIGNS)
    for panel, (name, one, is_last) in zip(sheet.panels, [(*cell, cell is line[-1]) for line in rows for cell in line]):
        ends = draw_panel(panel, one.methods, {method.name: looks[method.label] for method in one.methods}, gain, *COSTS[name])
        sheet.entitle(panel, name_of(one, comparisons))
        panel.set_ylabel(gain.title.lower())
        if is_last:
            sheet.name_lines(panel, {method.label: ends[method.name] for method in one.methods if method.name in ends},
                             without_lines(looks))
    return sheet.finish()


def without_lines(looks: dict[str, dict]) -> dict[str, dict]:
    return {label: {**look, "linestyle": "none"} for label, look in looks.items()}


def differ(methods: list[Method], cost: str) -> bool:
    """Whether methods cost more than one another, by more than the last step of runs whose budget is that cost, and by more
    than the axis shows."""
    if all(BUDGETS[cost] in run.config.get("budget", {}) for method in methods for run in method.runs):
        return False
    costs = means(methods, COSTS[cost][0]).values()
    return max(costs, default=0) > 1.001 * min(costs, default=0)


def means(methods: list[Method], quantity: Quantity) -> dict[str, float]:
    """Of methods all of whose seeds have it."""
    values = {method.name: [quantity.value(run) for run in method.runs] for method in methods}
    return {name: float(np.mean(of_method)) for name, of_method in values.items() if np.isfinite(of_method).all()}


def draw_panel(panel, methods: list[Method], styles, gain: Quantity, cost: Quantity, label: str, unit) -> dict:
    """Where the points are."""
    gains, costs = means(methods, gain), means(methods, cost)
    size, name = unit(max(costs.values()))
    points = {name: (costs[name] / size, gains[name]) for name in gains if name in costs}
    better = {name: (x, y if gain is ACCURACY else -y) for name, (x, y) in points.items()}
    best = [points[name] for name in front(better)]
    xs = [x for x, _ in points.values()]
    if min(xs) > 0 and max(xs) / min(xs) >= 10:
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.xaxis.set_minor_locator(NullLocator())
    for method in methods:
        if method.name not in points:
            continue
        x, y = points[method.name]
        _, half = mean_and_half([gain.value(run) for run in method.runs])
        _, wide = mean_and_half([cost.value(run) / size for run in method.runs])
        panel.errorbar(x, y, xerr=wide, yerr=half, color=styles[method.name]["color"], linewidth=0.6 * page.current.line)
        panel.plot(x, y, styles[method.name].get("marker", "o"), color=styles[method.name]["color"],
                   markersize=1.7 * page.current.marker, gid="method", zorder=4)
    panel.plot(*zip(*best), color=style.FAINT, linewidth=2.2 * page.current.line, alpha=0.45, zorder=1, gid="front")
    panel.set_xlabel(f"{label} ({name})")
    if panel.get_xscale() != "log":
        panel.xaxis.set_major_locator(MaxNLocator(page.current.ticks - 1))
        panel.set_xlim(left=max(0, panel.get_xlim()[0]))
    panel.xaxis.set_major_formatter(style.SHORT)
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    panel.yaxis.set_major_locator(MaxNLocator(page.current.ticks))
    return points
