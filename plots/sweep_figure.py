"""How speed, drop rate, accuracy and bytes depend on what is swept, such as the number of workers or a threshold."""

from collections import defaultdict

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from plots import page, style
from plots.choice import same
from plots.comparison import heading, subtitle
from plots.methods import BASELINE, Method, seeds_text
from plots.printable import printable
from plots.published import LOOK, Published
from plots.quantities import (ACCURACY, BYTES, DROPPED, LOSS, SPEED, SPEED_OF_ONE, SPEED_UP, STEP_TIME, TIME_TO_TARGET,
                              Quantity, best_of, number, samples_per_s)
from plots.runs import Run
from plots.sheet import Place, Sheet, shared_out
from plots.sweeps import Line, Sweep
from plots.variation import as_words

THIN = [(0, (1, 1.3)), (0, (5, 1.5, 1, 1.5)), (0, (5, 1.5, 1, 1.5, 1, 1.5)), (0, (2, 3))]  # of formulas, the last first
ACROSS = 4  # panels side by side on a screen

LEAST_ASSUMED = ""  # stands for whichever of a method's formulas that is, at each point of the sweep


def formulas_of(run: Run, every: bool) -> dict[str, dict]:
    """What the method's formulas say, by name. The first is the one that assumes least, which is
    the last in the summary and the one in the table of results; without `every` it is the only
    one."""
    formulas = (run.summary.get("predicted") or [])[::-1]
    if every:
        return {formula["formula"]: formula for formula in formulas}
    return {LEAST_ASSUMED: formulas[0]} if formulas else {}


def sweep_figure(sweep: Sweep, looks: dict[str, dict], every_formula: bool = False, published: list[Published] = ()):
    """Panels of what the summaries hold against the key's value. `looks`: by label. `every_formula`: draws all formulas
    of a method, not only the one that assumes least. `published`: what papers say."""
    names = shown_names(sweep)
    styles = {name: looks[label] for label, name in names.items()}
    dashes, colours = dashes_of(sweep.runs, every_formula), defaultdict(set)
    quantities = shown_quantities(sweep)
    rows = shared_out(quantities, ACROSS)
    sheet = Sheet([[Place(list(styles) if quantity is row[-1] else []) for quantity in row] for row in rows], "", "")
    sources = []
    for axis, quantity in zip(sheet.panels, quantities):
        ends, drawn = {}, []
        for line in sweep.lines:
            name = names[line.label]
            values = values_of(sweep, line, quantity)
            if not values:
                continue
            if line.everywhere:
                styles[name] = style.without_marker(styles[name])
            ends[name] = draw_line(axis, values, styles[name], "everywhere" if line.everywhere else "method")
            drawn += [value for of_seeds in values.values() for value in of_seeds]
            if not line.everywhere and not trivially_best(sweep.key, quantity):
                ring(axis, {x: float(np.mean(of_seeds)) for x, of_seeds in values.items()}, quantity, styles[name])
            for formula, dash in dashes.items():
                said = draw_formula(axis, formula, sweep, line, quantity, {**styles[name], "dashes": dash})
                drawn += said
                if said:
                    colours[formula].add(styles[name]["color"])
            for one in stated_at(sweep, line, quantity, published):
                x = float(where_of(one.where, sweep.key))
                axis.plot(x, quantity.times * one.value, color=styles[name]["color"], **LOOK,
                          markersize=2 * page.current.marker, gid="paper")
                drawn.append(quantity.times * one.value)
                sources.append(one.source)
        if sweep.key == "cluster.workers" and quantity.linear:
            drawn += draw_linear(axis, sweep, quantity)
        scale_axes(axis, sweep.xs, [value for value in drawn if np.isfinite(value)], sweep.names)
        sheet.entitle(axis, quantity.title)
        axis.set_xlabel(key_label(sweep.key))
        if any(quantity is row[-1] for row in rows):
            sheet.name_lines(axis, ends, styles)
    explain_marks(sheet, sweep.runs, dashes, colours, sources)
    xs = [sweep.names[x] for x in (sweep.xs[0], sweep.xs[-1])]
    shown = as_words({sweep.key: f"{xs[0]} to {xs[1]}", **sweep.others}, ", ")
    sheet.heading, sheet.subtitle = heading(sweep.where), subtitle(sweep.where, shown, methods_of(sweep))
    return sheet.finish()


def methods_of(sweep: Sweep) -> list[Method]:
    return [method for line in sweep.lines for method in (line.everywhere, *line.methods.values()) if method]


