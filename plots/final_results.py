"""Final results of methods over their seeds: bars, rankings, and Pareto fronts of accuracy against time and bytes."""

from math import isfinite

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from plots import style
from plots.claims import LOOK, Published, paper_legend
from plots.comparison import Comparison, Method, bars_described, described, panel_name, without_band
from plots.curves import ACROSS, CROWDED, MOST_BEYOND
from plots.numbers import (ACCURACY, BYTES, DROPPED, END_TIME, KNOWN, LOSS, SPEED, STEP_TIME, TIME_TO_TARGET, Quantity,
                           mean_and_half, means, typeset_number, values_of)
from plots.sheet import Place, Sheet, shared_out

WITH_MODEL, WITHOUT = [ACCURACY, LOSS, TIME_TO_TARGET, STEP_TIME, BYTES], [SPEED, STEP_TIME, DROPPED]
AS_POINTS = {ACCURACY, LOSS}  # drawn as points, not bars, because their distance from zero means little
HATCHES = ["", "////", "....", "\\\\\\\\", "xxxx", "oo"]  # distinguish bars on pages without colours
FORMULA = {"linestyle": "none", "marker": "|", "color": style.INK, "markeredgecolor": style.INK, "markeredgewidth": 1.5,
           "zorder": 5}  # the mark of the formula with the fewest assumptions
UNITS = {"(s)": style.time_unit, "(bytes)": style.byte_unit}

FEWEST_RANKED = 3  # fewest methods of a ranking: for two methods, curves are enough
RANK = 0.27  # height of a ranking's row in inches

COSTS = {"time": (END_TIME, "time of the run", style.time_unit), "bytes": (BYTES, "data sent in total", style.byte_unit)}
BUDGETS = {"time": "seconds", "bytes": "bytes"}  # a budget of this kind gives all runs the same cost
SIGNS = "  ·  rings: Pareto front (no method is better in one measure and no worse in the other, by seed); bars: 95 % interval of a mean"
SIGNS_OF_ONE = "  ·  rings: Pareto front (no method is better in one measure and no worse in the other)"
JOINED = "; grey line: the costlier of its two methods is better, by 95 % intervals"
JOINED_OF_ONE = "; grey line: joins the front"
BEYOND = "; arrows: beyond the axis, with the value"
HIDDEN = 0.7  # marks hide each other if their distance is less than this share of their size
NUMBER = 0.2  # width of a point with its number, as a share of the panel's width

Seeds = dict[int, float]  # a value for each seed


def bars_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str,
                published: list[Published] = (), measures: tuple[str, ...] = ()):
    """The figure of bars; None if there is only one method, or all values are 0. `looks`: by label; `measures`: those
    to draw; empty: those that tell most."""
    chosen = [KNOWN[measure] for measure in measures if measure in KNOWN] or (WITH_MODEL if has_accuracy(methods) else WITHOUT)
    quantities = [(quantity, values) for quantity in chosen
                  if any(map(any, (values := values_of(methods, quantity)).values()))]
    if not quantities or len(methods) < 2:
        return None
    styles = {method.name: looks[method.label] for method in methods}
    high = max(1.3, 0.42 * len(methods) + 0.3)
    places = [Place(width=3.4, left=style.label_inches(styles) if number == 0 else 0.1, height=high, is_wide=True)
              for number in range(len(quantities))]
    sheet, sources = Sheet([places], heading, without_band(subtitle) + seeds_of(methods)), []
    for number, (panel, (quantity, values)) in enumerate(zip(sheet.panels, quantities)):
        draw_bars(panel, quantity, values, styles, [one for one in published if one.is_of(quantity)], methods)
        sheet.entitle(panel, title_of(quantity, values))
        style.name_rows(panel, list(styles), styles)
        panel.tick_params(labelleft=number == 0 or style.page.is_column)
        drawn = {line.get_label() for line in panel.lines if line.get_gid() == "paper"}
        sources += [one.source for one in published if one.source in drawn]
    sheet.entries = paper_legend(sources)
    if any(line.get_gid() == "formula" for panel in sheet.panels for line in panel.lines):
        sheet.entries.append(plt.Line2D([], [], **FORMULA, markersize=2 * style.page.marker, label="by the method's formula"))
    return sheet.finish()


