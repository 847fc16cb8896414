"""How long runs take, side by side at several points, and what that time goes into: a stacked bar per method, of the
mean worker, with the paper's figure where a claim has one."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Patch

from plots import page, style
from plots.bars_figure import draw_interval
from plots.comparison import Comparison
from plots.intervals import mean_and_half
from plots.methods import Method
from plots.numbers import FIRST_SCIENTIFIC, LEAST_PLAIN, typeset_number
from plots.published import LOOK, Published
from plots.quantities import END_TIME
from plots.report.accounts import WORDS, seconds_of
from plots.sheet import Place, Sheet, shared_out
from plots.timeline_figure import ACTIVITIES, HATCHES

ACROSS = 2  # panels side by side on a screen
HOURS_FROM_S = 7200
ROW = 0.46  # inches


def has_accounts(comparisons: list[Comparison]) -> bool:
    return all(seconds_of(method) for comparison in comparisons for method in comparison.methods)


def times_figure(titles: dict[str, Comparison], looks: dict[str, dict], heading: str, subtitle: str,
                 published: list[Published] = ()):
    """`titles`: of panels, with what each shows, all of whose methods have accounts; `looks`: by label."""
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
        draw_bars(panel, comparison, labels, scale, unit, [one for one in shown if is_there(one, comparison)])
        style.name_rows(panel, labels, looks)
        panel.tick_params(labelleft=any(comparison is row[0] for row in rows) or page.current.is_column)
        panel.set_xlabel(f"time of the run ({unit})")
        panel.xaxis.set_major_formatter(style.SHORT)
        sheet.entitle(panel, title)
    marks = [line for panel in sheet.panels for line in panel.lines if line.get_gid() == "paper"]
    sheet.entries = legend_of(comparisons, [mark.get_label() for mark in marks])
    return sheet.finish()


def titles_of(comparisons: list[Comparison], names: list[str]) -> dict[str, Comparison]:
    """With the number of steps where it is not the same everywhere, lest runs of a tenth of them look fast."""
    steps = [most_steps(one) for one in comparisons]
    return {f"{name}: {count:,} steps" if len(set(steps)) > 1 else name: one
            for name, count, one in zip(names, steps, comparisons)}


def most_steps(comparison: Comparison) -> int:
    return max(int(run.summary["steps"]) for run in comparison.runs)


def end_of(method: Method) -> float:
    return float(np.mean([END_TIME.value(run) for run in method.runs]))


def is_there(one: Published, comparison: Comparison) -> bool:
    return all(comparison.point.get(key) == value for key, value in one.where.items())


def draw_bars(panel, comparison: Comparison, labels: list[str], scale: float, unit: str,
              published: list[Published]) -> None:
    ends = []
    for method in comparison.methods:
        row, seconds, left = labels.index(method.label), seconds_of(method), 0.0
        mean, half = mean_and_half([END_TIME.value(run) / scale for run in method.runs])
        for activity, colour in ACTIVITIES.items():
            share = seconds[activity] / seconds["total"] * mean  # of the mean worker, who is there to the end
            if share:
                panel.barh(row, share, left=left, height=0.5, color=colour, hatch=HATCHES.get(activity, ""),
                           edgecolor="white", linewidth=0, gid=activity)
                left += share
        if half:
            draw_interval(panel, mean, row, half, style.INK)
        said = [one for one in published if one.method == method.base]
        for one in said:
            panel.plot(one.value / scale, row, color=style.INK, **LOOK, markersize=2 * page.current.marker, gid="paper",
                       label=one.source)
        end = max([mean + (half or 0), *(one.value / scale for one in said)])
        text = f"{three_digits(mean)} {unit}" + "".join(f", paper: {typeset_number(one.value / scale)} {unit}" for one in said)
        panel.annotate(text, (end, row), xytext=(1.6 * page.current.marker, 0), textcoords="offset points", va="center",
                       fontsize="small", gid="value")
        ends.append(end)
    panel.set_xlim(0, (1.6 if page.current.is_column else 1.45) * max(ends))  # with room for the values
    panel.xaxis.set_major_locator(plt.MaxNLocator(page.current.ticks))


def three_digits(value: float) -> str:
    """20.0, not 20: the times beside it have as many."""
    return f"{value:#.3g}".rstrip(".") if LEAST_PLAIN <= value < FIRST_SCIENTIFIC else typeset_number(value, 3)


def legend_of(comparisons: list[Comparison], sources: list[str]) -> list:
    found = [seconds_of(method) for one in comparisons for method in one.methods]
    entries = [Patch(facecolor=ACTIVITIES[name], hatch=HATCHES.get(name, ""), edgecolor="white", linewidth=0,
                     label=WORDS[name]) for name in ACTIVITIES if any(seconds[name] for seconds in found)]
    return entries + [plt.Line2D([], [], color=style.INK, **LOOK, markersize=1.6 * page.current.marker,
                                 label=f"the paper: {source}") for source in dict.fromkeys(sources)]
