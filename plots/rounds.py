"""What steps.csv shows: synchronisation period and drop rate over the run, and how long steps take."""

import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from plots import page, style
from plots.curves import mean_curve
from plots.methods import Method
from plots.sheet import Place, Sheet
from plots.step_times import step_times

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
    drawn = [(draw_durations, Place(left=style.label_inches(styles), is_wide=True))]
    if dropping:
        drawn.append((draw_drop_rates, Place(dropping)))
    if periodic:
        drawn.append((draw_periods, Place([*periodic, EVERY_STEP])))
    sheet = Sheet([[place for _, place in drawn]], heading, subtitle)
    for panel, (draw, _) in zip(sheet.panels, drawn):
        draw(sheet, panel, methods, styles)
    return sheet.finish()


def draw_durations(sheet: Sheet, panel, methods: list[Method], styles) -> None:
    """A line of quantiles per method: thin 5 to 95 %, thick 25 to 75 %, dot 50 %."""
    durations = {}
    for method in methods:
        durations[method.name] = np.quantile(step_times(method), [0.05, 0.25, 0.5, 0.75, 0.95])
    scale, unit = style.time_unit(max(values[-1] for values in durations.values()) * 3)
    for height, (name, values) in enumerate(durations.items()):
        colour = styles[name]["color"]
        panel.plot(values[[0, 4]] / scale, [height] * 2, color=colour, linewidth=0.85 * page.current.line)
        panel.plot(values[[1, 3]] / scale, [height] * 2, color=colour, linewidth=4.2 * page.current.line, solid_capstyle="butt")
        panel.plot(values[2] / scale, height, "o", color="white", markersize=1.1 * page.current.marker,
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
            continue  # lines along zero would only hide each other
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
    """Step and drop rate of windows of a run's rows, all of one length; the last may be up to half longer or shorter."""
    length = -(-len(steps) // WINDOWS)
    count = max(1, round(len(steps) / length)) if length else 0
    windows = [np.arange(k * length, len(steps) if k + 1 == count else (k + 1) * length) for k in range(count)]
    kept, dropped = steps["kept_micro_batches"].to_numpy(float), steps["dropped_micro_batches"].to_numpy(float)
    planned = np.array([kept[window].sum() + dropped[window].sum() for window in windows])
    lost = np.array([dropped[window].sum() for window in windows])
    step = np.array([steps["step"].to_numpy(float)[window].mean() for window in windows])
    return step, np.divide(lost, planned, out=np.zeros(len(planned)), where=planned > 0)


def draw_periods(sheet: Sheet, panel, methods: list[Method], styles) -> None:
    """One seed per method: the period follows the schedule, so the seeds agree or nearly so. A last round that is shorter
    is thin: as a rule the end of training has cut it off."""
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
            panel.plot(x[whole - 1:], y[whole - 1:], color=styles[method.name]["color"], linewidth=0.4 * page.current.line,
                       linestyle=(0, (1, 2)), gid="last")
        ends[method.name] = (x[:whole][-1], y[:whole][-1])
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
    sheet.entitle(panel, f"Synchronisation period (optimizer steps){seed}")
    sheet.name_lines(panel, ends, styles)


def first_steps(method: Method):
    """Of the first seed that has any."""
    return next((run.steps for run in method.runs if len(run.steps)), method.runs[0].steps)


def changes_period(method: Method) -> bool:
    """Before its last round, which is as long as there are steps left."""
    return len(first_steps(method)["period_steps"].iloc[:-1].unique()) > 1


def has_periods(method: Method) -> bool:
    return bool((first_steps(method)["period_steps"] > 1).any())


def step_axis(panel) -> None:
    panel.set_xlim(left=0)
    panel.xaxis.set_major_formatter(style.SHORT)
    panel.xaxis.set_major_locator(MaxNLocator(page.current.ticks - 1))
    panel.set_xlabel("optimizer steps")
