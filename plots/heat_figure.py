"""What two swept numbers come to: a map per method, its best place marked."""

import matplotlib.pyplot as plt
import numpy as np

from plots import page, style
from plots.comparison import heading, subtitle
from plots.grids import Grid
from plots.printable import printable
from plots.quantities import Quantity, best_of
from plots.sheet import Place, Sheet, shared_out
from plots.sweep_figure import span
from plots.sweep_lines import along_axis, size_text_of
from plots.variation import in_words

COLOURS = "cividis"  # of even steps, also on grey pages and to eyes that lack a colour
ACROSS = 3  # maps side by side on a screen
MOST_NUMBERS = 64  # places of a map whose values are written into them


def heat_figure(grid: Grid):
    quantities = grid.quantities
    values = {(label, quantity): grid.values(label, quantity) for quantity in quantities for label in grid.labels}
    rows = [row for quantity in quantities for row in shared_out([(label, quantity) for label in grid.labels], ACROSS)]
    if len(grid.labels) == 1:
        rows = shared_out(list(values), ACROSS)
    narrowest = 3.6 if len(rows[0]) > 1 else 5.6  # with room for the subtitle
    sheet = Sheet([[Place(width=max(narrowest, 0.62 * len(grid.xs)), height=max(2.4, 0.4 * len(grid.ys)), left=0.95 if n == 0 else 0.85)
                    for n, _ in enumerate(row)] for row in rows], heading(grid.where),
                  subtitle(grid.where, in_words({grid.x_key: span(grid.x_names), grid.y_key: span(grid.y_names), **grid.others})).split("  ·  line: mean")[0]
                  + "  ·  mean of all seeds, framed: the best")
    for panel, (label, quantity) in zip(sheet.panels, [cell for row in rows for cell in row]):
        draw_map(panel, grid, quantity, values[label, quantity], *range_of([values[other, quantity] for other in grid.labels]))
        sheet.entitle(panel, f"{label}: {quantity.title}")
    return sheet.finish()


def range_of(maps: list[np.ndarray]) -> tuple[float, float]:
    """Of all that share their colours."""
    low, high = (reduce([reduce(found[np.isfinite(found)]) for found in maps if np.isfinite(found).any()])
                 for reduce in (np.min, np.max))
    return low, high


def draw_map(panel, grid: Grid, quantity: Quantity, found: np.ndarray, low: float, high: float) -> None:
    image = panel.imshow(found, cmap=COLOURS, vmin=low, vmax=high, aspect="auto", origin="lower")
    (x_label, x_texts), (y_label, y_texts) = along_axis(grid.x_key, grid.x_names), along_axis(grid.y_key, grid.y_names)
    panel.set_xticks(range(len(grid.xs)), [printable(size_text_of(x_texts[x])) for x in grid.xs])
    panel.set_yticks(range(len(grid.ys)), [printable(size_text_of(y_texts[y])) for y in grid.ys])
    panel.set_xlabel(x_label)
    panel.set_ylabel(y_label)
    panel.grid(visible=False)
    if found.size <= MOST_NUMBERS:
        write_numbers(panel, image, found)
    elif not page.current.is_column:
        panel.figure.colorbar(image, cax=panel.inset_axes([1.01, 0, 0.03, 1]), format=style.SHORT).ax.tick_params(labelsize="small")
    mark_best(panel, quantity, found)


def write_numbers(panel, image, found: np.ndarray) -> None:
    for row, column in zip(*np.nonzero(np.isfinite(found))):
        red, green, blue, _ = image.cmap(image.norm(found[row, column]))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
        panel.text(column, row, short(found[row, column]), ha="center", va="center", fontsize="x-small",
                   color="white" if dark else "black")


def short(value: float) -> str:
    return style.short_number(float(f"{value:.3g}"))


def mark_best(panel, quantity: Quantity, found: np.ndarray) -> None:
    places = {number: value for number, value in enumerate(found.ravel()) if np.isfinite(value)}
    if (best := best_of(places, quantity)) is not None:
        row, column = divmod(int(best), found.shape[1])
        panel.add_patch(plt.Rectangle((column - 0.46, row - 0.46), 0.92, 0.92, fill=False, edgecolor="#D55E00",
                                      linewidth=1.3 * page.current.line, gid="best"))
