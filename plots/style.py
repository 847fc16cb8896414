"""The common look of all figures: the page for which they are drawn, fonts, colours, axes, and labels beside lines."""

import warnings
from dataclasses import dataclass
from unicodedata import east_asian_width

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.font_manager import FontProperties, findfont, fontManager
from matplotlib.ft2font import FT2Font
from matplotlib.ticker import Formatter, FuncFormatter

from plots.comparison import BETWEEN, MPI
from plots.numbers import typeset

FONT = "DejaVu Sans"
DRAWS_BOXES = "LastResort"  # a font with this in its name draws a box for every character
MOST_NAMED = 8  # most characters that a message names

# Okabe and Ito's palette, which colour-blind readers can tell apart, without its yellow (too pale for lines).
ALGORITHMS = {"sync-sgd": "#000000", "dropcompute": "#D55E00", "backup-workers": "#0072B2", "local-sgd": "#009E73"}
OTHERS = ["#CC79A7", "#E69F00", "#56B4E9"]
# For many methods: Paul Tol's wine, olive and indigo, then brown, violet, dark teal and deep red. Any two colours differ
# for colour-blind readers, too, except TWINS, which have different lines and markers unless there are very many methods.
FURTHER = ["#882255", "#999933", "#332288", "#8C510A", "#8B5CF6", "#01665E", "#A50026"]
TWINS = {"#882255": "#01665E", "#01665E": "#882255"}
# Dashes and markers distinguish lines on pages without colours.
DASHES = ["solid", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)), (0, (3, 1, 1, 1, 1, 1)), (0, (9, 2))]
MARKERS = "osD^vPX<>p"
MARKS = 0.13  # distance between a curve's markers, as a share of the diagonal of the axes
NAME = 14 / 72  # inches from a name beside lines to the next name
SAMPLE = 0.4  # inches of the piece of a line beside its name: a dash, a marker and more
LARGEST_WITH_LETTER = 1e12  # larger numbers are in scientific notation: the next one would be 1000G
INK, FAINT = "#333333", "#8a8a8a"


@dataclass(frozen=True)
class Page:
    """The page on which figures are drawn: a screen, or one or two columns of a paper."""

    width: float | None  # inches of a figure; None: as wide as its panels need
    across: int  # most panels side by side
    font: float  # points of the usual letters
    line: float
    marker: float
    ticks: int  # most ticks along an axis
    dpi: int

    @property
    def is_column(self) -> bool:
        return self.width is not None


PAGES = {"screen": Page(None, 4, 10.5, 1.9, 5.5, 7, 150), "single": Page(3.4, 1, 7.5, 1.2, 3.8, 6, 300),
         "double": Page(7.0, 3, 7.5, 1.2, 3.8, 5, 300)}
page = PAGES["screen"]  # the current page; use_page sets it


def use_page(name: str) -> None:
    """Sets the page for all later figures. `name`: a key of PAGES."""
    global page
    page = PAGES[name]
    plt.rcParams.update({"font.size": page.font, "lines.linewidth": page.line, "lines.markersize": page.marker,
                         "axes.titlesize": "medium", "legend.fontsize": "small",
                         "axes.linewidth": 0.8 if page.width is None else 0.6})


matplotlib.use("Agg")
plt.rcParams.update({
    "font.family": FONT, "text.color": INK, "axes.edgecolor": FAINT, "axes.labelcolor": INK,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#e6e6e6", "grid.linewidth": 0.7, "axes.axisbelow": True,
    "xtick.color": FAINT, "ytick.color": FAINT, "xtick.labelcolor": INK, "ytick.labelcolor": INK,
    "text.parse_math": False,  # labels may contain dollar signs
    "lines.solid_capstyle": "round", "lines.markeredgecolor": "white", "lines.markeredgewidth": 0.6, "pdf.fonttype": 42,
    "svg.fonttype": "none", "svg.hashsalt": "syncopate",
})
use_page("screen")


