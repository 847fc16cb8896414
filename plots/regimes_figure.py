"""Several experiments, or the points of one that no number tells apart (variants, data sets), side by side: accuracy or
loss of each; without a model the time that runs take where claims are about that, else the period where a method changes
it, or the speed."""

import re
from collections import Counter

from plots import page, style
from plots.bars_figure import HATCHES, draw_interval
from plots.comparison import Comparison, in_common, subtitle
from plots.curves import method_curve
from plots.curves_figure import ROWS, draw_panel, limit_values, mark_beyond, mark_target, reached, target_of
from plots.horizontal import HORIZONTALS, present
from plots.intervals import mean_and_half
from plots.published import Published
from plots.quantities import END_TIME, SPEED, STEP_TIME, Quantity
from plots.rounds_figure import EVERY_STEP, changes_period, draw_periods, has_periods
from plots.sheet import Place, Sheet, shared_out
from plots.times_figure import has_accounts, times_figure, titles_of
from plots.variation import in_words

FEWEST = 3  # evaluations: from the first model's to the last one's a line says nothing
ACROSS = 3  # panels side by side on a screen


def regimes_figure(comparisons: list[Comparison], looks: dict[str, dict], heading: str, axes: tuple[str, ...],
                   claims: list[dict] = (), published: list[Published] = ()):
    """`looks`: by label, of all methods of all comparisons. A row of panels for each axis; None where no comparison has
    anything to show. `claims`: of their experiments; `published`: what papers say."""
    row = next((row for row in ROWS if any(method_curve(method, "step", row.column)
                                           for comparison in comparisons for method in comparison.methods)), None)
    if row:
        return curve_panels(comparisons, looks, heading, axes, row)
    measures = Counter(claim["measure"] for claim in claims)
    if END_TIME.measure in measures and has_accounts(comparisons):
        titles = titles_of(comparisons, [name_of(one, comparisons) for one in comparisons])
        return times_figure(titles, looks, heading, means_described(comparisons), published)
    if any(changes_period(method) for comparison in comparisons for method in comparison.methods):
        return period_panels(comparisons, looks, heading)
    about_steps = 2 * measures[STEP_TIME.measure] > measures.total()
    return speed_panels(comparisons, looks, heading, STEP_TIME if about_steps else SPEED)


def means_described(comparisons: list[Comparison]) -> str:
    """Of bars."""
    return described(comparisons).replace("line: ", "").replace("band: lowest to highest", "its 95 % interval")


