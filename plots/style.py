"""The look that all figures share: colours, axes, labels beside the lines."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter

# Okabe and Ito's palette, which colour-blind readers can tell apart, without its yellow (too pale for lines).
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
DASHES = ["solid", (0, (5, 1.5)), (0, (1.5, 1.2))]  # tells apart what shares a colour
MPI = " (MPI)"  # ends the label of a method that ran on a wall clock
INK, FAINT = "#333333", "#8a8a8a"

plt.rcParams.update({
    "font.family": "DejaVu Sans", "font.size": 10.5, "text.color": INK,
    "axes.edgecolor": FAINT, "axes.labelcolor": INK, "axes.linewidth": 0.8, "axes.titlesize": 11,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#e6e6e6", "grid.linewidth": 0.7, "axes.axisbelow": True,
    "xtick.color": FAINT, "ytick.color": FAINT, "xtick.labelcolor": INK, "ytick.labelcolor": INK,
    "lines.linewidth": 1.9, "lines.solid_capstyle": "round", "svg.fonttype": "none", "svg.hashsalt": "syncopate",
})


def line_styles(labels: list[str]) -> dict[str, dict]:
    """One colour per method, the same in all panels and figures; "X (MPI)" has the colour of "X", dashed."""
    methods = list(dict.fromkeys(label.removesuffix(MPI) for label in labels))
    styles = {}
    for label in labels:
        number = methods.index(label.removesuffix(MPI))
        repeats = number // len(COLOURS) + (label.endswith(MPI) and label.removesuffix(MPI) in labels)
        styles[label] = {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[repeats % len(DASHES)]}
    return styles


def label_inches(labels) -> float:
    """Width that the longest of the labels takes in bold, with a little room."""
    return 0.25 + 0.093 * max(len(label) for label in labels)


def short_number(value: float, _=None) -> str:
    """1,500 as 1.5k and 2,000,000 as 2M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


SHORT = FuncFormatter(short_number)


def time_unit(longest_s: float) -> tuple[float, str]:
    """Divisor and name of the unit in which such a time is easy to read."""
    for seconds, unit in ((3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms")):
        if longest_s >= 3 * seconds:
            return seconds, unit
    return 1e-6, "µs"


def label_lines(axes, ends: dict[str, tuple[float, float]], styles: dict[str, dict]) -> None:
    """Writes each line's name to the right of the axes, at the height of its end (x, y) or as near as the
    other names allow, with a thin connection."""
    axes.figure.canvas.draw()
    to_axes = axes.transData + axes.transAxes.inverted()
    order = sorted(ends, key=lambda label: ends[label][1])
    heights = [float(np.clip(to_axes.transform(ends[label])[1], 0.02, 0.98)) for label in order]
    distance = 14 * axes.figure.dpi / 72 / axes.get_window_extent().height  # of lines of text
    for label, height in zip(order, spread(heights, distance)):
        x, y = to_axes.transform(ends[label])
        axes.plot([x, 1.03, 1.06], [min(max(y, 0), 1), height, height], transform=axes.transAxes, clip_on=False,
                  color=styles[label]["color"], linewidth=0.7, alpha=0.6, scalex=False, scaley=False)
        axes.text(1.07, height, label, transform=axes.transAxes, color=styles[label]["color"], va="center",
                  fontweight="bold", clip_on=False)


def spread(heights: list[float], distance: float) -> list[float]:
    """Ascending heights in [0, 1] moved apart to at least `distance`, as little as a few sweeps find."""
    heights = list(heights)
    for _ in range(200):
        for below in range(len(heights) - 1):
            lack = distance - (heights[below + 1] - heights[below])
            if lack > 1e-6:
                heights[below] -= lack / 2
                heights[below + 1] += lack / 2
        if heights and len(heights) * distance <= 1:
            shift_up, shift_down = max(0.0, -heights[0]), max(0.0, heights[-1] - 1)
            heights[0] += shift_up
            heights[-1] -= shift_down
    return heights


def title(figure, heading: str, subtitle: str) -> None:
    height = figure.get_figheight()
    figure.text(0.012, 1 - 0.16 / height, heading, fontsize=15, fontweight="bold", va="top")
    figure.text(0.012, 1 - 0.5 / height, subtitle, fontsize=10.5, color="#666666", va="top")