def speed_panels(comparisons: list[Comparison], looks: dict[str, dict], heading: str, quantity: Quantity):
    """Bars of one quantity, with a panel per comparison. `looks`: by label, for all methods."""
    labels = list(dict.fromkeys(method.label for comparison in comparisons for method in comparison.methods))
    high = max(1.3, 0.42 * len(labels) + 0.3)
    rows = shared_out(comparisons, ACROSS)
    sheet = Sheet([[Place(width=3.4, left=style.label_inches(labels) if one is line[0] else 0.1, height=high, is_wide=True) for one in line]
                   for line in rows], heading, bars_described(comparisons))
    first = [line[0] for line in rows]
    for panel, comparison in zip(sheet.panels, comparisons):
        for method in comparison.methods:
            row = labels.index(method.label)
            mean, half = mean_and_half([quantity.value(run) for run in method.runs])
            draw_bar(panel, row, mean, looks[method.label]["color"])
            if half is not None:
                draw_interval(panel, mean, row, half, style.INK)
        style.name_rows(panel, labels, looks)
        panel.tick_params(labelleft=any(comparison is one for one in first) or style.page.is_column)
        panel.set_xlim(left=0)
        panel.xaxis.set_major_formatter(style.SHORT)
        panel.set_xlabel(quantity.title.lower())
        sheet.entitle(panel, panel_name(comparison, comparisons))
    return sheet.finish()


def has_accuracy(methods: list[Method]) -> bool:
    return any(np.isfinite(ACCURACY.value(run)) or np.isfinite(LOSS.value(run)) for method in methods for run in method.runs)


def never_of(method: Method) -> str:
    if len(method.runs) == 1:
        return "not reached"
    return "not by all seeds" if any(np.isfinite(TIME_TO_TARGET.value(run)) for run in method.runs) else "by no seed"


def unit_of(quantity: Quantity, values: dict[str, list[float]]) -> tuple[float, str]:
    most = max(value for of_method in values.values() for value in of_method)
    return next((unit(most) for mark, unit in UNITS.items() if mark in quantity.title), (1, ""))


def title_of(quantity: Quantity, values: dict[str, list[float]]) -> str:
    _, unit = unit_of(quantity, values)
    for mark in UNITS:
        if mark in quantity.title:
            return quantity.title.replace(mark, f"({unit})")
    return quantity.title


def seeds_of(methods: list[Method]) -> str:
    counts = {len(method.runs) for method in methods}
    return "" if counts == {1} else f"  ·  mean of {'up to ' * (len(counts) > 1)}{max(counts)} seeds, with its 95 % interval"


def draw_bars(panel, quantity: Quantity, values: dict[str, list[float]], styles, published: list[Published],
              methods: list[Method]) -> None:
    scale, _ = unit_of(quantity, values)
    for row, method in enumerate(methods):
        look = styles[method.name]
        if of_method := values[method.name]:
            mean, half = (None if value is None else value / scale for value in mean_and_half(of_method))
            if quantity in AS_POINTS:
                draw_point(panel, row, mean, look)
            else:
                draw_bar(panel, row, mean, look["color"])
            if half is not None:
                draw_interval(panel, mean, row, half, look["color"] if quantity in AS_POINTS else style.INK)
        else:
            panel.text(0.02, row, never_of(method) if quantity is TIME_TO_TARGET else "–", va="center", fontsize="small",
                       color="#666666", transform=panel.get_yaxis_transform())
        said = [quantity.formula(run, run.summary["predicted"][-1]) for run in method.runs if run.summary.get("predicted")]
        if said and None not in said:
            panel.plot(np.mean(said) / scale, row, **FORMULA, markersize=2.6 * style.page.marker, gid="formula")
        for one in published:
            if one.method == method.base:
                panel.plot(quantity.times * one.value / scale, row, color=look["color"], **LOOK,
                           markersize=2 * style.page.marker, gid="paper", label=one.source)
    if quantity not in AS_POINTS:
        panel.set_xlim(left=0)
    panel.xaxis.set_major_formatter(style.SHORT)
    panel.xaxis.set_major_locator(MaxNLocator(style.page.ticks - 2))


def draw_bar(panel, row: int, mean: float, colour: str) -> None:
    panel.barh(row, mean, height=0.46, color=colour, alpha=0.75, hatch=HATCHES[row % len(HATCHES)], edgecolor="white", linewidth=0,
               gid="mean")


def draw_point(panel, row: int, mean: float, look: dict) -> None:
    panel.plot(mean, row, look.get("marker", "o"), color=look["color"], markersize=1.4 * style.page.marker, gid="mean", zorder=4)


