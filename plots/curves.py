"""Accuracy and loss against steps, samples, time and bytes: means over the seeds with bands."""

from dataclasses import dataclass

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from plots import style
from plots.comparison import Comparison, Method, described, panel_name
from plots.numbers import ACCURACY, LOSS, typeset_number
from plots.sheet import Place, Sheet, crowded, shared_out

# If a few methods are far from the others, a common range would let the others overlap. Up to a share MOST_BEYOND of
# all methods may leave the panel, if the others then cover less than the share CROWDED of the whole range.
CROWDED, MOST_BEYOND = 0.4, 0.25
WIDTH = 3.5  # width of a panel in inches
NARROW = 2.6  # its width if there are three or more beside each other: a page shows them at about 1,000 pixels
LEFT = 0.9  # inches left of the first panel, enough for a loss of four digits
FEWEST_EVALUATIONS = 3  # fewest evaluations of a curve: a straight line from first to last shows nothing
ACROSS = 3  # most panels side by side on a screen
# Samples repeat steps if nearly all methods, at least the share ALIKE, have the same number of samples per step, up to
# the share NEARLY.
ALIKE, NEARLY = 0.8, 0.3
DECADE = 10  # bytes have a logarithmic axis if some method sends so many times as much as another
SHOWN_OF_CURVE = 0.05  # a logarithmic axis begins where this share of some method's curve is passed


