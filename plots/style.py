"""The look that all figures share: colours, axes, labels beside the lines."""

from unicodedata import east_asian_width

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import Formatter, FuncFormatter

from plots import page
from plots.methods import MPI
from plots.numbers import typeset
from plots.page import use_page

# Okabe and Ito's palette, which colour-blind readers can tell apart, without its yellow (too pale for lines).
ALGORITHMS = {"sync-sgd": "#000000", "dropcompute": "#D55E00", "backup-workers": "#0072B2", "local-sgd": "#009E73"}
OTHERS = ["#CC79A7", "#E69F00", "#56B4E9"]
FURTHER = ["#882255", "#999933", "#332288", "#8C510A"]  # Paul Tol's wine, olive and indigo, and brown: for many methods
# Dashes and markers tell lines apart also where a page is grey.
DASHES = ["solid", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)), (0, (3, 1, 1, 1, 1, 1)), (0, (9, 2))]
MARKERS = "osD^vPX<>p"
MARKS = 0.13  # of the axes' diagonal: from one marker of a curve to the next
NAME = 14 / 72  # inches from one name beside lines to the next
SAMPLE = 0.4  # inches of a line beside its name: a dash, a marker and more
LARGEST_WITH_LETTER = 1e12  # beyond it numbers are scientific: 1000G would be the next
INK, FAINT = "#333333", "#8a8a8a"

plt.rcParams.update({
    "font.family": "DejaVu Sans", "text.color": INK, "axes.edgecolor": FAINT, "axes.labelcolor": INK,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#e6e6e6", "grid.linewidth": 0.7, "axes.axisbelow": True,
    "xtick.color": FAINT, "ytick.color": FAINT, "xtick.labelcolor": INK, "ytick.labelcolor": INK,
    "text.parse_math": False,  # a label may hold dollars, and an axis then has no formulas either
    "lines.solid_capstyle": "round", "lines.markeredgecolor": "white", "lines.markeredgewidth": 0.6, "pdf.fonttype": 42,
    "svg.fonttype": "none", "svg.hashsalt": "syncopate",
})
use_page("screen")


def line_styles(algorithms: dict[str, str]) -> dict[str, dict]:
    """A look for each label of a method, given its algorithm. The first method of a known algorithm has that
    algorithm's colour in all figures; the others take what the palette has left. Line and marker are those of the
    method's place. No two of the first 30 have the same line in the same colour, nor the same marker, so that figures
    of points alone tell them apart, too. "X (MPI)" has the colour and the marker of "X", and another line."""
    methods = {label.removesuffix(MPI): algorithm for label, algorithm in algorithms.items()}
    first = {algorithm: label for label, algorithm in reversed(methods.items())}
    colours = {first[algorithm]: colour for algorithm, colour in ALGORITHMS.items() if algorithm in first}
    places = {label: place for place, label in enumerate(methods)}
    for label in methods:
        if label not in colours:
            alike = [colours[other] for other in colours if looks_alike(places[label], places[other])]
            colours[label] = next_colour(list(colours.values()), alike)
    styles = {}
    for label in algorithms:
        place = places[label.removesuffix(MPI)]
        dash = place + (label.endswith(MPI) and label.removesuffix(MPI) in algorithms)
        styles[label] = {"color": colours[label.removesuffix(MPI)], "linestyle": DASHES[dash % len(DASHES)],
                         "marker": MARKERS[place % len(MARKERS)]}
    return styles


def looks_alike(place: int, other: int) -> bool:
    return (place - other) % len(DASHES) == 0 or (place - other) % len(MARKERS) == 0


def next_colour(given: list[str], alike: list[str]) -> str:
    """The one that fewest methods have, of those that no other has with this line or this marker."""
    palette = [*OTHERS, *ALGORITHMS.values(), *FURTHER]
    free = [colour for colour in palette if colour not in alike] or palette
    return min(free, key=given.count)


def marked_here_and_there(look: dict) -> dict:
    """For a curve of many points: markers at equal distances along it, elsewhere on each line."""
    place = MARKERS.index(look["marker"]) if look.get("marker") in [*MARKERS] else 0
    return {**look, "markevery": (0.04 + MARKS * place / len(MARKERS), MARKS)}


def without_marker(look: dict) -> dict:
    return {key: value for key, value in look.items() if key != "marker"}


def label_inches(labels) -> float:
    """Width that the longest of the labels takes in bold, with a little room."""
    return 0.3 + SAMPLE + 0.093 * max(columns(label) for label in labels)


def columns(text: str) -> int:
    """As on a terminal, where Chinese characters are two wide."""
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def short_number(value: float, _=None, digits: int = 4) -> str:
    """1,500 as 1.5k and 2,000,000 as 2M; 24,792 where four digits would not do; 8×10²⁹ at the extremes."""
    if digits > 4 and 1e3 <= abs(value) < 1e6:
        decimals = max(0, digits - len(f"{abs(value):.0f}"))
        return f"{value:,.{decimals}f}".rstrip("0").rstrip(".") if decimals else f"{value:,.0f}"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size <= abs(value) < LARGEST_WITH_LETTER:
            return f"{value / size:.{digits}g}{letter}"
    return typeset(f"{value:.{digits}g}", minus="-")