def use_fonts_for(text: str) -> str:
    """Adds installed fonts for characters that FONT lacks, such as Chinese ones. Returns the characters that no font
    has. Silences Matplotlib's warnings about these, which would appear whenever one is drawn or measured."""
    missing, families = {character for character in text if not character.isspace()} - glyphs(FONT), [FONT]
    for family in sorted({font.name for font in fontManager.ttflist}) if missing else []:
        if DRAWS_BOXES in family.replace(" ", "") or not (found := missing & glyphs(family)):
            continue
        families.append(family)
        missing -= found
    plt.rcParams["font.family"] = families
    for character in missing:
        warnings.filterwarnings("ignore", f"Glyph {ord(character)} .* missing from")
    return "".join(sorted(missing))


def glyphs(family: str) -> set[str]:
    """The characters that the font family has in both normal and bold letters."""
    files = [findfont(FontProperties(family=family, weight=weight)) for weight in ("normal", "bold")]
    return set.intersection(*({chr(code) for code in FT2Font(file).get_charmap()} for file in files))


def without_font(missing: str) -> str:
    """The message about characters that no font has."""
    named = ", ".join(f"{character} (U+{ord(character):04X})" for character in missing[:MOST_NAMED])
    more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
    return f"no installed font has {named}{more}: PNG files show boxes, SVG files whatever their viewer has"


def line_styles(algorithms: dict[str, str]) -> dict[str, dict]:
    """The colour, line and marker of each label. `algorithms`: the algorithm of each label.

    The first method of an algorithm in ALGORITHMS has that algorithm's colour in all figures; other methods have the
    other colours of the palette. Line and marker depend on the method's position. No two of the first 30 methods have
    the same colour and line, or the same colour and marker, so they also differ in figures of points. "X (MPI)" has the
    colour and the marker of "X", but another line.
    """
    methods = {label.removesuffix(MPI): algorithm for label, algorithm in algorithms.items()}
    first = {algorithm: label for label, algorithm in reversed(methods.items())}
    colours = {first[algorithm]: colour for algorithm, colour in ALGORITHMS.items() if algorithm in first}
    places = {label: place for place, label in enumerate(methods)}
    for label in methods:
        if label not in colours:
            alike = [colours[other] for other in colours if looks_alike(places[label], places[other])]
            twins = [TWINS[colour] for colour in alike if colour in TWINS]
            colours[label] = next_colour(list(colours.values()), alike, twins)
    styles = {}
    for label in algorithms:
        place = places[label.removesuffix(MPI)]
        dash = place + (label.endswith(MPI) and label.removesuffix(MPI) in algorithms)
        styles[label] = {"color": colours[label.removesuffix(MPI)], "linestyle": DASHES[dash % len(DASHES)],
                         "marker": MARKERS[place % len(MARKERS)]}
    return styles


def looks_alike(place: int, other: int) -> bool:
    return (place - other) % len(DASHES) == 0 or (place - other) % len(MARKERS) == 0


def next_colour(given: list[str], alike: list[str], twins: list[str]) -> str:
    """The least used colour of the palette, except those in `alike`, the colours of methods with the same line or
    marker, and, if possible, except their `twins`."""
    palette = [*OTHERS, *ALGORITHMS.values(), *FURTHER]
    free = [colour for colour in palette if colour not in alike] or palette
    return min(free, key=lambda colour: (given.count(colour), colour in twins))


def marked_here_and_there(look: dict) -> dict:
    """The look of a curve with many points: markers at equal distances, which begin at another place on each curve."""
    place = MARKERS.index(look["marker"]) if look.get("marker") in [*MARKERS] else 0
    return {**look, "markevery": (0.04 + MARKS * place / len(MARKERS), MARKS)}


def without_marker(look: dict) -> dict:
    return {key: value for key, value in look.items() if key != "marker"}


def label_inches(labels) -> float:
    """The width in inches of the longest label in bold letters, with a little room."""
    return 0.3 + SAMPLE + 0.093 * max(columns(label) for label in labels)


