"""Activities of workers: timelines of the first rounds, and accounts of all worker-seconds as stacked bars."""

from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from plots import style
from plots.claims import LOOK, Published, paper_legend
from plots.comparison import Comparison, Method, without_band
from plots.final_results import draw_interval
from plots.numbers import END_TIME, FIRST_SCIENTIFIC, LEAST_PLAIN, mean_and_half, typeset_number
from plots.runs import TRACE, Run, Trace, read_trace
from plots.sheet import Place, Sheet, shared_out

ACTIVITIES = {"compute": "#0072B2", "discarded": "#D55E00", "wait": "#E2E2E2", "communicate": "#F0E442",
              "down": "#333333"}
WORDS = {"compute": "computing", "discarded": "dropped work", "wait": "waiting",
         "communicate": "communicating", "down": "down"}
HATCHES = {"discarded": "/////", "communicate": "...."}  # their colours look like others on grey pages

ROUNDS = 4  # rounds to show, of the method with the shortest rounds
MOST_ROWS = 32  # most rows of a panel
SCREEN = 13.0  # width of the figure in inches
SMALLEST_EDGE = 4  # in points; bars that are on average narrower have no edges

UNITS = ((3600, "h"), (60, "min"), (1, "s"))
ACROSS = 2  # panels of times side by side on a screen
HOURS_FROM_S = 7200
ROW = 0.46  # height of a row of times in inches


@dataclass
class Margins:
    """In inches: the figure's width, the room around its panels (top: with heading and legend), and their gaps."""

    width: float
    left: float = 0.95
    right: float = 0.3
    top: float = 1.45
    bottom: float = 0.62
    gap: float = 0.52

    @classmethod
    def of_page(cls) -> "Margins":
        width = style.page.width
        if width is None:
            return cls(SCREEN)
        rows = 1 if width > 5 else 2  # in the legend
        return cls(width, left=0.55, right=0.08, top=0.32 + 0.16 * rows, bottom=0.4, gap=0.3 if width > 5 else 0.42)


@dataclass
class Panel:
    method: Method
    run: Run
    trace: Trace

    def rows(self) -> list[int]:
        """The threads to draw: workers, then servers. If there are too many workers, only the first and the last ones,
        because slow workers are usually among these."""
        threads = sorted(self.trace.names)
        workers, servers = threads[:self.trace.workers], threads[self.trace.workers:]
        rows = sum(self.trace.names[thread].startswith(self.trace.names[servers[0]]) for thread in servers) if servers else 1
        servers = servers[:MOST_ROWS // 4 // rows * rows]  # complete servers only, with their links' two rows, if any
        left_out = max(0, len(workers) + len(servers) - MOST_ROWS)
        first = (len(workers) - left_out) // 2
        return workers[:first] + workers[first + left_out:] + servers

    def round_end(self, number: int) -> float:
        """The time at which this round ends, or the last round if there are fewer; nan without rounds."""
        ends = self.run.steps["time_s"].to_numpy(float)
        return ends[min(number, len(ends)) - 1] if len(ends) else np.nan


def timeline_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str):
    """The first rounds of each method's first seed, on one time scale; None without traces. `looks`: by label."""
    panels = recorded_panels(methods)
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
        draw_timeline(axes, panel, window, scale, margins)
        describe_panel(axes, panel, looks[panel.method.label])
        axes.tick_params(labelbottom=panel is panels[-1])
        top -= inches + margins.gap
    axes.set_xlabel(f"time ({unit})")
    draw_legend(figure, panels, height, margins)
    subtitle = without_band(subtitle) + parts_shown(panels)
    if style.page.is_column:
        figure.set_label(f"{heading}\n{subtitle}")
    else:
        style.title(figure, heading, subtitle)
    return figure


def recorded_panels(methods: list[Method]) -> list[Panel]:
    """A panel for each method with a trace, for its first seed that has one."""
    return [Panel(method, run, read_trace(run.directory / TRACE)) for method in methods
            if (run := next((run for run in method.runs if (run.directory / TRACE).exists()), None))]


def window_s(panels: list[Panel]) -> float:
    """The number of seconds to draw: ROUNDS rounds of the method with the shortest rounds, but at least one round of
    each method, and at most the longest trace."""
    some = np.nanmin([panel.round_end(ROUNDS) for panel in panels] + [np.inf])
    one = np.nanmax([panel.round_end(1) for panel in panels] + [0])
    longest = max(panel.trace.until_s for panel in panels)
    return float(min(max(some, one) * 1.02, longest)) if np.isfinite(some) else longest


def row_inches(panels: list[Panel]) -> float:
    few = max(len(panel.rows()) for panel in panels) <= 16
    return (0.13 if few else 0.09) if style.page.is_column else 0.19 if few else 0.12