def draw_interval(panel, mean: float, row: int, half: float, colour: str) -> None:
    """Draws an interval with a white edge, so that it is also visible on dark bars."""
    edge = withStroke(linewidth=1.6 * style.page.line, foreground="white")
    panel.plot([mean - half, mean + half], [row, row], color=colour, linewidth=0.8 * style.page.line, path_effects=[edge],
               gid="interval", zorder=3, solid_capstyle="butt")


def ranking_figure(comparisons: list[Comparison], looks: dict[str, dict], heading: str):
    """Methods ranked by their final results, the best at the top, with a panel per comparison. None if a comparison has
    fewer than FEWEST_RANKED evaluated methods. `looks`: by label, for all methods."""
    gain = next((gain for gain in (ACCURACY, LOSS) if all(len(means(one.methods, gain)) >= FEWEST_RANKED for one in comparisons)), None)
    if gain is None:
        return None
    ranked = [ranking(one.methods, gain) for one in comparisons]
    lines = shared_out(list(zip(comparisons, ranked)), ACROSS)
    sheet = Sheet([[Place(width=3.0, left=style.label_inches([method.name for method in methods]), height=RANK * len(methods) + 0.3,
                          is_wide=True) for _, methods in line] for line in lines],
                  heading, without_band(described(comparisons)) + seeds_of([method for methods in ranked for method in methods]))
    for panel, one, methods in zip(sheet.panels, comparisons, ranked):
        draw_ranking(panel, methods, gain, {method.name: looks[method.label] for method in methods})
        sheet.entitle(panel, panel_name(one, comparisons))
        panel.set_xlabel(gain.title.lower())
    return sheet.finish()


def ranking(methods: list[Method], gain: Quantity) -> list[Method]:
    """The methods with an evaluation of every seed, the best first."""
    there = means(methods, gain)
    return sorted((method for method in methods if method.name in there), key=lambda method: there[method.name],
                  reverse=gain is ACCURACY)


def draw_ranking(panel, methods: list[Method], gain: Quantity, looks: dict[str, dict]) -> None:
    for row, method in enumerate(methods):
        mean, half = mean_and_half([gain.value(run) for run in method.runs])
        draw_point(panel, row, mean, looks[method.name])
        if half is not None:
            draw_interval(panel, mean, row, half, looks[method.name]["color"])
    style.name_rows(panel, [method.name for method in methods], looks)
    panel.xaxis.set_major_formatter(style.SHORT)
    panel.xaxis.set_major_locator(MaxNLocator(style.page.ticks - 2))


def pareto_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str,
                  axes: tuple[str, ...] = tuple(COSTS)):
    """The figure of Pareto fronts; None if fewer than two methods have an accuracy or a loss, or if no cost differs.
    `looks`: by label; `axes`: names in COSTS; other names are ignored."""
    gain = next((gain for gain in (ACCURACY, LOSS) if len(means(methods, gain)) > 1), None)
    if gain is None:
        return None
    panels = [name for name in axes if name in COSTS and differ(methods, name)]
    if not panels:
        return None
    styles = {method.name: looks[method.label] for method in methods}
    sheet = Sheet([[Place(list(styles) if name == panels[-1] else [], width=5.0, height=3.7) for name in panels]],
                  heading, without_band(subtitle))
    for panel, name in zip(sheet.panels, panels):
        ends = draw_front(panel, methods, styles, gain, *COSTS[name])
        sheet.entitle(panel, f"{gain.title} against {'time' if name == 'time' else 'bytes'}")
        if name == panels[-1]:
            sheet.name_lines(panel, ends, without_lines(styles))
    sheet.subtitle += signs(sheet, [methods], gain)
    return sheet.finish()


def pareto_panels(comparisons: list[Comparison], looks: dict[str, dict], heading: str, axes: tuple[str, ...] = tuple(COSTS)):
    """Pareto fronts of several comparisons side by side, for each axis along which the methods of some comparison
    differ. None if there is no such axis. `looks`: by label, for all methods."""
    gain = next((gain for gain in (ACCURACY, LOSS) if all(len(means(one.methods, gain)) > 1 for one in comparisons)), None)
    shown = [name for name in axes if name in COSTS and any(differ(one.methods, name) for one in comparisons)]
    if gain is None or not shown:
        return None
    names = list(dict.fromkeys(method.label for one in comparisons for method in one.methods))
    rows = [[(name, one) for one in line] for name in shown for line in shared_out(comparisons, ACROSS)]
    sheet = Sheet([[Place(names if cell is line[-1] else [], width=3.6, height=2.6) for cell in line] for line in rows], heading,
                  without_band(described(comparisons)))
    for panel, (name, one, is_last) in zip(sheet.panels, [(*cell, cell is line[-1]) for line in rows for cell in line]):
        ends = draw_front(panel, one.methods, {method.name: looks[method.label] for method in one.methods}, gain, *COSTS[name])
        sheet.entitle(panel, panel_name(one, comparisons))
        panel.set_ylabel(gain.title.lower())
        if is_last:
            sheet.name_lines(panel, {method.label: ends[method.name] for method in one.methods if method.name in ends},
                             without_lines(looks))
    sheet.subtitle += signs(sheet, [one.methods for one in comparisons], gain)
    return sheet.finish()


