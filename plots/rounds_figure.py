"""What steps.csv shows: synchronisation period and drop rate over the run, and how long steps take."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from plots import style
from plots.curves import mean_curve
from plots.methods import Method

HEIGHT, PANEL = 4.9, 4.15  # inches: of the figure, and the width of a panel
EVERY_STEP = "others: 1"
WINDOWS = 40  # a drop rate is that of a window of the run, since single steps drop a handful


def rounds_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str):
    """The figure, or None where no run has steps. `looks`: by label."""
    styles = {method.name: looks[method.label] for method in methods}
    methods = [method for method in methods if any(len(run.steps) for run in method.runs)]
    if not methods:
        return None
    dropping = [method.name for method in methods
                if any((run.steps["dropped_micro_batches"] > 0).any() for run in method.runs)]
    periodic = [method.name for method in methods if has_periods(method)]
    panels = [(draw_durations, [])]  # and the names to its right
    if dropping:
        panels.append((draw_drop_rates, dropping))
    if periodic:
        panels.append((draw_periods, [*periodic, EVERY_STEP]))
    lefts, end = [], style.label_inches(styles)  # inches
    for _, names in panels:
        lefts.append(end)
        end += PANEL + 0.75 + (style.label_inches(names) if names else 0)
    width = end - 0.45
    figure = plt.figure(figsize=(width, HEIGHT))
    for (draw, _), left in zip(panels, lefts):
        draw(figure.add_axes([left / width, 0.13, PANEL / width, 1 - 1.2 / HEIGHT - 0.13]), methods, styles)
    style.title(figure, heading, subtitle)
    return figure


def draw_durations(panel, methods: list[Method], styles) -> None:
    """A line of quantiles per method: thin 5 to 95 %, thick 25 to 75 %, dot 50 %."""
    durations = {}
    for method in methods:
        steps = [run.steps["duration_s"] / run.steps["period_steps"].clip(lower=1) for run in method.runs]
        durations[method.name] = np.quantile(np.concatenate(steps), [0.05, 0.25, 0.5, 0.75, 0.95])
    scale, unit = style.time_unit(max(values[-1] for values in durations.values()) * 3)
    for height, (name, values) in enumerate(durations.items()):
        colour = styles[name]["color"]
        panel.plot(values[[0, 4]] / scale, [height] * 2, color=colour, linewidth=1.6)
        panel.plot(values[[1, 3]] / scale, [height] * 2, color=colour, linewidth=8, solid_capstyle="butt")
        panel.plot(values[2] / scale, height, "o", color="white", markersize=6, markeredgecolor=colour,
                   markeredgewidth=1.8)
    panel.set_yticks(range(len(durations)), durations)
    for tick, name in zip(panel.get_yticklabels(), durations):
        tick.set(color=styles[name]["color"], fontweight="bold")
    panel.set_ylim(len(durations) - 0.4, -0.6)
    panel.set_xlim(left=0)
    panel.grid(axis="y", visible=False)
    panel.tick_params(axis="y", length=0)
    panel.set_xlabel(f"time per optimizer step ({unit})")
    seeds = " of all seeds" if any(len(method.runs) > 1 for method in methods) else ""
    panel.set_title(f"How long a step takes: median, quartiles, 5 to 95 %{seeds}", loc="left", fontsize=10)


def draw_drop_rates(panel, methods: list[Method], styles) -> None:
    ends = {}
    for method in methods:
        xs, ys = zip(*(windowed_drop_rate(run.steps) for run in method.runs))
        curve = mean_curve(list(xs), list(ys))
        if curve is None or not curve.high.any():
            continue  # lines along zero would only hide each other
        panel.plot(curve.x, 100 * curve.mean, **styles[method.name])
        panel.fill_between(curve.x, 100 * curve.low, 100 * curve.high, color=styles[method.name]["color"], alpha=0.16,
                           linewidth=0)
        ends[method.name] = (curve.x[-1], 100 * curve.mean[-1])
    panel.set_ylim(bottom=0)
    panel.set_ylim(top=1.08 * panel.get_ylim()[1])
    step_axis(panel)
    panel.set_title("Dropped micro-batches (%)", loc="left", fontsize=10)
    style.label_lines(panel, ends, styles)


def windowed_drop_rate(steps) -> tuple[np.ndarray, np.ndarray]:
    """Step and drop rate of windows of a run's rows, all of one length; the last may be up to half longer or shorter."""
    length = -(-len(steps) // WINDOWS)
    count = max(1, round(len(steps) / length)) if length else 0
    windows = [np.arange(k * length, len(steps) if k + 1 == count else (k + 1) * length) for k in range(count)]
    kept, dropped = steps["kept_micro_batches"].to_numpy(float), steps["dropped_micro_batches"].to_numpy(float)
    planned = np.array([kept[window].sum() + dropped[window].sum() for window in windows])
    lost = np.array([dropped[window].sum() for window in windows])
    step = np.array([steps["step"].to_numpy(float)[window].mean() for window in windows])
    return step, np.divide(lost, planned, out=np.zeros(len(planned)), where=planned > 0)


def draw_periods(panel, methods: list[Method], styles) -> None:
    """One seed per method: the period follows the schedule, so the seeds agree or nearly so."""
    shown = [method for method in methods if has_periods(method)]
    ends = {}
    for method in shown:
        steps = first_steps(method)
        end = steps["step"].to_numpy(float)
        begin = np.concatenate([[0.0], end[:-1]])
        period = steps["period_steps"].to_numpy(float).clip(min=1)
        panel.plot(np.stack([begin, end], 1).ravel(), np.repeat(period, 2), **styles[method.name])
        ends[method.name] = (end[-1], period[-1])
    if len(shown) < len(methods):  # lines along one would only hide each other
        styles = styles | {EVERY_STEP: {"color": style.FAINT}}
        ends[EVERY_STEP] = (max(x for x, _ in ends.values()), 1)
        panel.plot([0, ends[EVERY_STEP][0]], [1, 1], linewidth=1.2, zorder=1.5, **styles[EVERY_STEP])
    panel.set_yscale("log", base=2)
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.set_ylim(bottom=0.85)
    step_axis(panel)
    seed = ", first seed" if any(len(method.runs) > 1 for method in shown) else ""
    panel.set_title(f"Synchronisation period (optimizer steps){seed}", loc="left", fontsize=10)
    style.label_lines(panel, ends, styles)


def first_steps(method: Method):
    """Of the first seed that has any."""
    return next((run.steps for run in method.runs if len(run.steps)), method.runs[0].steps)


def has_periods(method: Method) -> bool:
    return bool((first_steps(method)["period_steps"] > 1).any())


def step_axis(panel) -> None:
    panel.set_xlim(left=0)
    panel.xaxis.set_major_formatter(style.SHORT)
    panel.xaxis.set_major_locator(MaxNLocator(6))
    panel.set_xlabel("optimizer steps")