def draw_timeline(axes, panel: Panel, window: float, scale: float, margins: Margins) -> None:
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
        if following > thread + 1:  # workers between these rows are left out
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
    axes.xaxis.set_major_locator(MaxNLocator(5 if style.page.is_column else 10))


def describe_panel(axes, panel: Panel, look: dict) -> None:
    """Writes the method's name above the panel, and the activities' shares of the run's worker-seconds."""
    rows = panel.rows()
    every = 1 if len(rows) <= 16 else 4
    ticks = [number for number, thread in enumerate(rows)
             if thread > panel.trace.workers or number % every == 0]
    axes.set_yticks(ticks, [panel.trace.names[rows[number]] for number in ticks],
                    fontsize="x-small" if style.page.is_column else 8)
    axes.tick_params(axis="y", length=0)
    narrow = style.page.width is not None and style.page.width < 5
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
    """The share as a percentage, at least 0.1 %: without decimals, or below 1 % with one decimal."""
    return f"{100 * share:.0f} %" if share >= 0.01 else f"{max(100 * share, 0.1):.1f} %"


def draw_legend(figure, panels: list[Panel], height: float, margins: Margins) -> None:
    shown = {activity for panel in panels for activity in panel.trace.spans["activity"].unique()}
    marks = [Patch(facecolor=colour, hatch=HATCHES.get(activity), edgecolor="white", linewidth=0, label=activity)
             for activity, colour in ACTIVITIES.items() if activity in shown]
    marks.append(Line2D([], [], color=style.INK, linewidth=0.8, linestyle=(0, (2, 2)), label="end of a round"))
    above, columns = (0.06, len(marks) if margins.width > 5 else 3) if style.page.is_column else (0.83, len(marks))
    figure.legend(handles=marks, loc="upper left", bbox_to_anchor=(margins.left / margins.width, 1 - above / height),
                  ncols=columns, frameon=False, fontsize=None if style.page.is_column else 9.5, handlelength=1.4,
                  columnspacing=1.6, borderaxespad=0, borderpad=0)


def parts_shown(panels: list[Panel]) -> str:
    """The part of the subtitle that says which part of the runs the figure shows."""
    parts = ["the first rounds"]
    most = max(len(panel.trace.names) for panel in panels)
    if any(len(panel.rows()) < len(panel.trace.names) for panel in panels):
        parts.append(f"{max(len(panel.rows()) for panel in panels)} of {most} rows, the first and the last workers")
    if any(len(panel.method.runs) > 1 for panel in panels):
        parts.append("first seed")
    return "  ·  " + ", ".join(parts)


def seconds_of(method: Method) -> dict[str, float]:
    """Worker-seconds by activity, and their total, as means over the seeds; empty if no run has accounts."""
    accounts = [summed for run in method.runs
                if (summed := (run.summary.get("worker_seconds") or {}).get("summed") or {}).get("total")]
    return {name: float(np.mean([summed.get(name) or 0 for summed in accounts])) for name in (*ACTIVITIES, "total")
            } if accounts else {}


def accounts_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str):
    """Stacked bars of worker-seconds, and of their shares; None if no run has accounts. `looks`: by label."""
    seconds = {method.name: found for method in methods if (found := seconds_of(method))}
    if not seconds:
        return None
    styles = {method.name: looks[method.label] for method in methods if method.name in seconds}
    high = max(1.0, 0.42 * len(seconds) + 0.3)
    sheet = Sheet([[Place(width=5.0, left=style.label_inches(seconds), height=high, is_wide=True),
                    Place(width=5.0, left=0.1, height=high)]], heading, without_band(subtitle))
    longest = max(found["total"] for found in seconds.values())
    scale, unit = next(((size, name) for size, name in UNITS if longest >= 3 * size), UNITS[-1])
    for number, (panel, title) in enumerate(zip(sheet.panels, (f"Time of all workers together ({unit})", "Shares (%)"))):
        for row, found in enumerate(seconds.values()):
            draw_bar(panel, row, found, scale if number == 0 else found["total"] / 100)
        sheet.entitle(panel, title)
        style.name_rows(panel, list(seconds), styles)
        panel.tick_params(labelleft=number == 0 or style.page.is_column)
        panel.set_xlim(0, 1.02 * longest / scale if number == 0 else 100)
        panel.xaxis.set_major_formatter(style.SHORT)
    sheet.entries = activity_legend(list(seconds.values()))
    return sheet.finish()


def draw_bar(panel, row: int, found: dict[str, float], scale: float) -> None:
    left = 0.0
    for activity, colour in ACTIVITIES.items():
        if found[activity]:
            panel.barh(row, found[activity] / scale, left=left, height=0.5, color=colour, hatch=HATCHES.get(activity, ""),
                       edgecolor="white", linewidth=0, gid=activity)
            left += found[activity] / scale


