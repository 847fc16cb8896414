"""What measurements.csv shows: a panel per quantity, against steps."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import NullFormatter

from plots import style
from plots.curves import Curve, mean_curve
from plots.curves_figure import draw_panel
from plots.methods import Method

LABELS = {"gradient_norm": "norm of the gradient", "step_gradient_norm": "norm of a step's gradient",
          "largest_eigenvalue": "largest eigenvalue of the Hessian", "hessian_trace": "trace of the Hessian",
          "parameter_norm": "norm of the parameters", "consensus_distance": "distance of models from their mean",
          "evaluated_consensus_distance": "distance of evaluated models"}
ACROSS = 3  # panels side by side
ROW, PANEL, BETWEEN = 3.75, 4.15, 0.85  # inches: height of a row with its words, width of a panel, and between two


def measurements_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str):
    """The figure, or None where nothing was measured. `looks`: by label."""
    styles = {method.name: looks[method.label] for method in methods}
    panels = [(quantity, lines) for quantity in quantities(methods) if (lines := curves_of(methods, quantity))]
    if not panels:
        return None
    columns = min(len(panels), ACROSS)
    rows = -(-len(panels) // columns)
    width = 0.75 + columns * PANEL + (columns - 1) * BETWEEN + 0.5 + style.label_inches(styles)
    height = 0.85 + rows * ROW
    figure = plt.figure(figsize=(width, height))
    for number, (quantity, lines) in enumerate(panels):
        row, column = divmod(number, columns)
        panel = figure.add_axes([(0.75 + column * (PANEL + BETWEEN)) / width, 1 - (0.85 + (row + 1) * ROW - 0.6) / height,
                                 PANEL / width, (ROW - 0.95) / height])
        draw_panel(panel, lines, styles, 1)
        limit_values(panel, lines)
        panel.set_xlabel("optimizer steps")
        panel.set_title(LABELS.get(quantity, quantity), loc="left", fontsize=10)
        if column == columns - 1 or number == len(panels) - 1:
            style.label_lines(panel, {name: (curve.x[-1], curve.mean[-1]) for name, curve in lines.items()}, styles)
    style.title(figure, heading, subtitle)
    return figure


def quantities(methods: list[Method]) -> list[str]:
    """Those that any run has, in the order of LABELS."""
    found = {quantity for method in methods for run in method.runs if run.measurements is not None
             for quantity in run.measurements["quantity"]}
    return [quantity for quantity in LABELS if quantity in found] + sorted(found - set(LABELS))


def curves_of(methods: list[Method], quantity: str) -> dict[str, Curve]:
    lines = {}
    for method in methods:
        tables = [run.measurements[run.measurements["quantity"] == quantity] for run in method.runs
                  if run.measurements is not None]
        tables = [table for table in tables if len(table)]
        curve = mean_curve([table["step"].to_numpy(float) for table in tables],
                           [table["value"].to_numpy(float) for table in tables])
        if curve is not None:
            lines[method.name] = curve
    return lines


def limit_values(panel, lines: dict[str, Curve]) -> None:
    """From 0, or in decades where values are that far apart."""
    values = np.concatenate([np.concatenate([curve.low, curve.high]) for curve in lines.values()])
    if values.min() > 0 and values.max() > 20 * values.min():
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter(style.DECADES)
        panel.yaxis.set_minor_formatter(NullFormatter())
    elif values.min() >= 0:
        panel.set_ylim(0, 1.06 * values.max() or 1)
