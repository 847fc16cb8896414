"""What every worker did in the first rounds: a panel per method, all on one scale of time."""

from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from plots import page, style
from plots.methods import Method
from plots.runs import Run
from plots.traces import TRACE, Trace, read_trace

ACTIVITIES = {"compute": "#0072B2", "discarded": "#D55E00", "wait": "#E2E2E2", "communicate": "#F0E442",
              "down": "#333333"}
HATCHES = {"discarded": "/////", "communicate": "...."}  # as dark, or as light, as others on grey pages
ROUNDS = 4
MOST_ROWS = 32  # of a panel
SCREEN = 13.0  # inches of the figure's width
SMALLEST_EDGE = 4  # points: bars narrower than this, on average, have no edges


@dataclass
class Margins:
    """Inches: of the figure's width, left and right of the panels, above them with heading and legend, below, between."""

    width: float
    left: float = 0.95
    right: float = 0.3
    top: float = 1.45
    bottom: float = 0.62
    gap: float = 0.52

    @classmethod
    def of_page(cls) -> "Margins":
        width = page.current.width
        if width is None:
            return cls(SCREEN)
        rows = 1 if width > 5 else 2  # of the legend
        return cls(width, left=0.55, right=0.08, top=0.32 + 0.16 * rows, bottom=0.4, gap=0.3 if width > 5 else 0.42)


@dataclass
class Panel:
    method: Method
    run: Run
    trace: Trace

    def rows(self) -> list[int]:
        """Threads that are shown: of many workers the first and the last, where slow ones stand, and the servers."""
        threads = sorted(self.trace.names)
        workers, servers = threads[:self.trace.workers], threads[self.trace.workers:]
        rows = sum(self.trace.names[thread].startswith(self.trace.names[servers[0]]) for thread in servers) if servers else 1
        servers = servers[:MOST_ROWS // 4 // rows * rows]  # each with its link's two ways, where there are rows of those
        left_out = max(0, len(workers) + len(servers) - MOST_ROWS)
        first = (len(workers) - left_out) // 2
        return workers[:first] + workers[first + left_out:] + servers

    def round_end(self, number: int) -> float:
        """The end of that round of the run, or of its last one; nan without rounds."""
        ends = self.run.steps["time_s"].to_numpy(float)
        return ends[min(number, len(ends)) - 1] if len(ends) else np.nan


def timeline_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str):
    """The figure of the first seed of each method that has a trace, or None where none has. `looks`: by label."""
    panels = [Panel(method, run, read_trace(run.directory / TRACE)) for method in methods
              if (run := next((run for run in method.runs if (run.directory / TRACE).exists()), None))]
    if not panels:
        return None
    window = window_s(panels)
    scale, unit = style.time_unit(window)
    margins = Margins.of_page()
    heights = [row_inches(panels) * len(panel.rows()) for panel in panels]
    height = margins.top + sum(heights) + margins.gap * (len(panels) - 1) + margins.bottom
    figure = plt.figure(figsize=(margins.width, height))
    top = height - margins.top
    for panel, inches in zip(panels, heights):
        axes = figure.add_axes([margins.left / margins.width, (top - inches) / height,
                                1 - (margins.left + margins.right) / margins.width, inches / height])
        draw_panel(axes, panel, window, scale, margins)
        describe_panel(axes, panel, looks[panel.method.label])
        axes.tick_params(labelbottom=panel is panels[-1])
        top -= inches + margins.gap
    axes.set_xlabel(f"time ({unit})")
    draw_legend(figure, panels, height, margins)
    subtitle = subtitle.split("  ·  line: mean")[0] + parts_shown(panels)
    if page.current.is_column:
        figure.set_label(f"{heading}\n{subtitle}")
    else:
        style.title(figure, heading, subtitle)
    return figure


def window_s(panels: list[Panel]) -> float:
    """Some rounds of the method whose rounds are shortest, and at least one of each; no longer than the traces."""
    some = np.nanmin([panel.round_end(ROUNDS) for panel in panels] + [np.inf])
    one = np.nanmax([panel.round_end(1) for panel in panels] + [0])
    longest = max(panel.trace.until_s for panel in panels)
    return float(min(max(some, one) * 1.02, longest)) if np.isfinite(some) else longest


def row_inches(panels: list[Panel]) -> float:
    few = max(len(panel.rows()) for panel in panels) <= 16
    return (0.13 if few else 0.09) if page.current.is_column else 0.19 if few else 0.12


