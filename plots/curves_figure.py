"""Accuracy and loss against steps, samples and time."""

from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from plots import style
from plots.curves import Curve, first_crossing, method_curve, shown_range
from plots.runs import Method


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


def curves_figure(methods: list[Method], heading: str, subtitle: str):
    """The figure, or None where no method has an evaluation with a model (time-only runs)."""
    styles = style.line_styles([method.label for method in methods])
    rows = []
    for row in ROWS:
        curves = [{method.label: curve for method in methods if (curve := method_curve(method, column, row.column))}
                  for column, _ in COLUMNS]
        if curves[0]:
            rows.append((row, curves))
    if not rows:
        return None
    figure, panels = plt.subplots(len(rows), len(COLUMNS), figsize=(13 + style.label_inches(styles), 1.4 + 3.7 * len(rows)), squeeze=False)
    top = 1 - 1.0 / figure.get_figheight()
    figure.subplots_adjust(left=0.055, right=1 - (0.35 + style.label_inches(styles)) / figure.get_figwidth(),
                           bottom=0.65 / figure.get_figheight(), top=top, wspace=0.16, hspace=0.22)
    longest_s = max(curve.x[-1] for curve in rows[0][1][2].values())
    unit_s, unit = style.time_unit(longest_s)
    for (row, curves), line in zip(rows, panels):
        target = methods[0].runs[0].config.get("evaluation", {}).get(row.target_key)
        for panel, (column, label), lines in zip(line, COLUMNS, curves):
            if column == "time_s":
                scale, label = unit_s, f"{label} ({unit})"
            else:
                scale = 1
            draw_panel(panel, lines, styles, row, target, scale)
            panel.tick_params(labelleft=panel is line[0])
            panel.set_xlabel(label if row is rows[-1][0] else "")
        line[0].set_ylabel(f"{row.label} (%)" if row.percent else row.label)
        limit_values(line, curves, row, target)
        ends = {label: (curve.x[-1] / unit_s, curve.mean[-1]) for label, curve in curves[2].items()}
        style.label_lines(line[2], ends, styles)
    style.title(figure, heading, subtitle)
    return figure


def draw_panel(panel, lines: dict[str, Curve], styles, row: Row, target: float | None, scale: float) -> None:
    for label, curve in lines.items():
        x = curve.x / scale
        panel.fill_between(x, curve.low, curve.high, color=styles[label]["color"], alpha=0.16, linewidth=0)
        panel.plot(x, curve.mean, **styles[label])
        if len(x) == 1:
            panel.plot(x, curve.mean, "o", color=styles[label]["color"])
        crossing = first_crossing(curve, target, row.rising) if target is not None else None
        if crossing is not None:
            panel.plot(crossing / scale, target, "o", color=styles[label]["color"], markersize=6,
                       markeredgecolor="white", markeredgewidth=1, zorder=5)
    if target is not None:
        panel.axhline(target, color=style.FAINT, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    panel.set_xlim(0, 1.02 * max(curve.x[-1] for curve in lines.values()) / scale)
    panel.xaxis.set_major_formatter(style.SHORT)
    panel.xaxis.set_major_locator(MaxNLocator(6))


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
            panel.yaxis.set_minor_formatter(NullFormatter())
            panel.set_ylim(low / 1.3, high * 1.3)
            continue
        panel.set_ylim(low - margin, high + margin)
        panel.yaxis.set_major_locator(MaxNLocator(7))
        if row.percent:
            panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g}"))
    if target is not None:
        shown = f"{100 * target:.4g} %" if row.percent else f"{target:.4g}"
        line[0].annotate(f"target {shown}", (1, target), xycoords=("axes fraction", "data"), xytext=(-2, 3),
                         textcoords="offset points", ha="right", fontsize=9, color="#666666")