def activity_legend(found: list[dict[str, float]]) -> list:
    """A legend entry for each activity in the accounts."""
    return [Patch(facecolor=colour, hatch=HATCHES.get(name, ""), edgecolor="white", linewidth=0, label=WORDS[name])
            for name, colour in ACTIVITIES.items() if any(seconds[name] for seconds in found)]


def has_accounts(comparisons: list[Comparison]) -> bool:
    return all(seconds_of(method) for comparison in comparisons for method in comparison.methods)


def times_figure(titles: dict[str, Comparison], looks: dict[str, dict], heading: str, subtitle: str,
                 published: list[Published] = ()):
    """The times that runs take, with a panel per comparison: a bar per method, divided into the activities of the mean
    worker, and the paper's number if a claim has one. `titles`: each panel's comparison by the panel's title; all
    methods must have accounts. `looks`: by label."""
    comparisons = list(titles.values())
    labels = list(dict.fromkeys(method.label for one in comparisons for method in one.methods))
    high = max(1.3, ROW * len(labels) + 0.3)
    rows = shared_out(comparisons, ACROSS)
    left = style.label_inches(labels)
    sheet = Sheet([[Place(width=5.2, left=left if one is row[0] else 0.1, height=high, is_wide=True) for one in row]
                   for row in rows], heading, subtitle)
    longest = max(end_of(method) for one in comparisons for method in one.methods)
    scale, unit = (3600, "h") if longest >= HOURS_FROM_S else style.time_unit(longest)
    shown = [one for one in published if one.measure == END_TIME.measure and not one.against]
    for panel, (title, comparison) in zip(sheet.panels, titles.items()):
        draw_times(panel, comparison, labels, scale, unit, [one for one in shown if is_there(one, comparison)])
        style.name_rows(panel, labels, looks)
        panel.tick_params(labelleft=any(comparison is row[0] for row in rows) or style.page.is_column)
        panel.set_xlabel(f"time of the run ({unit})")
        panel.xaxis.set_major_formatter(style.SHORT)
        sheet.entitle(panel, title)
    sources = [line.get_label() for panel in sheet.panels for line in panel.lines if line.get_gid() == "paper"]
    sheet.entries = (activity_legend([seconds_of(method) for one in comparisons for method in one.methods])
                     + paper_legend(sources, "the paper: "))
    return sheet.finish()


def titles_of(comparisons: list[Comparison], names: list[str]) -> dict[str, Comparison]:
    """The comparisons by their panels' titles, with numbers of steps if these differ: fewer steps would look faster."""
    steps = [most_steps(one) for one in comparisons]
    return {f"{name}: {count:,} steps" if len(set(steps)) > 1 else name: one
            for name, count, one in zip(names, steps, comparisons)}


def most_steps(comparison: Comparison) -> int:
    return max(int(run.summary["steps"]) for run in comparison.runs)


def end_of(method: Method) -> float:
    return float(np.mean([END_TIME.value(run) for run in method.runs]))


def is_there(one: Published, comparison: Comparison) -> bool:
    return all(comparison.point.get(key) == value for key, value in one.where.items())


def draw_times(panel, comparison: Comparison, labels: list[str], scale: float, unit: str,
              published: list[Published]) -> None:
    ends = []
    for method in comparison.methods:
        row, seconds = labels.index(method.label), seconds_of(method)
        mean, half = mean_and_half([END_TIME.value(run) / scale for run in method.runs])
        draw_bar(panel, row, {activity: seconds[activity] / seconds["total"] * mean for activity in ACTIVITIES}, 1)
        if half:
            draw_interval(panel, mean, row, half, style.INK)
        said = [one for one in published if one.method == method.base]
        for one in said:
            panel.plot(one.value / scale, row, color=style.INK, **LOOK, markersize=2 * style.page.marker, gid="paper",
                       label=one.source)
        end = max([mean + (half or 0), *(one.value / scale for one in said)])
        text = f"{three_digits(mean)} {unit}" + "".join(f", paper: {typeset_number(one.value / scale)} {unit}" for one in said)
        panel.annotate(text, (end, row), xytext=(1.6 * style.page.marker, 0), textcoords="offset points", va="center",
                       fontsize="small", gid="value")
        ends.append(end)
    panel.set_xlim(0, (1.6 if style.page.is_column else 1.45) * max(ends))  # room for the values
    panel.xaxis.set_major_locator(plt.MaxNLocator(style.page.ticks))


def three_digits(value: float) -> str:
    """The value with three digits, even if the last ones are zeros: 20.0, not 20."""
    return f"{value:#.3g}".rstrip(".") if LEAST_PLAIN <= value < FIRST_SCIENTIFIC else typeset_number(value, 3)