@dataclass
class Curve:
    """The mean over seeds, and the lowest and the highest value, at each x. All arrays have the same length."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def common_grid(xs: list[np.ndarray]) -> np.ndarray:
    """Points at which all of these ascending sequences can be interpolated: all their points between the latest
    beginning and the earliest end. So a curve has points and marks only where something was measured. Empty if the
    sequences do not overlap."""
    if all(np.array_equal(x, xs[0]) for x in xs):
        return xs[0]
    begin, end = max(x[0] for x in xs), min(x[-1] for x in xs)
    points = np.unique(np.concatenate(xs))
    return points[(points >= begin) & (points <= end)]


def mean_curve(xs: list[np.ndarray], ys: list[np.ndarray]) -> Curve | None:
    """The curve of several (x, y) sequences, each ascending in x. Leaves out values that are not finite, and sequences
    without finite values, whose runs diverged. None if nothing remains."""
    finite = [np.isfinite(x) & np.isfinite(y) for x, y in zip(xs, ys)]
    pairs = [(x[kept], y[kept]) for x, y, kept in zip(xs, ys, finite) if kept.any()]
    grid = common_grid([x for x, _ in pairs]) if pairs else np.array([])
    if not len(grid):
        return None
    values = np.stack([np.interp(grid, x, y) for x, y in pairs])
    return Curve(grid, values.mean(0), values.min(0), values.max(0))


def method_curve(method: Method, x_column: str, y_column: str) -> Curve | None:
    tables = [run.metrics.sort_values(x_column, kind="stable") for run in method.runs]
    return mean_curve([table[x_column].to_numpy(float) for table in tables],
                      [table[y_column].to_numpy(float) for table in tables])


def shown_range(curves: list[Curve], skip: float = 0.18) -> tuple[float, float]:
    """The range of the curves' values. Ignores the first share `skip` of each curve, because its steep beginning would
    squeeze the rest. Also ignores a few methods far from the others (CROWDED, MOST_BEYOND)."""
    ranges = []
    for curve in curves:
        kept = curve.x >= curve.x[0] + skip * (curve.x[-1] - curve.x[0])
        ranges.append((curve.low[kept].min(), curve.high[kept].max()))
    whole = ends_of(ranges)
    fewest = max(3, int(np.ceil((1 - MOST_BEYOND) * len(ranges))))
    for furthest_last in (sorted(ranges, key=lambda one: -one[0]), sorted(ranges, key=lambda one: one[1])):
        for count in range(len(ranges) - 1, fewest - 1, -1):
            low, high = ends_of(furthest_last[:count])
            if high - low < CROWDED * (whole[1] - whole[0]):
                return low, high
    return whole


def ends_of(ranges: list[tuple[float, float]]) -> tuple[float, float]:
    return min(low for low, _ in ranges), max(high for _, high in ranges)


@dataclass(frozen=True)
class Horizontal:
    column: str  # a column of metrics.csv
    label: str

    def scale(self, longest: float) -> tuple[float, str]:
        """The divisor and the label of an axis whose largest value is `longest`."""
        unit = {"time_s": style.time_unit, "communicated_bytes": style.byte_unit}.get(self.column)
        if unit is None:
            return 1, self.label
        size, name = unit(longest)
        return size, f"{self.label} ({name})"


HORIZONTALS = {"steps": Horizontal("step", "optimizer steps"), "samples": Horizontal("samples", "samples in the model"),
               "time": Horizontal("time_s", "time"), "bytes": Horizontal("communicated_bytes", "data sent in total")}


@dataclass
class Row:
    """The column of METRICS that a row of panels shows."""

    column: str
    label: str
    target_key: str
    rising: bool
    percent: bool
    measure: str  # the measure of the last model, named as in claims


ROWS = [Row("test_accuracy", "test accuracy", "target_accuracy", rising=True, percent=True, measure=ACCURACY.measure),
        Row("test_loss", "test loss", "target_loss", rising=False, percent=False, measure=LOSS.measure)]


def curves_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str,
                  axes: tuple[str, ...] | None = None, measures: tuple[str, ...] = ()):
    """The figure; None if no method has an evaluated model. `looks`: by label; `axes`: names in HORIZONTALS; None: all
    that do not repeat each other, in the order of best_order(); `measures`: those of the rows to draw; empty: all."""
    styles = {method.name: looks[method.label] for method in methods}
    horizontals = present(methods, axes or tuple(HORIZONTALS))
    if axes is None:
        horizontals = best_order(methods, without_repetition(methods, horizontals))
    rows = []
    for row in ROWS:
        if measures and row.measure not in measures:
            continue
        curves = [{method.name: curve for method in methods if (curve := method_curve(method, along.column, row.column))}
                  for along in horizontals]
        if curves and curves[0]:
            rows.append((row, curves))
    if not rows:
        return None
    width = WIDTH if len(horizontals) < ACROSS else NARROW
    last = [Place(list(styles), width=width, left=0.1)]
    first, between = Place(width=width, left=LEFT), [Place(width=width, left=0.1) for _ in horizontals[2:]]
    alone = [Place(list(styles), width=1.6 * WIDTH, left=LEFT)]
    sheet = Sheet([[first, *between, *last] if len(horizontals) > 1 else alone for _ in rows], heading, subtitle,
                  entitled=False)
    panels, dots = iter(sheet.panels), False
    for row, curves in rows:
        line = [next(panels) for _ in horizontals]
        target = target_of(methods, row)
        limit_values(line, curves, row, target)
        for panel, along, lines in zip(line, horizontals, curves):
            longest = max((curve.x[-1] for curve in lines.values()), default=0)
            scale, label = along.scale(longest)
            mark_beyond(panel, lines, styles, scale, row.percent)
            draw_curves(panel, lines, styles, scale, label if row is rows[-1][0] or style.page.is_column else "",
                        spans_decades(along, lines))
            if target is not None:
                panel.axhline(target, color=style.FAINT, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
                dots |= mark_target(panel, reached(methods, along), styles, target, scale)
            begins = panel is line[0] or style.page.is_column
            panel.tick_params(labelleft=begins)
            panel.set_ylabel((f"{row.label} (%)" if row.percent else row.label) if begins else "")
            if panel is line[-1]:
                sheet.name_lines(panel, {name: (curve.x[-1] / scale, curve.mean[-1]) for name, curve in lines.items()}, styles)
    if dots:
        several = any(len(method.runs) > 1 for method in methods)
        sheet.subtitle += "  ·  marks on the target's line: first evaluation at target" + (", mean of seeds" if several else "")
    return sheet.finish()


def curve_panels(comparisons: list[Comparison], looks: dict[str, dict], heading: str, axes: tuple[str, ...], row: Row):
    """Curves of several comparisons side by side, with a row of panels for each of the axes. None if there are no
    lines."""
    names = dict.fromkeys(method.label for comparison in comparisons for method in comparison.methods)
    cells = []
    for axis in axes:
        for comparison in comparisons:
            if along := present(comparison.methods, (axis,)):
                cells.append((comparison, along[0]))
    cells = [(comparison, along, lines) for comparison, along in cells
             if (lines := {method.label: curve for method in comparison.methods
                           if (curve := method_curve(method, along.column, row.column))})]
    if not any(len(curve.x) >= FEWEST_EVALUATIONS for _, _, lines in cells for curve in lines.values()):
        return None
    groups = [[cell for cell in cells if cell[1] is HORIZONTALS[axis]] for axis in axes]
    rows = [line for group in groups for line in shared_out(group, ACROSS)]
    sheet = Sheet([[Place(list(names) if cell is line[-1] else [], width=3.9, height=2.7) for cell in line] for line in rows],
                  heading, described(comparisons))
    dots = False
    for panel, (comparison, along, lines) in zip(sheet.panels, [cell for line in rows for cell in line]):
        target = target_of(comparison.methods, row)
        limit_values([panel], [lines], row, target)
        scale, label = along.scale(max(curve.x[-1] for curve in lines.values()))
        mark_beyond(panel, lines, looks, scale, row.percent)
        draw_curves(panel, lines, looks, scale, label, spans_decades(along, lines))
        if target is not None:
            panel.axhline(target, color=style.FAINT, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
            places = {method.label: x for method in comparison.methods
                      if (x := reached([method], along).get(method.name)) is not None}
            dots |= mark_target(panel, places, looks, target, scale)
        sheet.entitle(panel, panel_name(comparison, comparisons))
        panel.set_ylabel(f"{row.label} (%)" if row.percent else row.label)
        if any(line[-1][0] is comparison and line[-1][1] is along for line in rows):
            ends = {label: (curve.x[-1] / scale, curve.mean[-1]) for label, curve in lines.items()}
            sheet.name_lines(panel, ends, looks)
    if dots:
        sheet.subtitle += "  ·  marks on the target's line: first evaluation at target"
    return sheet.finish()


def present(methods: list[Method], names: tuple[str, ...]) -> list[Horizontal]:
    """The axes with these names, except axes along which all values are 0, such as the bytes of a single worker."""
    return [HORIZONTALS[name] for name in names
            if any((run.metrics[HORIZONTALS[name].column] > 0).any() for method in methods for run in method.runs)
            or name == "steps"]


def without_repetition(methods: list[Method], horizontals: list[Horizontal]) -> list[Horizontal]:
    """The axes, without that of samples if it shows the same as that of steps."""
    steps, samples = HORIZONTALS["steps"], HORIZONTALS["samples"]
    per_step = [last_value(method, samples) / last for method in methods if (last := last_value(method, steps)) > 0]
    alike = [value for value in per_step if abs(value - np.median(per_step)) <= NEARLY * np.median(per_step)]
    repeats = steps in horizontals and len(alike) >= ALIKE * len(per_step)
    return [along for along in horizontals if along is not samples or not repeats]


def best_order(methods: list[Method], horizontals: list[Horizontal]) -> list[Horizontal]:
    """The axes. The last one is that along which the lines end closest to each other: its panel has their names."""
    def together(along: Horizontal) -> float:
        ends = [last_value(method, along) for method in methods]
        return float(np.mean(ends)) / max(max(ends), 1e-300)

    last = max(horizontals, key=together)
    return [*(along for along in horizontals if along is not last), last]


def last_value(method: Method, along: Horizontal) -> float:
    """The largest value that a run of the method has along the axis."""
    return max((float(run.metrics[along.column].max()) for run in method.runs if len(run.metrics)), default=0.0)


def spans_decades(along: Horizontal, lines: dict[str, Curve]) -> bool:
    """Whether the axis should be logarithmic: only that of bytes, which may differ between methods by powers of ten."""
    ends = [curve.x[-1] for curve in lines.values()]
    return along is HORIZONTALS["bytes"] and min(ends) > 0 and max(ends) >= DECADE * min(ends)


def at_target(method: Method, column: str) -> float | None:
    """The mean over seeds of a column of METRICS at the first evaluation that meets the target, as in the table of
    results. None if a seed never met it, because the mean is then unknown."""
    reached = [at_target_of(run, column) for run in method.runs]
    return None if None in reached else float(np.mean(reached))


def at_target_of(run, column: str) -> float | None:
    target = run.summary.get("time_to_target") or {}
    if column in target or target.get("step") is None:
        return target.get(column)
    there = run.metrics.loc[run.metrics["step"] == target["step"], column]
    return float(there.iloc[0]) if len(there) else None


def target_of(methods: list[Method], row: Row) -> float | None:
    """The target for the row's value on the test set; None if there is none."""
    evaluation = methods[0].runs[0].config.get("evaluation", {})
    return evaluation.get(row.target_key) if evaluation.get("target_of", "test") == "test" else None