def shown_quantities(sweep: Sweep) -> list[Quantity]:
    """Of which there is something to see."""
    scales_workers = sweep.key == "cluster.workers"
    wanted = [SPEED, SPEED_OF_ONE if scales_workers else STEP_TIME, SPEED_UP, DROPPED, ACCURACY, LOSS, TIME_TO_TARGET, BYTES]
    shown = [quantity for quantity in wanted
             if np.nansum([value for line in sweep.lines for values in values_of(sweep, line, quantity).values()
                           for value in values]) > 0]
    if ACCURACY in shown and LOSS in shown:
        shown.remove(LOSS)
    if BYTES in shown and (scales_workers or not has_model(sweep) or not differ(sweep, BYTES)):
        shown.remove(BYTES)
    return shown


def has_model(sweep: Sweep) -> bool:
    return any(run.config.get("training", {}).get("model", "none") != "none" for run in sweep.runs)


def differ(sweep: Sweep, quantity: Quantity) -> bool:
    """Along the key, for some method."""
    return any(len({round(np.mean(of_seeds), 9) for of_seeds in values_of(sweep, line, quantity).values()}) > 1
               for line in sweep.lines)


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
    first = next((line for line in there if algorithm_of(line) == BASELINE), there[0])
    one = float(np.mean([samples_per_s(run) / busy_share(run) for run in first.runs(fewest)])) / fewest
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


def explain_marks(sheet: Sheet, runs: list[Run], dashes: dict[str, tuple], colours: dict[str, set[str]],
                  sources: list[str]) -> None:
    """Says what lines without dots and marks without lines are, where there are any; a formula of one method alone in the
    method's colour."""
    kinds = {line.get_gid() for panel in sheet.panels for line in panel.lines}
    entries = [({"linestyle": dash, "color": min(colours[name]) if len(colours[name]) == 1 else style.INK,
                 "linewidth": 0.58 * page.current.line}, formula_text(name, runs)) for name, dash in dashes.items() if colours[name]]
    if "linear" in kinds:
        entries.append(({"linestyle": style.DASHES[1], "color": style.FAINT, "linewidth": 0.58 * page.current.line},
                        "linear scaling: nobody waits"))
    if "best" in kinds:
        entries.append(({"linestyle": "none", "marker": "o", "color": "none", "markeredgecolor": style.INK,
                         "markeredgewidth": 1.2, "markersize": 1.6 * page.current.marker}, "best point"))
    entries += [({"color": style.INK, **LOOK, "markersize": 1.6 * page.current.marker}, source)
                for source in dict.fromkeys(sources)]
    sheet.entries = [plt.Line2D([], [], label=text, **look) for look, text in entries]


def formula_text(name: str, runs: list[Run]) -> str:
    """The formula's name; for the one that assumes least, the names of all that do so at some point
    of the sweep."""
    if name != LEAST_ASSUMED:
        return name
    names = dict.fromkeys(run.summary["predicted"][-1]["formula"] for run in runs if run.summary.get("predicted"))
    return "by formula: " + ", ".join(names)


def shown_names(sweep: Sweep) -> dict[str, str]:
    """Each label as the figure shows it: with its number of seeds where that is not the same
    everywhere."""
    counts = {line.label: sorted({len(method.runs) for method in (line.everywhere, *line.methods.values()) if method})
              for line in sweep.lines}
    most = max(max(of_line) for of_line in counts.values())
    names = {}
    for label, of_line in counts.items():
        seeds = seeds_text(of_line[-1]) if len(of_line) == 1 else f"{of_line[0]} to {of_line[-1]} seeds"
        names[label] = label if of_line == [most] else f"{label} ({seeds})"
    return names


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
                   markeredgewidth=1.4, zorder=5, gid="best")


def scale_axes(panel, xs: list[float], values: list[float], names: dict[float, str] | None = None) -> None:
    """Logarithmic where values are spaced so: over more than a decade, or by equal factors. `names`: of the values."""
    if is_spaced_by_factors(xs):
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_locator(FixedLocator(legible(xs)))
        panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: size_text(x)))
    if names and any(size_text(x) != size_text_of(name) for x, name in names.items()):  # the sweep gives them names
        panel.set_xticks(xs, [printable(names[x]) for x in xs], rotation=25, ha="right")
    if values and min(values) > 0 and max(values) / min(values) >= 10:
        panel.set_yscale("log")
        panel.yaxis.set_minor_locator(NullLocator())
        if max(values) / min(values) < 100:
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    elif values and max(values) == min(values):  # lest an axis speak of a difference in the tenth digit
        panel.set_ylim(values[0] - 0.1 * (abs(values[0]) or 1), values[0] + 0.1 * (abs(values[0]) or 1))
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


def size_text(x: float) -> str:
    return f"{x:g}" if abs(x) < 10000 else style.short_number(x)


def key_label(key: str) -> str:
    """The key's last part, with its unit in brackets."""
    words = printable(key.rsplit(".", 1)[-1])
    if words.endswith("_s") and not words.endswith("per_s"):
        words = words.removesuffix("_s") + " (s)"
    return words.replace("_", " ")


def size_text_of(name: str) -> str:
    try:
        return size_text(float(name))
    except ValueError:
        return name
