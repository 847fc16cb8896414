"""Accuracy and loss against steps, samples and time."""

from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter
from matplotlib.transforms import ScaledTranslation

from plots import style
from plots.curves import Curve, mean_to_target, method_curve, shown_range
from plots.methods import Method


@dataclass
class Row:
    """What one row of panels shows."""

    column: str
    label: str
    target_key: str
    rising: bool
    percent: bool


ROWS = [Row("test_accuracy", "test accuracy", "target_accuracy", rising=True, percent=True),
        Row("test_loss", "test loss", "target_loss", rising=False, percent=False)]
COLUMNS = [("step", "optimizer steps"), ("samples", "samples in the model"), ("time_s", "time")]
DOT_POINTS = 6.5


def curves_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str):
    """The figure, or None where no method has an evaluation with a model (time-only runs). `looks`: by label."""
    styles = {method.name: looks[method.label] for method in methods}
    reached = {column: {method.name: mean for method in methods
                        if (mean := mean_to_target(method, column)) is not None} for column, _ in COLUMNS}
    rows = []
    for row in ROWS:
        curves = [{method.name: curve for method in methods if (curve := method_curve(method, column, row.column))}
                  for column, _ in COLUMNS]
        if curves[0]:
            rows.append((row, curves))
    if not rows:
        return None
    figure, panels = plt.subplots(len(rows), len(COLUMNS), squeeze=False,
                                  figsize=(13 + style.label_inches(styles), 1.4 + 3.7 * len(rows)))
    top = 1 - 1.0 / figure.get_figheight()
    figure.subplots_adjust(left=0.055, right=1 - (0.35 + style.label_inches(styles)) / figure.get_figwidth(),
                           bottom=0.65 / figure.get_figheight(), top=top, wspace=0.16, hspace=0.22)
    unit_s, unit = style.time_unit(max((curve.x[-1] for curve in rows[0][1][2].values()), default=0))
    dots = False
    for (row, curves), line in zip(rows, panels):
        target = methods[0].runs[0].config.get("evaluation", {}).get(row.target_key)
        for panel, (column, label), lines in zip(line, COLUMNS, curves):
            if column == "time_s":
                scale, label = unit_s, f"{label} ({unit})"
            else:
                scale = 1
            draw_panel(panel, lines, styles, scale)
            if target is not None:
                panel.axhline(target, color=style.FAINT, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
                dots |= draw_dots(panel, reached[column], styles, row, target, scale)
            panel.tick_params(labelleft=panel is line[0])
            panel.set_xlabel(label if row is rows[-1][0] else "")
        line[0].set_ylabel(f"{row.label} (%)" if row.percent else row.label)
        limit_values(line, curves, row, target)
        ends = {label: (curve.x[-1] / unit_s, curve.mean[-1]) for label, curve in curves[2].items()}
        style.label_lines(line[2], ends, styles)
    if dots:
        several = any(len(method.runs) > 1 for method in methods)
        subtitle += "  ·  dot: first evaluation at target" + (", mean of seeds" if several else "")
    style.title(figure, heading, subtitle)
    return figure


def draw_panel(panel, lines: dict[str, Curve], styles, scale: float) -> None:
    for name, curve in lines.items():
        x = curve.x / scale
        panel.fill_between(x, curve.low, curve.high, color=styles[name]["color"], alpha=0.16, linewidth=0)
        panel.plot(x, curve.mean, **styles[name])
        if len(x) == 1:
            panel.plot(x, curve.mean, "o", color=styles[name]["color"])
    longest = max((curve.x[-1] for curve in lines.values()), default=0) / scale
    panel.set_xlim(0, 1.02 * longest or 1)
    panel.xaxis.set_major_formatter(style.SHORT)
    panel.xaxis.set_major_locator(MaxNLocator(6))


def draw_dots(panel, reached: dict[str, float], styles, row: Row, target: float, scale: float) -> bool:
    """A dot per method on the line of the target; where it would hide another, beside it on the better side of the
    line. Says if there are any."""
    end = panel.get_xlim()[1]
    panel.set_xlim(0, max([end, *(1.02 * x / scale for x in reached.values())]))
    points = panel.get_window_extent().width / panel.figure.dpi * 72 / panel.get_xlim()[1]
    placed = []
    for name, x in sorted(reached.items(), key=lambda item: item[1]):
        level = 0
        while any(level == other and abs(x / scale - at) * points < 0.5 * DOT_POINTS for at, other in placed):
            level += 1
        placed.append((x / scale, level))
        raised = ScaledTranslation(0, (level if row.rising else -level) * DOT_POINTS / 72, panel.figure.dpi_scale_trans)
        panel.plot(x / scale, target, "o", color=styles[name]["color"], markersize=DOT_POINTS, markeredgecolor="white",
                   markeredgewidth=1, zorder=5, transform=panel.transData + raised)
    return bool(placed)


def limit_values(line, curves: list[dict[str, Curve]], row: Row, target: float | None) -> None:
    """One range of values for the three panels of a row, from what the lines do after their beginning."""
    low, high = shown_range([curve for lines in curves for curve in lines.values()])
    if target is not None:
        low, high = min(low, target), max(high, target)
    wide = not row.percent and low > 0 and high / low > 20
    margin = 0.06 * (high - low or abs(high) or 1)
    for panel in line:
        if wide:
            panel.set_yscale("log")
            panel.yaxis.set_major_formatter(style.DECADES)
            panel.yaxis.set_minor_formatter(NullFormatter())
            panel.set_ylim(low / 1.3, high * 1.3)
            continue
        panel.set_ylim(low - margin, high + margin)
        panel.yaxis.set_major_locator(MaxNLocator(7))
        if row.percent:
            panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g}"))
    if target is not None:
        shown = f"{100 * target:.4g} %" if row.percent else f"{target:.4g}"
        below = row.rising  # where the lines, at their ends, have left room
        line[0].annotate(f"target {shown}", (1, target), xycoords=("axes fraction", "data"),
                         xytext=(-2, -3 if below else 3), textcoords="offset points", ha="right",
                         va="top" if below else "bottom", fontsize=9, color="#666666")