def signs(sheet: Sheet, panels: list[list[Method]], gain: Quantity) -> str:
    """The meaning of the marks that the sheet's panels have."""
    several = any(len(method.runs) > 1 for methods in panels for method in methods)
    has_outliers = any(beyond_the_axis(means(methods, gain), gain is ACCURACY, halves_of(methods, gain)) for methods in panels)
    is_joined = any(line.get_gid() == "front" for panel in sheet.panels for line in panel.lines)
    joined = JOINED if several else JOINED_OF_ONE
    return (SIGNS if several else SIGNS_OF_ONE) + joined * is_joined + BEYOND * has_outliers


def without_lines(looks: dict[str, dict]) -> dict[str, dict]:
    return {label: {**look, "linestyle": "none"} for label, look in looks.items()}


def differ(methods: list[Method], cost: str) -> bool:
    """Whether methods differ visibly in this cost. They do not if the cost is the budget of all runs."""
    if all(BUDGETS[cost] in run.config.get("budget", {}) for method in methods for run in method.runs):
        return False
    costs = means(methods, COSTS[cost][0]).values()
    return max(costs, default=0) > 1.001 * min(costs, default=0)


def side(own: Seeds, other: Seeds) -> int:
    """Whether `own` is larger than `other` (1), smaller (-1), or not significantly different (0), by the 95 %
    interval of the mean difference over common seeds. With fewer than two common seeds the means decide."""
    common = [seed for seed in own if seed in other]
    if len(common) < 2:
        mean, half = float(np.mean([*own.values()]) - np.mean([*other.values()])), 0.0
    else:
        mean, half = mean_and_half([own[seed] - other[seed] for seed in common])
    return 0 if not isfinite(mean) or abs(mean) <= half else 1 if mean > 0 else -1


def beats(own: tuple[Seeds, Seeds], other: tuple[Seeds, Seeds]) -> bool:
    """Whether `own`, as (cost, gain), is significantly better than `other` in one of these and in neither worse."""
    cheaper, better = -side(own[0], other[0]), side(own[1], other[1])
    return min(cheaper, better) >= 0 and max(cheaper, better) > 0


def front(results: dict[str, tuple[Seeds, Seeds]]) -> list[str]:
    """The names of the results that no other result beats, by ascending cost. Contains all of several equal results."""
    kept = [name for name, own in results.items() if not any(beats(other, own) for other in results.values())]
    return sorted(kept, key=lambda name: means_of(results[name]))


def chains(results: dict[str, tuple[Seeds, Seeds]]) -> list[list[str]]:
    """The front in pieces. Neighbours are joined if cost and gain of the costlier one are both significantly larger."""
    pieces: list[list[str]] = []
    for name in front(results):
        before = results[pieces[-1][-1]] if pieces else None
        if before and all(side(own, other) > 0 for own, other in zip(results[name], before)):
            pieces[-1].append(name)
        else:
            pieces.append([name])
    return pieces


def means_of(result: tuple[Seeds, Seeds]) -> tuple[float, float]:
    return float(np.mean([*result[0].values()])), float(np.mean([*result[1].values()]))


def by_seed(methods: list[Method], names: set[str], gain: Quantity, cost: Quantity) -> dict[str, tuple[Seeds, Seeds]]:
    """Cost and gain of each method by seed. The gain is the accuracy, or the loss with a minus sign."""
    sign = 1 if gain is ACCURACY else -1
    return {method.name: ({run.seed: cost.value(run) for run in method.runs}, {run.seed: sign * gain.value(run) for run in method.runs})
            for method in methods if method.name in names}


def halves_of(methods: list[Method], quantity: Quantity) -> dict[str, float]:
    """Half the 95 % interval of each method's mean; 0 if there is no interval."""
    halves = {method.name: mean_and_half([quantity.value(run) for run in method.runs])[1] for method in methods}
    return {name: float(np.nan_to_num(half or 0)) for name, half in halves.items()}


