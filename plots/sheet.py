"""Arranges the panels of a figure on a page, and writes the figure's file.

On a screen, panels are in rows, with the names of lines beside them and a heading above them. In a paper's column,
panels fill the width, with one legend below all of them. Heading and subtitle then become the file's description, since
the paper has a caption.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from plots import style

HEIGHT = 3.1  # height of a panel on a screen in inches
ABOVE, BELOW = 0.42, 0.68  # inches for a panel's title, and for its axis
SLANTED = 0.3  # inches for slanted names of values
HEADING = 0.82  # inches for heading and subtitle
IN_COLUMN = {"left": 0.5, "right": 0.13, "above": 0.36, "below": 0.42}  # inches around a panel in a paper's column
EDGE = 0.04  # free inches left of text
LARGEST_PANEL = 2.3  # largest height of a panel in a column in inches
LONGEST = 9.0  # largest height of a figure in a column in inches: that of a page
MOST_LINES, SMALLEST = 2, 0.7  # most lines of a panel's title, and its smallest letters as a share of the usual size
SAMPLE, GAP, BETWEEN = 2.6, 0.8, 1.2  # widths in a legend, in letters: a mark, gap to its text, gap between columns

COLOURS = 256  # of a PNG file
NO_DATE = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}  # no dates, so that equal figures give equal files
DESCRIPTION = {"pdf": "Subject", "svg": "Description", "png": "Description"}


@dataclass
class Place:
    """The room that a panel needs on a screen, in inches."""

    names: list[str] = field(default_factory=list)  # names of lines, to be written beside the panel
    width: float = 4.15
    left: float = 0.75
    height: float = HEIGHT
    in_column: float | None = None  # inches of height in a column; None: follows from the width
    is_wide: bool = False  # whether text inside the panel needs the full width of a narrow column


class Sheet:
    def __init__(self, rows: list[list[Place]], heading: str, subtitle: str, entitled: bool = True):
        """`rows`: the panels of each row; `entitled`: whether panels will have titles."""
        self.heading, self.subtitle = heading, subtitle
        self.figure = plt.figure()
        self.named: dict[str, dict] = {}  # lines in the legend of a column, by name
        self.entries: list = []  # other marks of the legend, with their labels
        self.slanted = 0.0  # inches that slanted names below the axes add
        self.bottom = 0.0  # inches of the legend
        self.legends: list[tuple] = []  # (legend, x as a share of the width, inches from the lower edge to its top)
        self.boxes = column_boxes(rows, entitled) if style.page.is_column else screen_boxes(rows, entitled)
        self.panels = [self.figure.add_axes([0, 0, 1, 1], label=str(number)) for number in range(len(self.boxes))]
        self.arrange()

    def arrange(self, page_number: int = 0) -> None:
        """Places all panels, and shows those of one page. A box is (left, top, width, height, room at its right), in
        inches from the upper left corner."""
        width = style.page.width or max(left + wide + right for left, _, wide, _, right in self.boxes)
        shown = self.pages()[page_number]
        begin = min(self.boxes[number][1] for number in shown) - min(box[1] for box in self.boxes)
        height = max(self.boxes[number][1] + self.boxes[number][3] for number in shown) - begin + self.below() + self.bottom
        self.figure.set_size_inches(width, height)
        for number, (panel, (left, top, wide, high, _)) in enumerate(zip(self.panels, self.boxes)):
            panel.set_visible(number in shown)
            panel.set_position([left / width, 1 - (top - begin + high) / height, wide / width, high / height])
        for legend, share, top in self.legends:
            legend.set_bbox_to_anchor((share, top / height), self.figure.transFigure)

    def below(self) -> float:
        return IN_COLUMN["below"] if style.page.is_column else BELOW + self.slanted

    def pages(self) -> list[list[int]]:
        """The numbers of the panels on each page. In a column, a figure that is longer than a page has several."""
        pages, begin = [[]], 0.0
        for number, (_, top, _, high, _) in enumerate(self.boxes):
            if style.page.is_column and pages[-1] and top - begin + high + self.below() + self.bottom > LONGEST:
                pages.append([])
                begin = top - self.boxes[0][1]
            pages[-1].append(number)
        return pages

    def entitle(self, panel, text: str, most_lines: int = MOST_LINES, points: float | None = None) -> None:
        """Writes a title above the panel. If it needs more than `most_lines` lines, its letters become smaller. In a
        column only the first part of a title that is too long is written, unless `points` gives the size of the
        letters."""
        _, _, inches, _, right = self.boxes[self.panels.index(panel)]
        room, is_whole = inches + right - 0.1, points is not None
        points = points or style.page.font
        lines = wrapped(text, room, points)
        if len(lines) > most_lines and style.page.is_column and not is_whole:
            lines = wrapped(re.split("[:,]", text)[0], room, points)
        while (len(lines) > most_lines or text_inches("\n".join(lines), points) > room) and points > SMALLEST * style.page.font:
            points -= 0.25
            lines = wrapped(" ".join(lines), room, points)
        panel.set_title("\n".join(lines), loc="left", fontsize=points)

    def name_lines(self, panel, ends: dict[str, tuple[float, float]], looks: dict[str, dict]) -> None:
        """Writes names beside the panel, at the ends (x, y) of their lines. In a column, or if there are too many
        lines, the names are in the legend."""
        if style.page.is_column or not fit_beside(len(ends), self.boxes[self.panels.index(panel)][3]):
            self.named |= {name: looks[name] for name in ends}
        elif ends:
            style.label_lines(panel, ends, looks)

    def finish(self):
        """Completes the figure. Sets its `page_count` and `turn_to(page)`, for figures with several pages."""
        self.make_room()
        self.draw_legend()
        self.figure.page_count, self.figure.turn_to = len(self.pages()), self.arrange
        if style.page.is_column:
            for panel in self.panels:
                thin_ticks(panel)
            self.figure.set_label(f"{self.heading}\n{self.subtitle}")
        else:
            style.title(self.figure, self.heading, self.subtitle)
        return self.figure

    def make_room(self) -> None:
        """Makes room for wide text at the left of panels. On a screen the panels move to the right. In a column, whose
        width is fixed, all panels get narrower."""
        lacks = [self.lack_of(number) for number in range(len(self.boxes))]
        if max(lacks, default=0) <= 0:
            return
        if style.page.is_column:
            lack = max(lacks)
            self.boxes = [(left + lack, top, wide - lack, high, right) for left, top, wide, high, right in self.boxes]
        else:
            tops = [box[1] for box in self.boxes]
            self.boxes = [(left + sum(lack for other, lack in enumerate(lacks[:number + 1]) if tops[other] == top), top, *size)
                          for number, (left, top, *size) in enumerate(self.boxes)]
        self.arrange()

    def lack_of(self, number: int) -> float:
        """Inches by which the ticks and the axis title of a panel are wider than the room at its left."""
        panel, (left, top, *_) = self.panels[number], self.boxes[number]
        taken = panel.yaxis.get_tightbbox(self.figure.canvas.get_renderer())
        if taken is None:
            return 0.0
        need = left - taken.x0 / self.figure.dpi
        before = [box[0] + box[2] for box in self.boxes[:number] if box[1] == top]
        begin = max(before, default=0.0)
        return need + EDGE - (left - begin)

    def draw_legend(self) -> None:
        """Draws the legends below all panels: one of lines, unless their names are beside the panels, and one of other
        marks."""
        if any(text.get_rotation() % 90 for panel in self.panels for text in panel.get_xticklabels()):
            self.slanted = SLANTED
        lines = [plt.Line2D([], [], label=name, **look) for name, look in self.named.items()]
        left = 0.05 if style.page.is_column else self.boxes[0][0]  # inches
        parts = [arrange_entries(marks, self.figure.get_figwidth() - left - 0.05) for marks in (lines, self.entries) if marks]
        heights = [0.05 + 1.18 * style.page.font / 72 * rows for _, _, rows in parts]
        self.bottom = sum(heights)
        self.arrange()
        share = 0.5 if style.page.is_column else left / self.figure.get_figwidth()
        top = self.bottom
        for (marks, columns, _), height in zip(parts, heights):
            legend = self.figure.legend(handles=marks, loc="upper center" if style.page.is_column else "upper left",
                                        ncols=columns, frameon=False, borderaxespad=0, borderpad=0, handlelength=SAMPLE,
                                        handletextpad=GAP, columnspacing=BETWEEN, labelspacing=0.3)
            self.legends.append((legend, share, top))
            top -= height
        self.arrange()


def save(figure, directory: Path, name: str, formats: tuple[str, ...]) -> list[Path]:
    """Writes the figure as `name` in each format, with one file per page, and closes it. Returns the files. If the
    figure has no heading, its label becomes the file's description. Raises OSError."""
    written = []
    pages = getattr(figure, "page_count", 1)
    for number in range(pages):
        if pages > 1:
            figure.turn_to(number)
        for suffix in formats:
            written.append(directory / f"{name}{f'-page-{number + 1}' if pages > 1 else ''}.{suffix}")
            about = {DESCRIPTION[suffix]: figure.get_label()} if figure.get_label() else {}
            if suffix == "png":
                write_png(figure, written[-1], style.page.dpi, about)
            else:
                figure.savefig(written[-1], metadata={**NO_DATE[suffix], **about})
    plt.close(figure)
    return written


