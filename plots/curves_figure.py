"""Accuracy and loss against steps, samples, time and bytes."""

from dataclasses import dataclass

from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from plots import page, style
from plots.curves import Curve, method_curve, shown_range
from plots.horizontal import HORIZONTALS, Horizontal, at_target, present, set_axis
from plots.methods import Method
from plots.numbers import typeset_number
from plots.sheet import Place, Sheet


@dataclass
class Row:
    """What one row of panels shows."""

    column: str
    label: str
    target_key: str
    rising: bool
    percent: bool


ROWS = [Row("test_accuracy", "test accuracy", "target_accuracy", rising=True, percent=True),
        Row("test_loss", "test loss", "target_loss", rising=False, percent=False)]
WIDTH = 3.5  # inches of a panel
LEFT = 0.9  # of the first: losses may have four digits


def curves_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str,
                  axes: tuple[str, ...] = tuple(HORIZONTALS)):
    """The figure, or None where no method has an evaluation with a model (time-only runs). `looks`: by label."""
    styles = {method.name: looks[method.label] for method in methods}
    horizontals = present(methods, axes)
    rows = []
    for row in ROWS:
        curves = [{method.name: curve for method in methods if (curve := method_curve(method, along.column, row.column))}
                  for along in horizontals]
        if curves and curves[0]:
            rows.append((row, curves))
    if not rows:
        return None
    last = [Place(list(styles), width=WIDTH, left=0.1)]
    first, between = Place(width=WIDTH, left=LEFT), [Place(width=WIDTH, left=0.1) for _ in horizontals[2:]]
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
            draw_panel(panel, lines, styles, scale, label if row is rows[-1][0] or page.current.is_column else "")
            if target is not None:
                panel.axhline(target, color=style.FAINT, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
                dots |= mark_target(panel, reached(methods, along), styles, target, scale)
            begins = panel is line[0] or page.current.is_column
            panel.tick_params(labelleft=begins)
            panel.set_ylabel((f"{row.label} (%)" if row.percent else row.label) if begins else "")
            if panel is line[-1]:
                sheet.name_lines(panel, {name: (curve.x[-1] / scale, curve.mean[-1]) for name, curve in lines.items()}, styles)
    if dots:
        several = any(len(method.runs) > 1 for method in methods)
        sheet.subtitle += "  ·  on the target's line: first evaluation at target" + (", mean of seeds" if several else "")
    return sheet.finish()


def target_of(methods: list[Method], row: Row) -> float | None:
    """Of the test set."""
    evaluation = methods[0].runs[0].config.get("evaluation", {})
    return evaluation.get(row.target_key) if evaluation.get("target_of", "test") == "test" else None


def reached(methods: list[Method], along: Horizontal) -> dict[str, float]:
    return {method.name: mean for method in methods if (mean := at_target(method, along.column)) is not None}


def draw_panel(panel, lines: dict[str, Curve], styles, scale: float, label: str) -> None:
    faint = 0.16 * min(1, 6 / max(1, len(lines)))  # many bands on each other would hide the lines
    for name, curve in lines.items():
        x = curve.x / scale
        panel.fill_between(x, curve.low, curve.high, color=styles[name]["color"], alpha=faint, linewidth=0)
        panel.plot(x, curve.mean, **(style.marked_here_and_there(styles[name]) if len(x) > 1 else styles[name]), gid="method")
    set_axis(panel, max((curve.x[-1] for curve in lines.values()), default=0) / scale, label)


def mark_beyond(panel, lines: dict[str, Curve], styles, scale: float, percent: bool) -> None:
    """Where lines end outside of the panel: how far, at its edge."""
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
    """A hollow marker per method on the line of the target, so that none hides another. Says if there are any."""
    end = panel.get_xlim()[1]
    panel.set_xlim(0, max([end, *(1.02 * x / scale for x in places.values())]))
    for name, x in places.items():
        panel.plot(x / scale, target, styles[name].get("marker", "o"), color="none", markersize=1.5 * page.current.marker,
                   markeredgecolor=styles[name]["color"], markeredgewidth=1.5, zorder=5, gid="target")
    return bool(places)


def limit_values(line, curves: list[dict[str, Curve]], row: Row, target: float | None) -> None:
    """One range of values for the panels of a row, from what the lines do after their beginning."""
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
        panel.yaxis.set_major_locator(MaxNLocator(page.current.ticks))
        if row.percent:
            panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: typeset_number(100 * value)))
        else:
            panel.yaxis.set_major_formatter(style.SHORT)
    if target is not None:
        text = f"{typeset_number(100 * target)} %" if row.percent else typeset_number(target)
        below = row.rising  # where the lines, at their ends, have left room
        line[0].annotate(f"target {text}", (1, target), xycoords=("axes fraction", "data"),
                         xytext=(-2, -3 if below else 3), textcoords="offset points", ha="right",
                         va="top" if below else "bottom", fontsize="small", color="#666666", zorder=7,
                         bbox={"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.8})
