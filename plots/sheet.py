"""The panels of a figure on their page. On a screen they stand in rows, with the names of lines beside them and a heading
above. In a paper's column they fill its width, with one legend below all; heading and subtitle, which a caption has
there, become the file's own description."""

import re
from dataclasses import dataclass, field

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator

from plots import page, style
from plots.lettering import text_inches, wrapped

HEIGHT = 3.1  # inches of a panel on a screen
ABOVE, BELOW = 0.42, 0.68  # what its title and its axis need there
SLANTED = 0.3  # for names of values
HEADING = 0.82  # above all of them, where nothing else tells what is shown
IN_COLUMN = {"left": 0.5, "right": 0.13, "above": 0.36, "below": 0.42}  # around a panel in a paper's column
EDGE = 0.04  # inches that stay free to the left of what is written
LARGEST_PANEL = 2.3  # inches of height in a column
LONGEST = 9.0  # inches of a column's figures: what a page holds
MOST_LINES, SMALLEST = 2, 0.7  # of a panel's title: for which there is room, and its letters beside others
SAMPLE, GAP, BETWEEN = 2.6, 0.8, 1.2  # of a legend: its marks, from these to the text, from a column to the next; in letters


@dataclass
class Place:
    """What a panel needs on a screen, in inches."""

    names: list[str] = field(default_factory=list)  # of the lines that are named beside it
    width: float = 4.15
    left: float = 0.75
    height: float = HEIGHT
    in_column: float | None = None  # its height there, which else follows from the width
    is_wide: bool = False  # has text inside: in a narrow column no other stands beside it


class Sheet:
    def __init__(self, rows: list[list[Place]], heading: str, subtitle: str, entitled: bool = True):
        """A row of panels for each list; `entitled`: they will have titles."""
        self.heading, self.subtitle = heading, subtitle
        self.figure = plt.figure()
        self.named: dict[str, dict] = {}  # in the legend of a column
        self.entries: list = []  # other marks in it, with labels of their own
        self.slanted = 0.0  # inches more that slanted names below the axes need
        self.bottom = 0.0  # inches that the legend takes
        self.legends: list[tuple] = []  # and how far each one's top is above the lower edge
        self.boxes = column_boxes(rows, entitled) if page.current.is_column else screen_boxes(rows, entitled)
        self.panels = [self.figure.add_axes([0, 0, 1, 1], label=str(number)) for number in range(len(self.boxes))]
        self.arrange()

    def arrange(self, page_number: int = 0) -> None:
        """Boxes are (left, top, width, height, what is right of it), in inches from the upper left corner. Of several pages
        the panels of one are shown."""
        width = page.current.width or max(left + wide + right for left, _, wide, _, right in self.boxes)
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
        return IN_COLUMN["below"] if page.current.is_column else BELOW + self.slanted

    def pages(self) -> list[list[int]]:
        """The panels of each: in a column no figure is longer than its page."""
        pages, begin = [[]], 0.0
        for number, (_, top, _, high, _) in enumerate(self.boxes):
            if page.current.is_column and pages[-1] and top - begin + high + self.below() + self.bottom > LONGEST:
                pages.append([])
                begin = top - self.boxes[0][1]
            pages[-1].append(number)
        return pages

    def entitle(self, panel, text: str, most_lines: int = MOST_LINES, points: float | None = None) -> None:
        """Above the panel, in several lines where its width asks for them, and in smaller letters where that is not enough.
        In a column a title of the usual letters that would be too long ends with its first part."""
        _, _, inches, _, right = self.boxes[self.panels.index(panel)]
        room, is_whole = inches + right - 0.1, points is not None
        points = points or page.current.font
        lines = wrapped(text, room, points)
        if len(lines) > most_lines and page.current.is_column and not is_whole:
            lines = wrapped(re.split("[:,]", text)[0], room, points)
        while (len(lines) > most_lines or text_inches("\n".join(lines), points) > room) and points > SMALLEST * page.current.font:
            points -= 0.25
            lines = wrapped(" ".join(lines), room, points)
        panel.set_title("\n".join(lines), loc="left", fontsize=points)

    def name_lines(self, panel, ends: dict[str, tuple[float, float]], looks: dict[str, dict]) -> None:
        """Of lines that end at these points: beside the panel, or, in a column and where there are too many, in the
        legend."""
        if page.current.is_column or not fit_beside(len(ends), self.boxes[self.panels.index(panel)][3]):
            self.named |= {name: looks[name] for name in ends}
        elif ends:
            style.label_lines(panel, ends, looks)

    def finish(self):
        """The figure; `turn_to`, where it has several pages, shows one."""
        self.make_room()
        self.draw_legend()
        self.figure.page_count, self.figure.turn_to = len(self.pages()), self.arrange
        if page.current.is_column:
            for panel in self.panels:
                thin_ticks(panel)
            self.figure.set_label(f"{self.heading}\n{self.subtitle}")
        else:
            style.title(self.figure, self.heading, self.subtitle)
        return self.figure

    def make_room(self) -> None:
        """For what stands to the left of panels, if it is wider than usual: on a screen these move to the right, with those
        behind them; a column has its width, and all of its panels get narrower."""
        lacks = [self.lack_of(number) for number in range(len(self.boxes))]
        if max(lacks, default=0) <= 0:
            return
        if page.current.is_column:
            lack = max(lacks)
            self.boxes = [(left + lack, top, wide - lack, high, right) for left, top, wide, high, right in self.boxes]
        else:
            tops = [box[1] for box in self.boxes]
            self.boxes = [(left + sum(lack for other, lack in enumerate(lacks[:number + 1]) if tops[other] == top), top, *size)
                          for number, (left, top, *size) in enumerate(self.boxes)]
        self.arrange()

    def lack_of(self, number: int) -> float:
        """Inches by which a panel's ticks and their title are wider than the room for them."""
        panel, (left, top, *_) = self.panels[number], self.boxes[number]
        taken = panel.yaxis.get_tightbbox(self.figure.canvas.get_renderer())
        if taken is None:
            return 0.0
        need = left - taken.x0 / self.figure.dpi
        before = [box[0] + box[2] for box in self.boxes[:number] if box[1] == top]
        begin = max(before, default=0.0)
        return need + EDGE - (left - begin)

    def draw_legend(self) -> None:
        """Below all panels: in a column of the lines, and of other marks."""
        if any(text.get_rotation() % 90 for panel in self.panels for text in panel.get_xticklabels()):
            self.slanted = SLANTED
        lines = [plt.Line2D([], [], label=name, **look) for name, look in self.named.items()]
        left = 0.05 if page.current.is_column else self.boxes[0][0]  # inches
        parts = [arrange_entries(marks, self.figure.get_figwidth() - left - 0.05) for marks in (lines, self.entries) if marks]
        heights = [0.05 + 1.18 * page.current.font / 72 * rows for _, _, rows in parts]
        self.bottom = sum(heights)
        self.arrange()
        share = 0.5 if page.current.is_column else left / self.figure.get_figwidth()
        top = self.bottom
        for (marks, columns, _), height in zip(parts, heights):
            legend = self.figure.legend(handles=marks, loc="upper center" if page.current.is_column else "upper left",
                                        ncols=columns, frameon=False, borderaxespad=0, borderpad=0, handlelength=SAMPLE,
                                        handletextpad=GAP, columnspacing=BETWEEN, labelspacing=0.3)
            self.legends.append((legend, share, top))
            top -= height
        self.arrange()