def write_png(figure, path: Path, dpi: int, about: dict[str, str] | None = None) -> None:
    """Writes the figure as a picture with a palette of 256 colours, which takes a third of the space. `about`: texts in
    the file. Raises OSError."""
    whole = BytesIO()
    figure.savefig(whole, format="png", dpi=dpi)
    texts = PngInfo()
    for name, text in (about or {}).items():
        texts.add_itxt(name, text)
    with Image.open(whole) as picture:
        picture.convert("RGB").quantize(COLOURS).save(path, format="png", optimize=True, dpi=(dpi, dpi), pnginfo=texts)


def arrange_entries(marks: list, inches: float) -> tuple[list, int, int]:
    """Arranges marks in as many columns as fit. Breaks text that is too long even for a single column. Returns the
    marks, the number of columns, and the number of text lines in the longest column."""
    for columns in range(len(marks), 0, -1):
        filled = np.array_split(np.arange(len(marks)), columns)  # as the legend fills its columns
        widths = [max(entry_inches(marks[number].get_label()) for number in column) for column in filled]
        if sum(widths) + (columns - 1) * BETWEEN * letter_points() / 72 <= inches:
            break
    else:
        for mark in marks:
            room = inches - entry_inches("")
            mark.set_label("\n".join(wrapped(mark.get_label(), room, letter_points())))
    lines = [sum(1 + marks[number].get_label().count("\n") for number in column) for column in filled]
    return marks, columns, max(lines)


