"""What each method comes to in the end, over its seeds, with 95 % intervals: bars from zero, and for accuracy and loss,
whose zero means little, points."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from plots import page, style
from plots.intervals import mean_and_half
from plots.methods import Method
from plots.published import LOOK, Published
from plots.quantities import ACCURACY, BYTES, DROPPED, LOSS, SPEED, STEP_TIME, TIME_TO_TARGET, Quantity
from plots.sheet import Place, Sheet

WITH_MODEL, WITHOUT = [ACCURACY, LOSS, TIME_TO_TARGET, STEP_TIME, BYTES], [SPEED, STEP_TIME, DROPPED]
AS_POINTS = {ACCURACY, LOSS}
HATCHES = ["", "////", "....", "\\\\\\\\", "xxxx", "oo"]  # tell bars apart on grey pages
FORMULA = {"linestyle": "none", "marker": "|", "color": style.INK, "markeredgecolor": style.INK, "markeredgewidth": 1.5,
           "zorder": 5}  # what the one says that assumes least
UNITS = {"(s)": style.time_unit, "(bytes)": style.byte_unit}


def bars_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str,
                published: list[Published] = ()):
    """The figure, or None where there is nothing but one bar. `looks`: by label."""
    quantities = [(quantity, values) for quantity in (WITH_MODEL if has_accuracy(methods) else WITHOUT)
                  if any((values := values_of(methods, quantity)).values()) and worth_showing(values)]
    if not quantities or len(methods) < 2:
        return None
    styles = {method.name: looks[method.label] for method in methods}
    high = max(1.3, 0.42 * len(methods) + 0.3)
    places = [Place(width=3.4, left=style.label_inches(styles) if number == 0 else 0.1, height=high, is_wide=True)
              for number in range(len(quantities))]
    sheet = Sheet([places], heading, subtitle.split("  ·  line: mean")[0] + seeds_of(methods))
    for number, (panel, (quantity, values)) in enumerate(zip(sheet.panels, quantities)):
        draw_rows(panel, quantity, values, styles, [one for one in published if one.is_of(quantity)], methods)
        sheet.entitle(panel, title_of(quantity, values))
        sheet.entries += [mark for mark in marks_of(panel, published) if mark.get_label() not in
                          [other.get_label() for other in sheet.entries]]
        style.name_rows(panel, list(styles), styles)
        panel.tick_params(labelleft=number == 0 or page.current.is_column)
    if any(line.get_gid() == "formula" for panel in sheet.panels for line in panel.lines):
        sheet.entries.append(plt.Line2D([], [], **FORMULA, markersize=2 * page.current.marker, label="by the method's formula"))
    return sheet.finish()


def marks_of(panel, published: list[Published]) -> list:
    """What the legend says of papers' marks in the panel."""
    values = {line.get_label() for line in panel.lines if line.get_gid() == "paper"}
    return [plt.Line2D([], [], color=style.INK, **LOOK, markersize=1.6 * page.current.marker, label=source)
            for source in dict.fromkeys(one.source for one in published) if source in values]


def has_accuracy(methods: list[Method]) -> bool:
    return any(np.isfinite(ACCURACY.value(run)) or np.isfinite(LOSS.value(run)) for method in methods for run in method.runs)


def values_of(methods: list[Method], quantity: Quantity) -> dict[str, list[float]]:
    """Of all seeds, by method; empty where a seed has none, such as one that never reached the target: a mean of the
    others would flatter the method."""
    found = {}
    for method in methods:
        values = [quantity.value(run) for run in method.runs]
        found[method.name] = values if np.isfinite(values).all() else []
    return found


def worth_showing(values: dict[str, list[float]]) -> bool:
    """Zero for all is no picture."""
    return any(value for of_method in values.values() for value in of_method)


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


def draw_rows(panel, quantity: Quantity, values: dict[str, list[float]], styles, published: list[Published],
              methods: list[Method]) -> None:
    scale, _ = unit_of(quantity, values)
    for row, method in enumerate(methods):
        look = styles[method.name]
        if of_method := values[method.name]:
            mean, half = (None if value is None else value / scale for value in mean_and_half(of_method))
            if quantity in AS_POINTS:
                panel.plot(mean, row, look.get("marker", "o"), color=look["color"], markersize=1.4 * page.current.marker,
                           gid="mean", zorder=4)
            else:
                panel.barh(row, mean, height=0.46, color=look["color"], alpha=0.75, hatch=HATCHES[row % len(HATCHES)],
                           edgecolor="white", linewidth=0, gid="mean")
            if half is not None:
                draw_interval(panel, mean, row, half, look["color"] if quantity in AS_POINTS else style.INK)
        else:
            panel.text(0.02, row, never_of(method) if quantity is TIME_TO_TARGET else "–", va="center", fontsize="small",
                       color="#666666", transform=panel.get_yaxis_transform())
        said = [quantity.formula(run, run.summary["predicted"][-1]) for run in method.runs if run.summary.get("predicted")]
        if said and None not in said:
            panel.plot(np.mean(said) / scale, row, **FORMULA, markersize=2.6 * page.current.marker, gid="formula")
        for one in published:
            if one.method == method.base:
                panel.plot(quantity.times * one.value / scale, row, color=look["color"], **LOOK,
                           markersize=2 * page.current.marker, gid="paper", label=one.source)
    if quantity not in AS_POINTS:
        panel.set_xlim(left=0)
    panel.xaxis.set_major_formatter(style.SHORT)
    panel.xaxis.set_major_locator(MaxNLocator(page.current.ticks - 2))


def draw_interval(panel, mean: float, row: int, half: float, colour: str) -> None:
    """Seen also on dark bars."""
    edge = withStroke(linewidth=1.6 * page.current.line, foreground="white")
    panel.plot([mean - half, mean + half], [row, row], color=colour, linewidth=0.8 * page.current.line, path_effects=[edge],
               gid="interval", zorder=3, solid_capstyle="butt")