def arrange_entries(marks: list, inches: float) -> tuple[list, int, int]:
    """In as many columns as there is room for; text that is too long for one is broken. The marks, how many columns, and
    how many lines of text stand below each other."""
    for columns in range(len(marks), 0, -1):
        filled = np.array_split(np.arange(len(marks)), columns)  # as the legend fills them
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
    """Of a legend's letters."""
    return FontProperties(size=plt.rcParams["legend.fontsize"]).get_size_in_points()


def fit_beside(names: int, inches: float) -> bool:
    """Whether so many names have room beside a panel of this height."""
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
    """Rows that are too long are broken; those of one figure have panels of one size. Where one below the other would not
    fit a page, two stand side by side."""
    across = min(page.current.across, max(map(len, rows)))
    if max(map(len, rows)) == across + 1 and across > 2:
        across -= 1  # two and two look better than three and one
    boxes = boxes_in_column(rows, entitled, across)
    if (across == 1 and boxes[-1][1] + boxes[-1][3] + IN_COLUMN["below"] > LONGEST
            and not any(place.is_wide for row in rows for place in row)):
        return boxes_in_column(shared_out([place for row in rows for place in row], 2), entitled, 2)
    return boxes


def boxes_in_column(rows: list[list[Place]], entitled: bool, across: int) -> list[tuple]:
    cell = page.current.width / across
    wide = cell - IN_COLUMN["left"] - IN_COLUMN["right"]
    boxes, top, above = [], 0.0, IN_COLUMN["above"] if entitled else 0.08
    for row in rows:
        for begin in range(0, len(row), across):
            places = row[begin:begin + across]
            high = places[0].in_column or min(LARGEST_PANEL, max(0.72 * wide, 1.15)) * places[0].height / HEIGHT
            for number, _ in enumerate(places):
                boxes.append((number * cell + IN_COLUMN["left"], top + above, wide, high, IN_COLUMN["right"]))
            top += above + high + IN_COLUMN["below"]
        # the last one's "below" is added by arrange
    return boxes


def thin_ticks(panel) -> None:
    """Fewer along the horizontal axis where their texts would run into each other."""
    axis = panel.xaxis
    locator = axis.get_major_locator()
    if isinstance(locator, MaxNLocator):
        for most in range(page.current.ticks, 1, -1):
            if not crowded(panel):
                break
            locator.set_params(nbins=most)
    while isinstance(locator, FixedLocator) and not isinstance(axis.get_major_formatter(), FixedFormatter) and crowded(panel):
        axis.set_major_locator(FixedLocator(sorted(axis.get_major_locator().locs)[::-2]))


def crowded(panel) -> bool:
    low, high = sorted(panel.get_xlim())
    ticks = sorted(tick for tick in panel.xaxis.get_major_locator()() if low <= tick <= high)
    middles = panel.transData.transform([(tick, panel.get_ylim()[0]) for tick in ticks])[:, 0] / panel.figure.dpi if ticks else []
    halves = [text_inches(text, page.current.font) / 2 for text in panel.xaxis.get_major_formatter().format_ticks(ticks)]
    texts = sorted(zip(middles, halves))  # an axis may run to the left
    return any(middle + half + 0.04 > following - next_half
               for (middle, half), (following, next_half) in zip(texts, texts[1:]))


def shared_out(items: list, most: int) -> list[list]:
    """In rows of at most so many, as equal as may be: four in two rows of two, not of three and one."""
    rows = -(-len(items) // most)
    across = -(-len(items) // rows) if rows else 1
    return [items[begin:begin + across] for begin in range(0, len(items), across)]