def reached(methods: list[Method], along: Horizontal) -> dict[str, float]:
    return {method.name: mean for method in methods if (mean := at_target(method, along.column)) is not None}


def draw_curves(panel, lines: dict[str, Curve], styles, scale: float, label: str, logarithmic: bool = False) -> None:
    faint = 0.16 * min(1, 6 / max(1, len(lines)))  # many bands would hide the lines
    longest = max((curve.x[-1] for curve in lines.values()), default=0) / scale
    if logarithmic:
        set_logarithmic_axis(panel, min(beginning(curve) for curve in lines.values()) / scale, longest, label)
    else:
        set_axis(panel, longest, label)
    for name, curve in lines.items():
        shown = curve.x > 0 if logarithmic else curve.x >= 0
        x, mean = curve.x[shown] / scale, curve.mean[shown]
        panel.fill_between(x, curve.low[shown], curve.high[shown], color=styles[name]["color"], alpha=faint, linewidth=0)
        panel.plot(x, mean, **(style.marked_here_and_there(styles[name]) if len(x) > 1 else styles[name]), gid="method")


def beginning(curve: Curve) -> float:
    """Where a logarithmic axis should begin for this curve."""
    return float(max(curve.x[curve.x > 0][0], SHOWN_OF_CURVE * curve.x[-1]))