def draw_panel(axes, panel: Panel, window: float, scale: float, margins: Margins) -> None:
    rows = panel.rows()
    spans = panel.trace.spans
    spans = spans[spans["thread"].isin(rows) & (spans["begin_s"] < window)]
    points = (margins.width - margins.left - margins.right) * 72 / window
    widths = points * (spans["end_s"].clip(upper=window) - spans["begin_s"])
    has_edges = len(widths) and widths.mean() > SMALLEST_EDGE
    edges = {"edgecolor": "white", "linewidth": 0.5 if has_edges else 0}
    place = {thread: number for number, thread in enumerate(rows)}
    for (thread, activity), group in spans.groupby(["thread", "activity"], sort=True):
        begin = group["begin_s"].to_numpy() / scale
        lengths = group["end_s"].clip(upper=window).to_numpy() / scale - begin
        axes.broken_barh(list(zip(begin, lengths)), (place[thread] - 0.42, 0.84), facecolor=ACTIVITIES[activity],
                         hatch=HATCHES.get(activity), **edges)
    for above, (thread, following) in enumerate(zip(rows, rows[1:])):
        if following > thread + 1:  # workers between them are not shown
            axes.axhline(above + 0.5, color=style.INK, linewidth=1, zorder=3)
    for end in panel.run.steps["time_s"]:
        if end <= window:
            axes.axvline(end / scale, color=style.INK, linewidth=0.8, linestyle=(0, (2, 2)), zorder=3)
    if panel.trace.until_s < window:
        axes.axvspan(panel.trace.until_s / scale, window / scale, facecolor="none", edgecolor=style.FAINT, hatch="////",
                     linewidth=0)
        is_narrow = window - panel.trace.until_s < 0.12 * window
        axes.text((window if is_narrow else (panel.trace.until_s + window) / 2) / scale, len(rows) / 2 - 0.5,
                  "not recorded" if panel.trace.capped else "the run has ended",
                  ha="right" if is_narrow else "center", va="center", fontsize="small",
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 2})
    axes.set_xlim(0, window / scale)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(5 if page.current.is_column else 10))


def describe_panel(axes, panel: Panel, look: dict) -> None:
    """The method's name above to the left, where all worker-seconds of the run went to the right."""
    rows = panel.rows()
    every = 1 if len(rows) <= 16 else 4
    ticks = [number for number, thread in enumerate(rows)
             if thread > panel.trace.workers or number % every == 0]
    axes.set_yticks(ticks, [panel.trace.names[rows[number]] for number in ticks],
                    fontsize="x-small" if page.current.is_column else 8)
    axes.tick_params(axis="y", length=0)
    narrow = page.current.width is not None and page.current.width < 5
    axes.set_title(panel.method.label, loc="left", fontsize="medium", fontweight="bold", color=look["color"],
                   pad=12 if narrow else None)
    seconds = (panel.run.summary.get("worker_seconds") or {}).get("summed") or {}
    if seconds.get("total"):
        shares = [f"{name} {share_text(seconds[name] / seconds['total'])}" for name in ACTIVITIES if seconds.get(name)]
        if narrow:
            axes.annotate(", ".join(shares), (0, 1), (0, 4), xycoords="axes fraction", textcoords="offset points",
                          fontsize="x-small", color="#666666")
        else:
            axes.set_title("whole run: " + ", ".join(shares), loc="right", fontsize="small", color="#666666")


def share_text(share: float) -> str:
    """Without decimals, but never 0 % for what there is."""
    return f"{100 * share:.0f} %" if share >= 0.01 else f"{max(100 * share, 0.1):.1f} %"


def draw_legend(figure, panels: list[Panel], height: float, margins: Margins) -> None:
    shown = {activity for panel in panels for activity in panel.trace.spans["activity"].unique()}
    marks = [Patch(facecolor=colour, hatch=HATCHES.get(activity), edgecolor="white", linewidth=0, label=activity) for activity, colour in ACTIVITIES.items() if activity in shown]
    marks.append(Line2D([], [], color=style.INK, linewidth=0.8, linestyle=(0, (2, 2)), label="end of a round"))
    above, columns = (0.06, len(marks) if margins.width > 5 else 3) if page.current.is_column else (0.83, len(marks))
    figure.legend(handles=marks, loc="upper left", bbox_to_anchor=(margins.left / margins.width, 1 - above / height),
                  ncols=columns, frameon=False, fontsize=None if page.current.is_column else 9.5, handlelength=1.4,
                  columnspacing=1.6, borderaxespad=0, borderpad=0)


def parts_shown(panels: list[Panel]) -> str:
    """What is not on the picture."""
    parts = ["the first rounds"]
    most = max(len(panel.trace.names) for panel in panels)
    if any(len(panel.rows()) < len(panel.trace.names) for panel in panels):
        parts.append(f"{max(len(panel.rows()) for panel in panels)} of {most} rows, the first and the last workers")
    if any(len(panel.method.runs) > 1 for panel in panels):
        parts.append("first seed")
    return "  ·  " + ", ".join(parts)
