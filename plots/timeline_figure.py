"""What every worker did in the first rounds: a panel per method, all on one scale of time."""

from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from plots import style
from plots.methods import Method
from plots.runs import Run
from plots.traces import TRACE, Trace, read_trace

ACTIVITIES = {"compute": "#0072B2", "discarded": "#D55E00", "wait": "#E2E2E2", "communicate": "#F0E442",
              "down": "#333333"}
ROUNDS = 4
MOST_ROWS = 32  # of a panel
WIDTH, LEFT, RIGHT = 13.0, 0.95, 0.3  # inches: of the figure, and its margins
TOP, BOTTOM, GAP = 1.45, 0.62, 0.52  # above the panels with heading and legend, below them, between them
SMALLEST_EDGE = 4  # points: bars narrower than this, on average, have no edges


@dataclass
class Panel:
    method: Method
    run: Run
    trace: Trace

    def rows(self) -> list[int]:
        """Threads that are shown: of many workers the first and the last, where slow ones stand, and the servers."""
        threads = sorted(self.trace.names)
        workers, servers = threads[:self.trace.workers], threads[self.trace.workers:]
        servers = servers[:MOST_ROWS // 4]
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
    heights = [row_inches(panels) * len(panel.rows()) for panel in panels]
    height = TOP + sum(heights) + GAP * (len(panels) - 1) + BOTTOM
    figure = plt.figure(figsize=(WIDTH, height))
    top = height - TOP
    for panel, inches in zip(panels, heights):
        axes = figure.add_axes([LEFT / WIDTH, (top - inches) / height, 1 - (LEFT + RIGHT) / WIDTH, inches / height])
        draw_panel(axes, panel, window, scale)
        describe_panel(axes, panel, looks[panel.method.label])
        axes.tick_params(labelbottom=panel is panels[-1])
        top -= inches + GAP
    axes.set_xlabel(f"time ({unit})")
    draw_legend(figure, panels, height)
    style.title(figure, heading, subtitle.split("  ·  line: mean")[0] + parts_shown(panels))
    return figure


def window_s(panels: list[Panel]) -> float:
    """Some rounds of the method whose rounds are shortest, and at least one of each; no longer than the traces."""
    some = np.nanmin([panel.round_end(ROUNDS) for panel in panels] + [np.inf])
    one = np.nanmax([panel.round_end(1) for panel in panels] + [0])
    longest = max(panel.trace.until_s for panel in panels)
    return float(min(max(some, one) * 1.02, longest)) if np.isfinite(some) else longest


def row_inches(panels: list[Panel]) -> float:
    return 0.19 if max(len(panel.rows()) for panel in panels) <= 16 else 0.12


def draw_panel(axes, panel: Panel, window: float, scale: float) -> None:
    rows = panel.rows()
    spans = panel.trace.spans
    spans = spans[spans["thread"].isin(rows) & (spans["begin_s"] < window)]
    points = (WIDTH - LEFT - RIGHT) * 72 / window
    widths = points * (spans["end_s"].clip(upper=window) - spans["begin_s"])
    has_edges = len(widths) and widths.mean() > SMALLEST_EDGE
    edges = {"edgecolor": "white", "linewidth": 0.5} if has_edges else {"linewidth": 0}
    place = {thread: number for number, thread in enumerate(rows)}
    for (thread, activity), group in spans.groupby(["thread", "activity"], sort=True):
        begin = group["begin_s"].to_numpy() / scale
        lengths = group["end_s"].clip(upper=window).to_numpy() / scale - begin
        axes.broken_barh(list(zip(begin, lengths)), (place[thread] - 0.42, 0.84), facecolor=ACTIVITIES[activity],
                         **edges)
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
                  ha="right" if is_narrow else "center", va="center", fontsize=9,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 2})
    axes.set_xlim(0, window / scale)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(10))


def describe_panel(axes, panel: Panel, look: dict) -> None:
    """The method's name above to the left, where all worker-seconds of the run went to the right."""
    rows = panel.rows()
    every = 1 if len(rows) <= 16 else 4
    ticks = [number for number, thread in enumerate(rows)
             if thread > panel.trace.workers or number % every == 0]
    axes.set_yticks(ticks, [panel.trace.names[rows[number]] for number in ticks], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_title(panel.method.label, loc="left", fontsize=11, fontweight="bold", color=look["color"])
    seconds = (panel.run.summary.get("worker_seconds") or {}).get("summed") or {}
    if seconds.get("total"):
        shares = [f"{name} {share_text(seconds[name] / seconds['total'])}" for name in ACTIVITIES if seconds.get(name)]
        axes.set_title("whole run: " + ", ".join(shares), loc="right", fontsize=9, color="#666666")


def share_text(share: float) -> str:
    """Without decimals, but never 0 % for what there is."""
    return f"{100 * share:.0f} %" if share >= 0.01 else f"{max(100 * share, 0.1):.1f} %"


def draw_legend(figure, panels: list[Panel], height: float) -> None:
    shown = {activity for panel in panels for activity in panel.trace.spans["activity"].unique()}
    marks = [Patch(facecolor=colour, label=activity) for activity, colour in ACTIVITIES.items() if activity in shown]
    marks.append(Line2D([], [], color=style.INK, linewidth=0.8, linestyle=(0, (2, 2)), label="end of a round"))
    figure.legend(handles=marks, loc="upper left", bbox_to_anchor=(LEFT / WIDTH, 1 - 0.83 / height), ncols=len(marks),
                  frameon=False, fontsize=9.5, handlelength=1.4, columnspacing=1.6, borderaxespad=0, borderpad=0)


def parts_shown(panels: list[Panel]) -> str:
    """What is not on the picture."""
    parts = ["the first rounds"]
    most = max(len(panel.trace.names) for panel in panels)
    if any(len(panel.rows()) < len(panel.trace.names) for panel in panels):
        parts.append(f"{max(len(panel.rows()) for panel in panels)} of {most} rows, the first and the last workers")
    if any(len(panel.method.runs) > 1 for panel in panels):
        parts.append("first seed")
    return "  ·  " + ", ".join(parts)