def entry_inches(text: str) -> float:
    return (SAMPLE + GAP) * letter_points() / 72 + text_inches(text, letter_points())


def letter_points() -> float:
    """The size of a legend's letters in points."""
    return FontProperties(size=plt.rcParams["legend.fontsize"]).get_size_in_points()


def fit_beside(names: int, inches: float) -> bool:
    """Whether so many names fit beside a panel of this height."""
    return names * style.NAME <= inches


def screen_boxes(rows: list[list[Place]], entitled: bool) -> list[tuple]:
    boxes, top, above = [], HEADING, ABOVE if entitled else 0.1
    for row in rows:
        left = 0.0
        for place in row:
            left += place.left
            is_named = place.names and fit_beside(len(place.names), place.height)
            right = 0.15 + style.label_inches(place.names) if is_named else 0.35
            boxes.append((left, top + above, place.width, place.height, right))
            left += place.width + right
        top += above + max(place.height for place in row) + BELOW
    return boxes


def column_boxes(rows: list[list[Place]], entitled: bool) -> list[tuple]:
    """Breaks rows that are too long, so that all panels of a figure have the same width. If panels below each other are
    too high for a page, there are two in each row."""
    across = min(style.page.across, max(map(len, rows)))
    if max(map(len, rows)) == across + 1 and across > 2:
        across -= 1  # two rows of two look better than three panels and one
    boxes = boxes_in_column(rows, entitled, across)
    if (across == 1 and boxes[-1][1] + boxes[-1][3] + IN_COLUMN["below"] > LONGEST
            and not any(place.is_wide for row in rows for place in row)):
        return boxes_in_column(shared_out([place for row in rows for place in row], 2), entitled, 2)
    return boxes


