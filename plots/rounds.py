"""Rounds and steps: how long they take, the drop rate, the synchronisation period, and distributions of times (Giladi
et al. 2023, Figure 2)."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from plots import style
from plots.comparison import BETWEEN, Comparison, Method, described, panel_name, without_band
from plots.curves import ACROSS, mean_curve
from plots.numbers import typeset_number
from plots.runs import read_table
from plots.sheet import Place, Sheet, shared_out

EVERY_STEP = "others: 1"
WINDOWS = 40  # parts of a run, each with its mean drop rate: a single step drops only a few micro-batches

DURATIONS = "durations.csv.gz"
INTERVALS = 60
DASHED = {"linestyle": (0, (2, 1.5)), "linewidth": 1, "alpha": 0.8}
MOST_NUMBERS = 4  # most lines that leave a panel and have their peak written beside them
FEWEST_TIMES = 50  # fewest times in a distribution
ITERATIONS, WORKERS = "Iterations: time per optimizer step", "Workers: a step's computation"


def rounds_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str):
    """Time per step, drop rate and period over the run; None if no run has steps. `looks`: by label."""
    styles = {method.name: looks[method.label] for method in methods}
    methods = [method for method in methods if any(len(run.steps) for run in method.runs)]
    if not methods:
        return None
    dropping = [method.name for method in methods
                if any((run.steps["dropped_micro_batches"] > 0).any() for run in method.runs)]
    periodic = [method.name for method in methods if has_periods(method)]
    drawn = [(draw_durations, Place(left=style.label_inches(styles), is_wide=True))]
    if dropping:
        drawn.append((draw_drop_rates, Place(dropping)))
    if periodic:
        drawn.append((draw_periods, Place([*periodic, EVERY_STEP])))
    sheet = Sheet([[place for _, place in drawn]], heading, subtitle)
    for panel, (draw, _) in zip(sheet.panels, drawn):
        draw(sheet, panel, methods, styles)
    return sheet.finish()


def period_panels(comparisons: list[Comparison], looks: dict[str, dict], heading: str):
    """The period H over the steps: a panel per comparison with periods above 1. `looks`: by label, for all methods."""
    shown = [comparison for comparison in comparisons if any(map(has_periods, comparison.methods))]
    rows = shared_out(shown, ACROSS)
    sheet = Sheet([[Place([*(method.name for method in one.methods), EVERY_STEP], width=3.6, height=2.5) for one in line]
                   for line in rows], heading, first_seed_described(shown))
    for panel, comparison in zip(sheet.panels, shown):
        draw_periods(sheet, panel, comparison.methods, {method.name: looks[method.label] for method in comparison.methods})
        panel.set_ylabel("period H (steps)")
        sheet.entitle(panel, panel_name(comparison, comparisons))
    if any(line.get_gid() == "last" for panel in sheet.panels for line in panel.lines):
        sheet.subtitle += ", thin: the last period, cut off"
    return sheet.finish()


def step_times(method: Method) -> np.ndarray:
    """Seconds per optimizer step, of all seeds. A round's duration is divided equally among its steps, so the mean is
    the time per step in the table of results. A row with 0 steps counts as one step."""
    times = []
    for run in method.runs:
        steps = run.steps["period_steps"].to_numpy(int).clip(min=1)
        times.append(np.repeat(run.steps["duration_s"].to_numpy(float) / steps, steps))
    return np.concatenate(times)


def draw_durations(sheet: Sheet, panel, methods: list[Method], styles) -> None:
    """Draws a line of quantiles per method: thin 5 to 95 %, thick 25 to 75 %, a dot at 50 %."""
    durations = {}
    for method in methods:
        durations[method.name] = np.quantile(step_times(method), [0.05, 0.25, 0.5, 0.75, 0.95])
    scale, unit = style.time_unit(max(values[-1] for values in durations.values()) * 3)
    for height, (name, values) in enumerate(durations.items()):
        colour = styles[name]["color"]
        panel.plot(values[[0, 4]] / scale, [height] * 2, color=colour, linewidth=0.85 * style.page.line)
        panel.plot(values[[1, 3]] / scale, [height] * 2, color=colour, linewidth=4.2 * style.page.line, solid_capstyle="butt")
        panel.plot(values[2] / scale, height, "o", color="white", markersize=1.1 * style.page.marker,
                   markeredgecolor=colour, markeredgewidth=1.8)
    style.name_rows(panel, list(durations), styles)
    panel.set_xlim(left=0)
    panel.set_xlabel(f"time per optimizer step ({unit})")
    seeds = " of all seeds" if any(len(method.runs) > 1 for method in methods) else ""
    sheet.entitle(panel, f"Time per step: median, quartiles, 5 to 95 %{seeds}")


def draw_drop_rates(sheet: Sheet, panel, methods: list[Method], styles) -> None:
    ends = {}
    for method in methods:
        xs, ys = zip(*(windowed_drop_rate(run.steps) for run in method.runs))
        curve = mean_curve(list(xs), list(ys))
        if curve is None or not curve.high.any():
            continue  # lines of methods that drop nothing would only hide each other
        panel.plot(curve.x, 100 * curve.mean, **style.marked_here_and_there(styles[method.name]))
        panel.fill_between(curve.x, 100 * curve.low, 100 * curve.high, color=styles[method.name]["color"], alpha=0.16,
                           linewidth=0)
        ends[method.name] = (curve.x[-1], 100 * curve.mean[-1])
    panel.set_ylim(bottom=0)
    panel.set_ylim(top=1.08 * panel.get_ylim()[1])
    step_axis(panel)
    sheet.entitle(panel, "Dropped micro-batches (%)")
    sheet.name_lines(panel, ends, styles)


def windowed_drop_rate(steps) -> tuple[np.ndarray, np.ndarray]:
    """The mean step and the drop rate of parts of a run's rows. All parts have the same length, but the last one may be
    up to half a part longer or shorter."""
    length = -(-len(steps) // WINDOWS)
    count = max(1, round(len(steps) / length)) if length else 0
    windows = [np.arange(k * length, len(steps) if k + 1 == count else (k + 1) * length) for k in range(count)]
    kept, dropped = steps["kept_micro_batches"].to_numpy(float), steps["dropped_micro_batches"].to_numpy(float)
    planned = np.array([kept[window].sum() + dropped[window].sum() for window in windows])
    lost = np.array([dropped[window].sum() for window in windows])
    step = np.array([steps["step"].to_numpy(float)[window].mean() for window in windows])
    return step, np.divide(lost, planned, out=np.zeros(len(planned)), where=planned > 0)


def draw_periods(sheet: Sheet, panel, methods: list[Method], styles) -> None:
    """Draws the period of one seed per method, since it follows the schedule and hardly differs between seeds. If the
    last round is shorter, it is thin, because usually the end of training cut it off."""
    shown = [method for method in methods if has_periods(method)]
    ends = {}
    for method in shown:
        steps = first_steps(method)
        end = steps["step"].to_numpy(float)
        begin = np.concatenate([[0.0], end[:-1]])
        period = steps["period_steps"].to_numpy(float).clip(min=1)
        x, y = np.stack([begin, end], 1).ravel(), np.repeat(period, 2)
        whole = -2 if len(period) > 1 and period[-1] < period[-2] else None
        panel.plot(x[:whole], y[:whole], **style.marked_here_and_there(styles[method.name]))
        if whole:
            panel.plot(x[whole - 1:], y[whole - 1:], color=styles[method.name]["color"], linewidth=0.4 * style.page.line,
                       linestyle=(0, (1, 2)), gid="last")
        ends[method.name] = (x[:whole][-1], y[:whole][-1])
    if len(shown) < len(methods):  # constant lines of several methods would hide each other
        styles = styles | {EVERY_STEP: {"color": style.FAINT}}
        ends[EVERY_STEP] = (max(x for x, _ in ends.values()), 1)
        panel.plot([0, ends[EVERY_STEP][0]], [1, 1], linewidth=1.2, zorder=1.5, **styles[EVERY_STEP])
    panel.set_yscale("log", base=2)
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.set_ylim(bottom=0.85)
    step_axis(panel)
    seed = ", first seed" if any(len(method.runs) > 1 for method in shown) else ""
    sheet.entitle(panel, f"Synchronisation period (optimizer steps){seed}")
    sheet.name_lines(panel, ends, styles)


def first_steps(method: Method):
    """The steps of the first seed that recorded any."""
    return next((run.steps for run in method.runs if len(run.steps)), method.runs[0].steps)


def changes_period(method: Method) -> bool:
    """Whether the period changes before the last round, in which only the remaining steps are left."""
    return len(first_steps(method)["period_steps"].iloc[:-1].unique()) > 1


def has_periods(method: Method) -> bool:
    return bool((first_steps(method)["period_steps"] > 1).any())


def step_axis(panel) -> None:
    panel.set_xlim(left=0)
    panel.xaxis.set_major_formatter(style.SHORT)
    panel.xaxis.set_major_locator(MaxNLocator(style.page.ticks - 1))
    panel.set_xlabel("optimizer steps")


def first_seed_described(comparisons: list[Comparison]) -> str:
    """The subtitle of figures of periods, which show one seed per method."""
    several = any(len(method.runs) > 1 for one in comparisons for method in one.methods)
    return BETWEEN.join([without_band(described(comparisons)), "synchronisation period H" + ", first seed" * several])


def distributions_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str,
                         other: Comparison | None = None):
    """Histograms of step times, and of workers' computation times if they were recorded. None if there are fewer than
    FEWEST_TIMES steps. `looks`: by label. `other`: another variant, whose methods are dashed on the same axes."""
    styles = {method.name: looks[method.label] for method in methods}
    times_of = {WORKERS: worker_times, ITERATIONS: step_times}
    panels = {title: lines for title, of_method in times_of.items()
              if (lines := {method.name: times for method in methods if len(times := of_method(method)) >= FEWEST_TIMES})}
    if ITERATIONS not in panels:
        return None
    sheet = Sheet([[Place(list(styles) if title == ITERATIONS else [], width=5.2) for title in panels]], heading,
                  without_band(subtitle) + "  ·  all seeds together; marks at the top: means")
    for panel, (title, lines) in zip(sheet.panels, panels.items()):
        dashed = {method.name: times for method in (other.methods if other else [])
                  if method.name in lines and len(times := times_of[title](method)) >= FEWEST_TIMES}
        ends = draw_distributions(panel, lines, styles, dashed)
        sheet.entitle(panel, title)
        if title == ITERATIONS:
            sheet.name_lines(panel, ends, styles)
    if other:
        sheet.entries.append(plt.Line2D([], [], color=style.INK, **DASHED, label=f"dashed: {other.point['variant']}"))
    return sheet.finish()


def worker_times(method: Method) -> np.ndarray:
    """Seconds of computation of each worker in each step, from runs that recorded the durations of micro-batches."""
    tables = [read_table(path, ["worker", "step", "duration_s"]) for run in method.runs
              if (path := run.directory / DURATIONS).exists()]
    sums = [table.groupby(["worker", "step"])["duration_s"].sum() for table in tables]
    return pd.concat(sums).to_numpy(float) if sums else np.array([])


def draw_distributions(panel, lines: dict[str, np.ndarray], styles, dashed: dict[str, np.ndarray]) -> dict[str, tuple[float, float]]:
    """Draws the outlines of histograms with the same intervals, up to the 99.5 % quantile. Returns the lines' ends."""
    longest = max(np.quantile(times, 0.995) for times in [*lines.values(), *dashed.values()])
    shortest = min(times.min() for times in [*lines.values(), *dashed.values()])
    scale, unit = style.time_unit(longest)
    span = max(longest - shortest, 0.02 * longest) or 1.0  # 1.0 around a single value of 0
    edges = np.linspace(max(0.0, shortest - 0.05 * span), shortest + 1.001 * span, INTERVALS + 1) / scale
    ends, highest, middles = {}, {}, (edges[1:] + edges[:-1]) / 2
    for name, times in lines.items():
        shares = 100 * np.histogram(times / scale, edges)[0] / len(times)
        if name in dashed:
            panel.plot(*where_any(middles, 100 * np.histogram(dashed[name] / scale, edges)[0] / len(dashed[name])),
                       color=styles[name]["color"], **DASHED, drawstyle="steps-mid", gid="other")
        panel.plot(*where_any(middles, shares), **style.marked_here_and_there(styles[name]), drawstyle="steps-mid", gid="method")
        panel.plot(times.mean() / scale, 0.965, color=styles[name]["color"], marker=styles[name].get("marker", "o"),
                   markersize=1.4 * style.page.marker, transform=panel.get_xaxis_transform(), linestyle="none", gid="mean",
                   zorder=6)
        highest[name] = (middles[shares.argmax()], shares.max())
        ends[name] = (middles[-1], shares[-1])
    panel.set_xlim(edges[0], edges[-1])
    # If a threshold makes nearly all iterations equally long, their line may leave the panel: others would look flat.
    shares = [share for _, share in highest.values()]
    top = 1.15 * min(max(shares), 4 * min(shares))
    panel.set_ylim(0, top)
    say_beyond(panel, {name: peak for name, peak in highest.items() if peak[1] > top}, styles)
    panel.set_xlabel(f"time ({unit})")
    panel.set_ylabel("share (%)")
    panel.xaxis.set_major_locator(MaxNLocator(style.page.ticks))
    return ends


def say_beyond(panel, peaks: dict[str, tuple[float, float]], styles) -> None:
    """Writes the peaks of lines that leave the panel: each beside its line, or their range if there are many."""
    look = {"xycoords": panel.get_xaxis_transform(), "textcoords": "offset points", "va": "top", "gid": "beyond",
            "fontsize": 0.85 * style.page.font}
    if len(peaks) > MOST_NUMBERS:
        least, most = (typeset_number(reduce(share for _, share in peaks.values()), 3) for reduce in (min, max))
        panel.annotate(f"beyond: up to {f'{least} to ' * (least != most)}{most} %", (panel.get_xlim()[1], 0.9), xytext=(-2, 0),
                       ha="right", **look)
        return
    for name, (x, share) in peaks.items():
        panel.annotate(f"{typeset_number(share, 3)} %", (x, 0.9), xytext=(0.9 * style.page.marker, 0),
                       color=styles[name]["color"], **look)


def where_any(middles: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The intervals, with at most one empty interval at each end, because lines along zero would hide each other."""
    some = np.flatnonzero(shares)
    shown = slice(max(0, some[0] - 1), some[-1] + 2) if len(some) else slice(None)
    return middles[shown], shares[shown]
