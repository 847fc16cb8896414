"""The page that figures are drawn for: a screen, or one or two columns of a paper."""

from dataclasses import dataclass

import matplotlib
import matplotlib.pyplot as plt

matplotlib.use("Agg")


@dataclass(frozen=True)
class Page:
    width: float | None  # inches of all figures; None: as wide as their panels need
    across: int  # panels side by side, at most
    font: float  # points
    line: float
    marker: float
    ticks: int  # along an axis, at most
    dpi: int

    @property
    def is_column(self) -> bool:
        return self.width is not None


PAGES = {"screen": Page(None, 4, 10.5, 1.9, 5.5, 7, 150), "single": Page(3.4, 1, 7.5, 1.2, 3.8, 6, 300),
         "double": Page(7.0, 3, 7.5, 1.2, 3.8, 5, 300)}
current = PAGES["screen"]


def use_page(name: str) -> None:
    """For all figures from now on."""
    global current
    current = PAGES[name]
    plt.rcParams.update({"font.size": current.font, "lines.linewidth": current.line, "lines.markersize": current.marker,
                         "axes.titlesize": "medium", "legend.fontsize": "small",
                         "axes.linewidth": 0.8 if current.width is None else 0.6})
