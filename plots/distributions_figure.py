"""How long iterations take, and, where micro-batches were recorded, a worker's computation in one (Giladi et al. 2023,
Figure 2): the share of them in equal intervals of time."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from plots import page, style
from plots.comparison import Comparison
from plots.methods import Method
from plots.numbers import typeset_number
from plots.runs import read_table
from plots.sheet import Place, Sheet
from plots.step_times import step_times

DURATIONS = "durations.csv.gz"
INTERVALS = 60
DASHED = {"linestyle": (0, (2, 1.5)), "linewidth": 1, "alpha": 0.8}
MOST_NUMBERS = 4  # beside lines that leave a panel
FEWEST = 50  # of which a distribution is worth a picture
ITERATIONS, WORKERS = "Iterations: time per optimizer step", "Workers: a step's computation"


def distributions_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str,
                         other: Comparison | None = None):
    """The figure, or None where there are too few iterations. `looks`: by label. `other`: another variant, whose methods are
    dashed on the same axes."""
    styles = {method.name: looks[method.label] for method in methods}
    panels = {title: lines for title, of in ((WORKERS, worker_times), (ITERATIONS, step_times))
              if (lines := {method.name: times for method in methods if len(times := of(method)) >= FEWEST})}
    if ITERATIONS not in panels:
        return None
    sheet = Sheet([[Place(list(styles) if title == ITERATIONS else [], width=5.2) for title in panels]], heading,
                  subtitle.split("  ·  line: mean")[0] + "  ·  all seeds together; above: the means")
    for panel, (title, lines) in zip(sheet.panels, panels.items()):
        dashed = {method.name: times for method in (other.methods if other else [])
                  if method.name in lines and len(times := of_title(title)(method)) >= FEWEST}
        ends = draw_panel(panel, lines, styles, dashed)
        sheet.entitle(panel, title)
        if title == ITERATIONS:
            sheet.name_lines(panel, ends, styles)
    if other:
        sheet.entries.append(plt.Line2D([], [], color=style.INK, **DASHED, label=f"dashed: {other.point['variant']}"))
    return sheet.finish()


def of_title(title: str):
    return worker_times if title == WORKERS else step_times


def worker_times(method: Method) -> np.ndarray:
    """Of each worker in each step the sum of what its micro-batches took; of runs that recorded them."""
    tables = [read_table(path, ["worker", "step", "duration_s"]) for run in method.runs
              if (path := run.directory / DURATIONS).exists()]
    sums = [table.groupby(["worker", "step"])["duration_s"].sum() for table in tables]
    return pd.concat(sums).to_numpy(float) if sums else np.array([])


def say_beyond(panel, peaks: dict[str, tuple[float, float]], styles) -> None:
    """How high lines go that leave the panel: beside each where there are few."""
    look = {"xycoords": panel.get_xaxis_transform(), "textcoords": "offset points", "va": "top", "gid": "beyond",
            "fontsize": 0.85 * page.current.font}
    if len(peaks) > MOST_NUMBERS:
        least, most = (typeset_number(reduce(share for _, share in peaks.values()), 3) for reduce in (min, max))
        panel.annotate(f"beyond: up to {f'{least} to ' * (least != most)}{most} %", (panel.get_xlim()[1], 0.9), xytext=(-2, 0),
                       ha="right", **look)
        return
    for name, (x, share) in peaks.items():
        panel.annotate(f"{typeset_number(share, 3)} %", (x, 0.9), xytext=(0.9 * page.current.marker, 0), color=styles[name]["color"], **look)


def where_any(middles: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Without the intervals at both ends in which there are none, but for one: lines along zero would hide each other."""
    some = np.flatnonzero(shares)
    shown = slice(max(0, some[0] - 1), some[-1] + 2) if len(some) else slice(None)
    return middles[shown], shares[shown]


def draw_panel(panel, lines: dict[str, np.ndarray], styles, dashed: dict[str, np.ndarray]) -> dict[str, tuple[float, float]]:
    """Outlines of histograms with common intervals, up to where nearly all is; returns where they end."""
    longest = max(np.quantile(times, 0.995) for times in [*lines.values(), *dashed.values()])
    shortest = min(times.min() for times in [*lines.values(), *dashed.values()])
    scale, unit = style.time_unit(longest)
    span = max(longest - shortest, 0.02 * longest) or 1.0  # all alike: around that
    edges = np.linspace(max(0.0, shortest - 0.05 * span), shortest + 1.001 * span, INTERVALS + 1) / scale
    ends, highest, middles = {}, {}, (edges[1:] + edges[:-1]) / 2
    for name, times in lines.items():
        shares = 100 * np.histogram(times / scale, edges)[0] / len(times)
        if name in dashed:
            panel.plot(*where_any(middles, 100 * np.histogram(dashed[name] / scale, edges)[0] / len(dashed[name])),
                       color=styles[name]["color"], **DASHED, drawstyle="steps-mid", gid="other")
        panel.plot(*where_any(middles, shares), **style.marked_here_and_there(styles[name]), drawstyle="steps-mid", gid="method")
        panel.plot(times.mean() / scale, 0.965, color=styles[name]["color"], marker=styles[name].get("marker", "o"),
                   markersize=1.4 * page.current.marker, transform=panel.get_xaxis_transform(), linestyle="none", gid="mean",
                   zorder=6)
        highest[name] = (middles[shares.argmax()], shares.max())
        ends[name] = (middles[-1], shares[-1])
    panel.set_xlim(edges[0], edges[-1])
    # A threshold can make nearly all iterations alike: such a line may leave the panel, lest the others be flat.
    shares = [share for _, share in highest.values()]
    top = 1.15 * min(max(shares), 4 * min(shares))
    panel.set_ylim(0, top)
    say_beyond(panel, {name: peak for name, peak in highest.items() if peak[1] > top}, styles)
    panel.set_xlabel(f"time ({unit})")
    panel.set_ylabel("share (%)")
    panel.xaxis.set_major_locator(MaxNLocator(page.current.ticks))
    return ends
