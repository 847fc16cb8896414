"""Accuracy in the end against what it took, time and bytes: a point per method, and the front of those that none beats in
both."""

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from plots import page, style
from plots.comparison import Comparison
from plots.intervals import mean_and_half
from plots.methods import Method
from plots.numbers import typeset_number
from plots.pareto import Seeds, chains
from plots.quantities import ACCURACY, BYTES, END_TIME, LOSS, Quantity
from plots.regimes_figure import ACROSS, described, name_of
from plots.sheet import Place, Sheet, shared_out

COSTS = {"time": (END_TIME, "time of the run", style.time_unit), "bytes": (BYTES, "sent by all", style.byte_unit)}
BUDGETS = {"time": "seconds", "bytes": "bytes"}  # what counts them: then all runs have as much

SIGNS = "  ·  rings: the Pareto front, beaten by none; grey line: where 95 % intervals (bars) tell it apart"
SIGNS_OF_ONE = "  ·  grey line and rings: the Pareto front"
BEYOND = "; arrows: beyond the axis, with the value"

# Methods far behind all others would set the scale, so that the others lie on each other: where without them (no more than
# a quarter) the others spread over less than this share of the whole, they stand at the edge.
CROWDED, MOST_BEYOND = 0.4, 0.25
HIDDEN = 0.7  # of a mark's size: as near as that the one below is not to be told
NUMBER = 0.2  # of a panel's width: what a point and its value take


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
                  heading, subtitle.split("  ·  line: mean")[0] + signs([methods], gain))
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
                               if not part.startswith(("line: mean", "band:"))) +
                  signs([one.methods for one in comparisons], gain))
    for panel, (name, one, is_last) in zip(sheet.panels, [(*cell, cell is line[-1]) for line in rows for cell in line]):
        ends = draw_panel(panel, one.methods, {method.name: looks[method.label] for method in one.methods}, gain, *COSTS[name])
        sheet.entitle(panel, name_of(one, comparisons))
        panel.set_ylabel(gain.title.lower())
        if is_last:
            sheet.name_lines(panel, {method.label: ends[method.name] for method in one.methods if method.name in ends},
                             without_lines(looks))
    return sheet.finish()


def signs(panels: list[list[Method]], gain: Quantity) -> str:
    several = any(len(method.runs) > 1 for methods in panels for method in methods)
    return (SIGNS if several else SIGNS_OF_ONE) + (BEYOND if any(beyond_the_axis(means(methods, gain), gain is ACCURACY, halves_of(methods, gain)) for methods in panels) else "")


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


def by_seed(methods: list[Method], names: set[str], gain: Quantity, cost: Quantity) -> dict[str, tuple[Seeds, Seeds]]:
    """Cost and gain of each method, of which more is better."""
    sign = 1 if gain is ACCURACY else -1
    return {method.name: ({run.seed: cost.value(run) for run in method.runs}, {run.seed: sign * gain.value(run) for run in method.runs})
            for method in methods if method.name in names}


def halves_of(methods: list[Method], quantity: Quantity) -> dict[str, float]:
    """Of the methods' intervals; 0 where there is none."""
    halves = {method.name: mean_and_half([quantity.value(run) for run in method.runs])[1] for method in methods}
    return {name: float(np.nan_to_num(half or 0)) for name, half in halves.items()}


def beyond_the_axis(gains: dict[str, float], more_is_better: bool, halves: dict[str, float] | None = None) -> set[str]:
    """Methods that are so far behind that they do not set the scale: those behind the first gap that makes it worth while,
    by what is drawn, with the intervals."""
    def spread(names: list[str]) -> float:
        half = {name: (halves or {}).get(name, 0) for name in names}
        return max(gains[name] + half[name] for name in names) - min(gains[name] - half[name] for name in names)

    ordered = sorted(gains, key=gains.get, reverse=more_is_better)
    fewest = max(3, int(np.ceil((1 - MOST_BEYOND) * len(ordered))))
    for count in range(len(ordered) - 1, fewest - 1, -1):
        if spread(ordered[:count]) < CROWDED * spread(ordered):
            return set(ordered[count:])
    return set()