def columns(text: str) -> int:
    """The width in columns of a terminal, in which Chinese characters take two columns."""
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def label_lines(axes, ends: dict[str, tuple[float, float]], styles: dict[str, dict]) -> None:
    """Writes each line's name to the right of the axes, after a piece of the line. The name is as near to the height of
    the line's end (x, y) as other names allow. A thin connection leads from the end to the piece."""
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
        # The connection is dotted if the line ends early: otherwise the line would seem to continue.
        axes.plot([x, begin], [min(max(y, 0), 1), height], **look, color=styles[label]["color"], linewidth=0.7, alpha=0.6,
                  linestyle="solid" if x > 0.93 else (0, (1, 3)))
        axes.plot([begin, (begin + end) / 2, end], [height] * 3, **look, **styles[label], markevery=[1])
        axes.text(end + 0.015, height, label, transform=axes.transAxes, color=styles[label]["color"], va="center",
                  fontweight="bold", clip_on=False)


def name_rows(panel, names: list[str], styles: dict[str, dict]) -> None:
    """Writes names of methods to the left of their rows (in a paper's column above them), the first at the top."""
    panel.set_ylim(len(names) - 0.4, -0.6)
    panel.grid(axis="y", visible=False)
    panel.tick_params(axis="y", length=0)
    if not page.is_column:
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
    """The last finite point of a line. The line must have one."""
    last = np.flatnonzero(np.isfinite(y))[-1]
    return x[last], y[last]


def spread(heights: list[float], distance: float) -> list[float]:
    """The ascending heights in [0, 1], moved apart by relaxation until neighbours differ by at least `distance`."""
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
    """Writes heading and subtitle above the panels, in smaller letters if they are too wide. A subtitle whose letters
    would be too small to read gets two lines."""
    height = figure.get_figheight()
    smallest = 9.5

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


def in_two_lines(text: str) -> str:
    """The text in two lines, broken between two of its parts so that the longer line is as short as possible."""
    parts = text.split(BETWEEN)
    breaks = [(BETWEEN.join(parts[:n]), BETWEEN.join(parts[n:])) for n in range(1, len(parts))]
    return "\n".join(min(breaks, key=lambda lines: max(map(len, lines)), default=(text,)))


def short_number(value: float, _=None, digits: int = 4) -> str:
    """A short form: 1500 as 1.5k, 2000000 as 2M, very large numbers as 8×10²⁹; 24,792 if `digits` is above 4."""
    if digits > 4 and 1e3 <= abs(value) < 1e6:
        decimals = max(0, digits - len(f"{abs(value):.0f}"))
        return f"{value:,.{decimals}f}".rstrip("0").rstrip(".") if decimals else f"{value:,.0f}"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size <= abs(value) < LARGEST_WITH_LETTER:
            return f"{value / size:.{digits}g}{letter}"
    return typeset(f"{value:.{digits}g}", minus="-")


class ShortNumbers(Formatter):
    """Formats the numbers along an axis with as many digits as their equal distances need: 42.25G, 42.275G, 42.3G."""

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
    """Formats powers of ten as text, such as 10⁻⁴, because text.parse_math is off."""
    return typeset(f"{value:.0e}") if 0 < value < 0.01 else short_number(value)


SHORT = ShortNumbers()
DECADES = FuncFormatter(decade)


def time_unit(longest_s: float) -> tuple[float, str]:
    """The divisor and the name of the unit that suits times up to `longest_s`."""
    if longest_s <= 0:
        return 1, "s"
    for seconds, unit, least in ((3600, "h", 3), (60, "min", 3), (1, "s", 1), (1e-3, "ms", 1)):
        if longest_s >= least * seconds:
            return seconds, unit
    return 1e-6, "µs"


def byte_unit(most: float) -> tuple[float, str]:
    """The divisor and the name of the unit that suits up to `most` bytes."""
    for size, unit in ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if most >= size:
            return size, unit
    return 1, "bytes"
