"""What measurements.csv shows: a panel per quantity, against steps."""

import numpy as np
from matplotlib.ticker import NullFormatter

from plots import style
from plots.curves import Curve, mean_curve
from plots.curves_figure import draw_panel
from plots.methods import Method
from plots.sheet import Place, Sheet, shared_out

LABELS = {"gradient_norm": "norm of the gradient", "step_gradient_norm": "norm of a step's gradient",
          "largest_eigenvalue": "largest eigenvalue of the Hessian", "hessian_trace": "trace of the Hessian",
          "gradient_variance": "variance of single samples' gradients", "noise_scale": "noise scale of gradients, in samples",
          "parameter_norm": "norm of the parameters", "consensus_distance": "distance of models from their mean",
          "evaluated_consensus_distance": "distance of evaluated models"}
ACROSS = 3  # panels side by side on a screen


def measurements_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str):
    """The figure, or None where nothing was measured. `looks`: by label."""
    styles = {method.name: looks[method.label] for method in methods}
    panels = [(quantity, lines) for quantity in quantities(methods) if (lines := curves_of(methods, quantity))]
    if not panels:
        return None
    rows = shared_out(panels, ACROSS)
    sheet = Sheet([[Place(list(panel[1]) if panel is row[-1] else [], height=2.8) for panel in row] for row in rows],
                  heading, subtitle)
    ends_row = {id(row[-1]) for row in rows}
    for panel, drawn in zip(sheet.panels, panels):
        quantity, lines = drawn
        draw_panel(panel, lines, styles, 1, "optimizer steps")
        limit_values(panel, lines)
        sheet.entitle(panel, LABELS.get(quantity, quantity))
        if id(drawn) in ends_row:
            sheet.name_lines(panel, {name: (curve.x[-1], curve.mean[-1]) for name, curve in lines.items()}, styles)
    return sheet.finish()


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