class ShortNumbers(Formatter):
    """Along an axis, with as many digits as its even steps need: 42.25G, 42.275G, 42.3G."""

    digits = 4

    def __call__(self, value: float, _=None) -> str:
        return short_number(value, digits=self.digits)

    def set_locs(self, locs) -> None:
        ticks = np.sort(np.asarray(locs, dtype=float))
        steps = np.diff(ticks)
        step = steps[steps > 0].min() if (steps > 0).any() else np.inf
        self.digits = next((digits for digits in range(4, 12)
                            if all(abs(float(f"{tick:.{digits}g}") - tick) < 0.02 * step for tick in ticks)), 12)


def decade(value: float, _=None) -> str:
    """Powers of ten as text, 10⁻⁴, and not as formulas: see text.parse_math."""
    return typeset(f"{value:.0e}") if 0 < value < 0.01 else short_number(value)


SHORT = ShortNumbers()
DECADES = FuncFormatter(decade)


def time_unit(longest_s: float) -> tuple[float, str]:
    """Divisor and name of the unit in which such a time is easy to read."""
    if longest_s <= 0:
        return 1, "s"
    for seconds, unit, least in ((3600, "h", 3), (60, "min", 3), (1, "s", 1), (1e-3, "ms", 1)):
        if longest_s >= least * seconds:
            return seconds, unit
    return 1e-6, "µs"


def byte_unit(most: float) -> tuple[float, str]:
    """Divisor and name of the unit in which so many bytes are easy to read."""
    for size, unit in ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if most >= size:
            return size, unit
    return 1, "bytes"


def label_lines(axes, ends: dict[str, tuple[float, float]], styles: dict[str, dict]) -> None:
    """Writes each line's name to the right of the axes, behind a piece of the line or its marker, at the height of its
    end (x, y) or as near as the other names allow, with a thin connection."""
    axes.figure.canvas.draw()
    to_axes = axes.transData + axes.transAxes.inverted()
    window = axes.get_window_extent()
    order = sorted(ends, key=lambda label: ends[label][1])
    heights = [float(np.clip(to_axes.transform(ends[label])[1], 0.02, 0.98)) for label in order]
    distance = NAME * axes.figure.dpi / window.height
    begin, end = 1.03, 1.03 + SAMPLE * axes.figure.dpi / window.width
    for label, height in zip(order, spread(heights, distance)):
        x, y = to_axes.transform(ends[label])
        look = {"transform": axes.transAxes, "clip_on": False, "scalex": False, "scaley": False}
        # Dotted where the line ends early, lest it seem to go on.
        axes.plot([x, begin], [min(max(y, 0), 1), height], **look, color=styles[label]["color"], linewidth=0.7, alpha=0.6,
                  linestyle="solid" if x > 0.93 else (0, (1, 3)))
        axes.plot([begin, (begin + end) / 2, end], [height] * 3, **look, **styles[label], markevery=[1])
        axes.text(end + 0.015, height, label, transform=axes.transAxes, color=styles[label]["color"], va="center",
                  fontweight="bold", clip_on=False)


def name_rows(panel, names: list[str], styles: dict[str, dict]) -> None:
    """Names of methods to the left of rows, the first above; above the rows where a paper's column has no room there."""
    panel.set_ylim(len(names) - 0.4, -0.6)
    panel.grid(axis="y", visible=False)
    panel.tick_params(axis="y", length=0)
    if not page.current.is_column:
        panel.set_yticks(range(len(names)), names)
        for tick, name in zip(panel.get_yticklabels(), names):
            tick.set(color=styles[name]["color"], fontweight="bold")
        return
    panel.set_yticks(range(len(names)), [""] * len(names))
    panel.set_ylim(len(names) - 0.6, -0.9)
    for row, name in enumerate(names):
        panel.text(0.01, row - 0.28, name, transform=panel.get_yaxis_transform(), va="bottom", fontsize="x-small",
                   color=styles[name]["color"], fontweight="bold", zorder=6)


def last_point(x, y) -> tuple[float, float]:
    """Of a line whose values may be missing here and there: at least one is there."""
    last = np.flatnonzero(np.isfinite(y))[-1]
    return x[last], y[last]


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
    """Heading and subtitle above the panels, in smaller letters where they would not fit the width; a subtitle that would
    be too small to read stands in two lines."""
    height = figure.get_figheight()
    smallest = 8

    def fit(line, size: float) -> float:
        line.set_fontsize(size)
        share = line.get_window_extent(figure.canvas.get_renderer()).width / (0.976 * figure.bbox.width)
        line.set_fontsize(size / max(1, share))
        return size / max(1, share)

    fit(figure.text(0.012, 1 - 0.16 / height, heading, va="top", fontweight="bold"), 15)
    line = figure.text(0.012, 1 - 0.5 / height, subtitle, va="top", color="#666666")
    if fit(line, 10.5) < smallest:
        line.set_text(in_two_lines(subtitle))
        fit(line, smallest)


def in_two_lines(text: str, mark: str = "  ·  ") -> str:
    """Broken at the mark that leaves the shorter lines."""
    parts = text.split(mark)
    breaks = [(mark.join(parts[:n]), mark.join(parts[n:])) for n in range(1, len(parts))]
    return "\n".join(min(breaks, key=lambda lines: max(map(len, lines)), default=(text,)))