def place_beyond(panel, points: dict[str, tuple[float, float]], outliers: set[str], shown: list[float], is_below: bool, look_of) -> dict:
    """Cuts the axis behind what is `shown`, and puts the outliers at its edge, each with an arrow and its value, and one above
    the other where they cost alike. Where they are then."""
    low, high = min(shown), max(shown)
    room = 0.06 * (high - low or 1)
    ordered = sorted(outliers, key=lambda name: points[name][1], reverse=not is_below)  # the furthest at the edge
    rows = rows_of(panel, {name: points[name][0] for name in ordered}, [x for x, _ in points.values()])
    beyond = (4 + 2.2 * max(rows.values())) * room
    bottom, top = (low - beyond, high + room) if is_below else (low - room, high + beyond)
    panel.set_ylim(bottom, top)
    placed = {}
    for name in ordered:
        x, y = points[name]
        towards = 2.2 * room * rows[name]
        inside = towards + 1.6 * room
        edge, towards = (bottom + inside, bottom + towards) if is_below else (top - inside, top - towards)
        placed[name] = (x, edge)
        panel.annotate("", xy=(x, towards), xytext=(x, edge), zorder=3, gid="beyond",
                       arrowprops={"arrowstyle": "->", "color": look_of[name]["color"], "linewidth": page.current.line,
                                   "shrinkA": 2, "shrinkB": 0})
        panel.annotate(typeset_number(y), xy=(x, edge), xytext=(1.0 * page.current.marker, 0), textcoords="offset points",
                       va="center", fontsize=0.85 * page.current.font, color=look_of[name]["color"], zorder=5,
                       bbox={"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.8})
    return placed


def rows_of(panel, places: dict[str, float], xs: list[float]) -> dict[str, int]:
    """From the edge inwards: in the first row in which nobody is so near that numbers run into each other."""
    at = np.log if panel.get_xscale() == "log" else float
    near = NUMBER * (at(max(xs)) - at(min(xs)))
    rows = {}
    for name, x in places.items():
        taken = {rows[other] for other in rows if abs(at(places[other]) - at(x)) < near}
        rows[name] = next(row for row in range(len(places)) if row not in taken)
    return rows


def draw_panel(panel, methods: list[Method], styles, gain: Quantity, cost: Quantity, label: str, unit) -> dict:
    """Where the points are."""
    gains, costs = means(methods, gain), means(methods, cost)
    size, name = unit(max(costs.values()))
    points = {name: (costs[name] / size, gains[name]) for name in gains if name in costs}
    pieces = chains(by_seed(methods, set(points), gain, cost))
    xs = [x for x, _ in points.values()]
    if min(xs) > 0 and max(xs) / min(xs) >= 10:
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.xaxis.set_minor_locator(NullLocator())
    halves = halves_of(methods, gain)
    outliers = beyond_the_axis({name: y for name, (_, y) in points.items()}, gain is ACCURACY, halves)
    if outliers:
        shown = [y + sign * halves[name] for name, (_, y) in points.items() if name not in outliers for sign in (-1, 1)]
        points |= place_beyond(panel, points, outliers, shown, gain is ACCURACY, styles)
    for method in methods:
        if method.name not in points:
            continue
        x, y = points[method.name]
        half = None if method.name in outliers else halves[method.name] or None
        _, wide = mean_and_half([cost.value(run) / size for run in method.runs])
        panel.errorbar(x, y, xerr=wide, yerr=half, color=styles[method.name]["color"], linewidth=0.6 * page.current.line)
        panel.plot(x, y, styles[method.name].get("marker", "o"), color=styles[method.name]["color"],
                   markersize=1.7 * page.current.marker, gid="method", zorder=4)
    for piece in pieces:
        if len(piece) > 1:
            panel.plot(*zip(*(points[name] for name in piece)), color=style.FAINT, linewidth=2.2 * page.current.line, alpha=0.45,
                       zorder=1, gid="front")
    panel.plot(*zip(*(points[name] for piece in pieces for name in piece)), "o", color="none", markersize=3 * page.current.marker, markeredgecolor=style.FAINT,
               markeredgewidth=1.4, zorder=3, gid="on the front", clip_on=False)
    panel.set_xlabel(f"{label} ({name})")
    if panel.get_xscale() != "log":
        panel.xaxis.set_major_locator(MaxNLocator(page.current.ticks - 1))
        panel.set_xlim(left=max(0, panel.get_xlim()[0]))
    panel.xaxis.set_major_formatter(style.SHORT)
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: typeset_number(value)))
    panel.yaxis.set_major_locator(MaxNLocator(page.current.ticks))
    hollow_where_hidden(panel)
    return points


def hollow_where_hidden(panel) -> None:
    """Marks that lie on others hide them, unless all of these are outlines."""
    marks = [line for line in panel.lines if line.get_gid() == "method"]
    panel.autoscale_view()  # which else waits until all is drawn
    box = panel.get_position()
    size = np.array([box.width, box.height]) * panel.figure.get_size_inches() * 72  # points
    to_axes = panel.transData + panel.transAxes.inverted()
    places = {mark: to_axes.transform(mark.get_xydata())[0] * size for mark in marks}
    for mark in marks:
        near = HIDDEN * mark.get_markersize()
        if any(other is not mark and np.hypot(*(places[other] - places[mark])) < near for other in marks):
            mark.set(markerfacecolor="none", markeredgecolor=mark.get_color(), markeredgewidth=1.4)