def boxes_in_column(rows: list[list[Place]], entitled: bool, across: int) -> list[tuple]:
    cell = style.page.width / across
    wide = cell - IN_COLUMN["left"] - IN_COLUMN["right"]
    boxes, top, above = [], 0.0, IN_COLUMN["above"] if entitled else 0.08
    for row in rows:
        for begin in range(0, len(row), across):
            places = row[begin:begin + across]
            high = places[0].in_column or min(LARGEST_PANEL, max(0.72 * wide, 1.15)) * places[0].height / HEIGHT
            for number, _ in enumerate(places):
                boxes.append((number * cell + IN_COLUMN["left"], top + above, wide, high, IN_COLUMN["right"]))
            top += above + high + IN_COLUMN["below"]
    return boxes


def thin_ticks(panel) -> None:
    """Removes ticks of the horizontal axis until their texts do not overlap."""
    axis = panel.xaxis
    locator = axis.get_major_locator()
    if isinstance(locator, MaxNLocator):
        for most in range(style.page.ticks, 1, -1):
            if not crowded(panel):
                break
            locator.set_params(nbins=most)
    while isinstance(locator, FixedLocator) and not isinstance(axis.get_major_formatter(), FixedFormatter) and crowded(panel):
        axis.set_major_locator(FixedLocator(sorted(axis.get_major_locator().locs)[::-2]))


def crowded(panel) -> bool:
    low, high = sorted(panel.get_xlim())
    ticks = sorted(tick for tick in panel.xaxis.get_major_locator()() if low <= tick <= high)
    middles = panel.transData.transform([(tick, panel.get_ylim()[0]) for tick in ticks])[:, 0] / panel.figure.dpi if ticks else []
    halves = [text_inches(text, style.page.font) / 2 for text in panel.xaxis.get_major_formatter().format_ticks(ticks)]
    texts = sorted(zip(middles, halves))  # an axis may be reversed
    return any(middle + half + 0.04 > following - next_half
               for (middle, half), (following, next_half) in zip(texts, texts[1:]))


def shared_out(items: list, most: int) -> list[list]:
    """The items in rows of at most `most`, as equal as possible: four items as two and two, not as three and one."""
    rows = -(-len(items) // most)
    across = -(-len(items) // rows) if rows else 1
    return [items[begin:begin + across] for begin in range(0, len(items), across)]


def text_inches(text: str, points: float, bold: bool = False) -> float:
    """The width of the longest line, in the figures' own letters."""
    families = tuple(plt.rcParams["font.family"])
    return max(line_inches(line, points, bold, families) for line in text.split("\n"))


@lru_cache(maxsize=10000)
def line_inches(line: str, points: float, bold: bool, families: tuple[str, ...]) -> float:
    font = FontProperties(family=list(families), size=points, weight="bold" if bold else "normal")
    return text_to_path.get_text_width_height_descent(line, font, ismath=False)[0] / 72


def wrapped(text: str, inches: float, points: float) -> list[str]:
    """The text in lines of at most this width, broken between words. A word that is too wide has its own line."""
    lines: list[str] = []
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_inches(longer, points) > inches:
            lines.append(word)
        else:
            lines[-1:] = [longer]
    return lines