def curve_panels(comparisons: list[Comparison], looks, heading: str, axes: tuple[str, ...], row):
    names = dict.fromkeys(method.label for comparison in comparisons for method in comparison.methods)
    cells = []
    for axis in axes:
        for comparison in comparisons:
            if along := present(comparison.methods, (axis,)):
                cells.append((comparison, along[0]))
    cells = [(comparison, along, lines) for comparison, along in cells
             if (lines := {method.label: curve for method in comparison.methods
                           if (curve := method_curve(method, along.column, row.column))})]
    if not any(len(curve.x) >= FEWEST for _, _, lines in cells for curve in lines.values()):
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
        draw_panel(panel, lines, looks, scale, label)
        if target is not None:
            panel.axhline(target, color=style.FAINT, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
            places = {method.label: x for method in comparison.methods
                      if (x := reached([method], along).get(method.name)) is not None}
            dots |= mark_target(panel, places, looks, target, scale)
        sheet.entitle(panel, name_of(comparison, comparisons))
        panel.set_ylabel(f"{row.label} (%)" if row.percent else row.label)
        if any(line[-1][0] is comparison and line[-1][1] is along for line in rows):
            ends = {label: (curve.x[-1] / scale, curve.mean[-1]) for label, curve in lines.items()}
            sheet.name_lines(panel, ends, looks)
    if dots:
        sheet.subtitle += "  ·  on the target's line: first evaluation at target"
    return sheet.finish()


def period_panels(comparisons: list[Comparison], looks, heading: str):
    """The period H over the steps, of those that have any."""
    shown = [comparison for comparison in comparisons if any(map(has_periods, comparison.methods))]
    rows = shared_out(shown, ACROSS)
    sheet = Sheet([[Place([*(method.name for method in one.methods), EVERY_STEP], width=3.6, height=2.5) for one in line]
                   for line in rows], heading, first_seed_described(shown))
    for panel, comparison in zip(sheet.panels, shown):
        draw_periods(sheet, panel, comparison.methods, {method.name: looks[method.label] for method in comparison.methods})
        panel.set_ylabel("period H (steps)")
        sheet.entitle(panel, name_of(comparison, comparisons))
    if any(line.get_gid() == "last" for panel in sheet.panels for line in panel.lines):
        sheet.subtitle += ", thin: the last one, cut off"
    return sheet.finish()


def first_seed_described(comparisons: list[Comparison]) -> str:
    """Of periods, which follow the schedule."""
    parts = [part for part in described(comparisons).split("  ·  ") if not part.startswith("line: mean")]
    several = any(len(method.runs) > 1 for one in comparisons for method in one.methods)
    return "  ·  ".join([*parts, "synchronisation period H" + ", first seed" * several])


def speed_panels(comparisons: list[Comparison], looks, heading: str, quantity: Quantity):
    labels = list(dict.fromkeys(method.label for comparison in comparisons for method in comparison.methods))
    high = max(1.3, 0.42 * len(labels) + 0.3)
    rows = shared_out(comparisons, ACROSS)
    sheet = Sheet([[Place(width=3.4, left=style.label_inches(labels) if one is line[0] else 0.1, height=high, is_wide=True) for one in line]
                   for line in rows], heading, means_described(comparisons))
    first = [line[0] for line in rows]
    for panel, comparison in zip(sheet.panels, comparisons):
        for method in comparison.methods:
            row = labels.index(method.label)
            mean, half = mean_and_half([quantity.value(run) for run in method.runs])
            panel.barh(row, mean, height=0.46, color=looks[method.label]["color"], alpha=0.75,
                       hatch=HATCHES[row % len(HATCHES)], edgecolor="white", linewidth=0, gid="mean")
            if half is not None:
                draw_interval(panel, mean, row, half, style.INK)
        style.name_rows(panel, labels, looks)
        panel.tick_params(labelleft=any(comparison is one for one in first) or page.current.is_column)
        panel.set_xlim(left=0)
        panel.xaxis.set_major_formatter(style.SHORT)
        panel.set_xlabel(quantity.title.lower())
        sheet.entitle(panel, name_of(comparison, comparisons))
    return sheet.finish()


def name_of(comparison: Comparison, comparisons: list[Comparison], without: str = "") -> str:
    """What it has otherwise than the others, but for the key `without`."""
    several = len({one.experiment for one in comparisons}) > 1
    point = {key: value for key, value in comparison.point.items() if key != without and key not in in_common(comparisons)}
    parts = [comparison.experiment * several, in_words(point)]
    return ", ".join(part for part in parts if part)


def described(comparisons: list[Comparison], key: str = "") -> str:
    """What all have in common; `key`: what their panels go along."""
    shown = subtitle(comparisons[0], "", [method for comparison in comparisons for method in comparison.methods])
    parts = shown.split("  ·  ")
    if len({one.experiment for one in comparisons}) > 1:
        parts[0] = f"{len(comparisons)} experiments"
    varies = {key, *(key for one in comparisons for key in one.point)}
    shared = {name: value for name, value in in_common(comparisons).items() if name != key}
    common = in_words(shared)
    numbers = {one.runs[0].config.get("cluster", {}).get("workers") for one in comparisons}  # variants may differ in it
    alike = "cluster.workers" not in varies and len(numbers) == 1
    return "  ·  ".join([*(part for part in parts if not re.fullmatch(r"\d+ workers?", part) or alike), *([common] if common else [])])
