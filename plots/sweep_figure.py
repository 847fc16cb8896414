"""How speed, drop rate, accuracy and bytes depend on what is swept, such as the number of workers or a threshold."""

from collections import defaultdict

import matplotlib.pyplot as plt
import numpy as np

from plots import page, style
from plots.comparison import heading, subtitle
from plots.methods import Method, method_label, seeds_text
from plots.published import LOOK, Published
from plots.quantities import (ACCURACY, BYTES, DROPPED, LOSS, SPEED, SPEED_OF_ONE, SPEED_UP, STEP_TIME, TIME_TO_TARGET,
                              Quantity, claimed_quantity)
from plots.runs import Run
from plots.sheet import Place, Sheet, shared_out
from plots.sweep_lines import (LEAST_ASSUMED, MISSED, along_axis, dashes_of, draw_quantity, looks_of_lines, scale_axes, size_text_of,
                               values_of)
from plots.sweeps import Sweep
from plots.variation import in_words

ACROSS = 3  # panels side by side on a screen
OF_TIMES = (SPEED, STEP_TIME, SPEED_UP, DROPPED)


def sweep_figure(sweep: Sweep, looks: dict[str, dict], every_formula: bool = False, published: list[Published] = (),
                 claims: list[dict] = ()):
    """Panels of what the summaries hold against the key's value. `looks`: by label. `every_formula`: draws all formulas
    of a method, not only the one that assumes least. `published`: what papers say. `claims`: of the experiment, whose
    measures are shown, too."""
    names = shown_names(sweep)
    styles = looks_of_lines(sweep, names, looks)
    dashes, colours = dashes_of(sweep.runs, every_formula), defaultdict(set)
    quantities = shown_quantities(sweep, claims)
    rows = shared_out(quantities, ACROSS)
    sheet = Sheet([[Place(list(styles) if quantity is row[-1] else []) for quantity in row] for row in rows], "", "")
    sources = []
    for axis, quantity in zip(sheet.panels, quantities):
        drawn = draw_quantity(axis, sweep, quantity, names, styles, dashes, published)
        for formula in drawn.formulas:
            colours[formula] |= drawn.formulas[formula]
        sources += drawn.sources
        label, texts = along_axis(sweep.key, sweep.names)
        scale_axes(axis, sweep.xs, drawn.values, texts)
        sheet.entitle(axis, quantity.title)
        axis.set_xlabel(label)
        if any(quantity is row[-1] for row in rows):
            sheet.name_lines(axis, drawn.ends, styles)
    explain_marks(sheet, sweep.runs, dashes, colours, sources)
    shown = in_words({sweep.key: span(sweep.names), **sweep.others})
    sheet.heading, sheet.subtitle = heading(sweep.where), subtitle(sweep.where, shown, methods_of(sweep))
    return sheet.finish()


def span(names: dict[float, str]) -> str:
    """Of the values of a key."""
    return f"{size_text_of(names[min(names)])} to {size_text_of(names[max(names)])}"


def methods_of(sweep: Sweep) -> list[Method]:
    return [method for line in sweep.lines for method in (line.everywhere, *line.methods.values()) if method]


def shown_quantities(sweep: Sweep, claims: list[dict] = ()) -> list[Quantity]:
    """Of which there is something to see; what the claims are about comes first."""
    scales_workers = sweep.key == "cluster.workers"
    wanted = [SPEED, *([SPEED_OF_ONE] if scales_workers else []), STEP_TIME, SPEED_UP, DROPPED, ACCURACY, LOSS, TIME_TO_TARGET, BYTES]
    shown = [quantity for quantity in wanted
             if np.nansum([value for line in sweep.lines for values in values_of(sweep, line, quantity).values()
                           for value in values]) > 0]
    if ACCURACY in shown and LOSS in shown:
        shown.remove(LOSS)
    if BYTES in shown and (scales_workers or not has_model(sweep) or not differ(sweep, BYTES)):
        shown.remove(BYTES)
    if has_model(sweep) and not scales_workers:  # a key of the training, say, leaves the times as they are
        claimed = {claim["measure"] for claim in claims}
        shown = [quantity for quantity in shown if quantity not in OF_TIMES or quantity.measure in claimed
                 or not is_one_value(sweep, quantity)]
    return about(sweep, claims, [quantity.measure for quantity in wanted]) + shown


def about(sweep: Sweep, claims: list[dict], known: list[str]) -> list[Quantity]:
    """Of the measures of claims that no other panel has."""
    found = {claim["measure"]: claimed_quantity(claim) for claim in claims
             if claim["measure"] not in known}
    return [quantity for quantity in found.values() if any(values_of(sweep, line, quantity) for line in sweep.lines)]


def has_model(sweep: Sweep) -> bool:
    return any(run.config.get("training", {}).get("model", "none") != "none" for run in sweep.runs)


def differ(sweep: Sweep, quantity: Quantity) -> bool:
    """Along the key, for some method."""
    return any(len({round(np.mean(of_seeds), 9) for of_seeds in values_of(sweep, line, quantity).values()}) > 1
               for line in sweep.lines)


def is_one_value(sweep: Sweep, quantity: Quantity) -> bool:
    """For all methods and along the key: seeds alone make it vary."""
    values = [of_seeds for line in sweep.lines for of_seeds in values_of(sweep, line, quantity).values()]
    return len({round(np.mean(of_seeds), 9) for of_seeds in values}) < 2


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
    if "missed" in kinds:
        entries.append(({**MISSED, "markeredgecolor": style.INK, "markersize": 1.2 * page.current.marker},
                        "target not reached by all seeds"))
    if "best" in kinds:
        entries.append(({"linestyle": "none", "marker": "o", "color": "none", "markeredgecolor": style.INK,
                         "markeredgewidth": 1.2, "markersize": 1.6 * page.current.marker}, "best point"))
    entries += [({"color": style.INK, **LOOK, "markersize": 1.6 * page.current.marker}, source)
                for source in dict.fromkeys(sources)]
    sheet.entries = [plt.Line2D([], [], label=text, **look) for look, text in entries]


def formula_text(name: str, runs: list[Run]) -> str:
    """The formula's name; for the one that assumes least, the names of all that do so at some point of the sweep, method
    by method where they differ."""
    if name != LEAST_ASSUMED:
        return name
    names = defaultdict(dict)
    for run in runs:
        if run.summary.get("predicted"):
            names[method_label(run)][run.summary["predicted"][-1]["formula"]] = True
    methods = defaultdict(list)
    for method, of_method in names.items():
        methods[" or ".join(of_method)].append(method)
    if len(methods) == 1:
        return "by formula: " + next(iter(methods))
    return "by formula: " + "; ".join(f"{', '.join(of_text)}: {text}" for text, of_text in methods.items())


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