def beyond_the_axis(gains: dict[str, float], more_is_better: bool, halves: dict[str, float] | None = None) -> set[str]:
    """Methods so much worse than all others that the axis leaves out their results and intervals (see CROWDED)."""
    def spread(names: list[str]) -> float:
        half = {name: (halves or {}).get(name, 0) for name in names}
        return max(gains[name] + half[name] for name in names) - min(gains[name] - half[name] for name in names)

    ordered = sorted(gains, key=gains.get, reverse=more_is_better)
    fewest = max(3, int(np.ceil((1 - MOST_BEYOND) * len(ordered))))
    for count in range(len(ordered) - 1, fewest - 1, -1):
        if spread(ordered[:count]) < CROWDED * spread(ordered):
            return set(ordered[count:])
    return set()


def draw_front(panel, methods: list[Method], styles, gain: Quantity, cost: Quantity, label: str, unit) -> dict:
    """Draws a panel; returns the positions of its points."""
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
        panel.errorbar(x, y, xerr=wide, yerr=half, color=styles[method.name]["color"], linewidth=0.6 * style.page.line)
        panel.plot(x, y, styles[method.name].get("marker", "o"), color=styles[method.name]["color"],
                   markersize=1.7 * style.page.marker, gid="method", zorder=4)
    for piece in pieces:
        if len(piece) > 1:
            panel.plot(*zip(*(points[name] for name in piece)), color=style.FAINT, linewidth=2.2 * style.page.line, alpha=0.45,
                       zorder=1, gid="front")
    panel.plot(*zip(*(points[name] for piece in pieces for name in piece)), "o", color="none", markersize=3 * style.page.marker,
               markeredgecolor=style.FAINT, markeredgewidth=1.4, zorder=3, gid="on the front", clip_on=False)
    panel.set_xlabel(f"{label} ({name})")
    if panel.get_xscale() != "log":
        panel.xaxis.set_major_locator(MaxNLocator(style.page.ticks - 1))
        panel.set_xlim(left=max(0, panel.get_xlim()[0]))
    panel.xaxis.set_major_formatter(style.SHORT)
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: typeset_number(value)))
    panel.yaxis.set_major_locator(MaxNLocator(style.page.ticks))
    hollow_where_hidden(panel)
    return points


def place_beyond(panel, points: dict[str, tuple[float, float]], outliers: set[str], shown: list[float], is_below: bool,
                 look_of: dict[str, dict]) -> dict[str, tuple[float, float]]:
    """Lets the axis end after the `shown` values and draws the outliers at its edge, each with an arrow and its value.
    Outliers with similar costs are stacked. Returns the outliers' positions."""
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
                       arrowprops={"arrowstyle": "->", "color": look_of[name]["color"], "linewidth": style.page.line,
                                   "shrinkA": 2, "shrinkB": 0})
        panel.annotate(typeset_number(y), xy=(x, edge), xytext=(1.0 * style.page.marker, 0), textcoords="offset points",
                       va="center", fontsize=0.85 * style.page.font, color=look_of[name]["color"], zorder=5,
                       bbox={"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.8})
    return placed


def rows_of(panel, places: dict[str, float], xs: list[float]) -> dict[str, int]:
    """The row of each outlier, counted from the edge: the first row in which its number overlaps no other number."""
    at = np.log if panel.get_xscale() == "log" else float
    near = NUMBER * (at(max(xs)) - at(min(xs)))
    rows = {}
    for name, x in places.items():
        taken = {rows[other] for other in rows if abs(at(places[other]) - at(x)) < near}
        rows[name] = next(row for row in range(len(places)) if row not in taken)
    return rows


def hollow_where_hidden(panel) -> None:
    """Draws marks as outlines if they would hide each other."""
    marks = [line for line in panel.lines if line.get_gid() == "method"]
    panel.autoscale_view()  # otherwise matplotlib does this only while drawing
    box = panel.get_position()
    size = np.array([box.width, box.height]) * panel.figure.get_size_inches() * 72  # in points
    to_axes = panel.transData + panel.transAxes.inverted()
    places = {mark: to_axes.transform(mark.get_xydata())[0] * size for mark in marks}
    for mark in marks:
        near = HIDDEN * mark.get_markersize()
        if any(other is not mark and np.hypot(*(places[other] - places[mark])) < near for other in marks):
            mark.set(markerfacecolor="none", markeredgecolor=mark.get_color(), markeredgewidth=1.4)