def set_logarithmic_axis(panel, least: float, most: float, label: str) -> None:
    panel.set_xscale("log")
    panel.set_xlim(0.9 * least, 1.1 * most)
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(style.SHORT)
    powers = range(int(np.floor(np.log10(least))) - 1, int(np.ceil(np.log10(most))) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        ticks = [digit * 10.0**power for power in powers for digit in digits]
        panel.xaxis.set_major_locator(FixedLocator([tick for tick in ticks if 0.9 * least <= tick <= 1.1 * most]))
        if not crowded(panel):
            break
    panel.set_xlabel(f"{label}, logarithmic" if label else "")


def set_axis(panel, longest: float, label: str) -> None:
    """Lets the horizontal axis begin at 0."""
    panel.set_xlim(0, 1.02 * longest or 1)
    panel.xaxis.set_major_formatter(style.SHORT)
    panel.xaxis.set_major_locator(MaxNLocator(style.page.ticks - 1))
    panel.set_xlabel(label)


def mark_beyond(panel, lines: dict[str, Curve], styles, scale: float, percent: bool) -> None:
    """Writes the last values of lines that leave the panel at the panel's edge."""
    low, high = sorted(panel.get_ylim())
    for name, curve in lines.items():
        end = curve.mean[-1]
        if low <= end <= high:
            continue
        panel.annotate(f"{typeset_number(100 * end if percent else end, 3)}{' %' * percent} {'↓' if end < low else '↑'}",
                       (curve.x[-1] / scale, 0.03 if end < low else 0.97), xycoords=panel.get_xaxis_transform(), ha="right",
                       va="bottom" if end < low else "top", fontsize="small", color=styles[name]["color"], gid="beyond",
                       fontweight="bold")


def mark_target(panel, places: dict[str, float], styles, target: float, scale: float) -> bool:
    """Draws a hollow marker per method, on the target's line; returns whether there are any."""
    begin, end = panel.get_xlim()
    panel.set_xlim(begin, max([end, *(1.02 * x / scale for x in places.values())]))
    for name, x in places.items():
        panel.plot(x / scale, target, styles[name].get("marker", "o"), color="none", markersize=1.5 * style.page.marker,
                   markeredgecolor=styles[name]["color"], markeredgewidth=1.5, zorder=5, gid="target")
    return bool(places)


def limit_values(line, curves: list[dict[str, Curve]], row: Row, target: float | None) -> None:
    """Gives the panels of a row the same range of values, which ignores the lines' beginnings."""
    low, high = shown_range([curve for lines in curves for curve in lines.values()])
    if target is not None:
        low, high = min(low, target), max(high, target)
    wide = not row.percent and low > 0 and high / low > 20
    margin = 0.06 * (high - low or abs(high) or 1)
    for panel in line:
        if wide:
            panel.set_yscale("log")
            panel.yaxis.set_major_formatter(style.DECADES)
            panel.yaxis.set_minor_formatter(NullFormatter())
            panel.set_ylim(low / 1.3, high * 1.3)
            continue
        panel.set_ylim(low - margin, high + margin)
        panel.yaxis.set_major_locator(MaxNLocator(style.page.ticks))
        if row.percent:
            panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: typeset_number(100 * value)))
        else:
            panel.yaxis.set_major_formatter(style.SHORT)
    if target is not None:
        text = f"{typeset_number(100 * target)} %" if row.percent else typeset_number(target)
        below = row.rising  # the ends of rising lines leave room there
        line[0].annotate(f"target {text}", (1, target), xycoords=("axes fraction", "data"),
                         xytext=(-2, -3 if below else 3), textcoords="offset points", ha="right",
                         va="top" if below else "bottom", fontsize="small", color="#666666", zorder=7,
                         bbox={"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.8})
