"""Where the worker-seconds of each method went: stacked bars, in seconds and as shares of all."""

from matplotlib.patches import Patch

from plots import page, style
from plots.methods import Method
from plots.report.accounts import WORDS, seconds_of
from plots.sheet import Place, Sheet
from plots.timeline_figure import ACTIVITIES, HATCHES

UNITS = ((3600, "h"), (60, "min"), (1, "s"))


def accounts_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str):
    """The figure, or None where no run has accounts. `looks`: by label."""
    seconds = {method.name: found for method in methods if (found := seconds_of(method))}
    if not seconds:
        return None
    styles = {method.name: looks[method.label] for method in methods if method.name in seconds}
    high = max(1.0, 0.42 * len(seconds) + 0.3)
    shown = [name for name in ACTIVITIES if any(found[name] for found in seconds.values())]
    sheet = Sheet([[Place(width=5.0, left=style.label_inches(seconds), height=high, is_wide=True), Place(width=5.0, left=0.1, height=high)]],
                  heading, subtitle.split("  ·  line: mean")[0])
    longest = max(found["total"] for found in seconds.values())
    scale, unit = next(((size, name) for size, name in UNITS if longest >= 3 * size), UNITS[-1])
    for number, (panel, title) in enumerate(zip(sheet.panels, (f"Time of all workers together ({unit})", "Shares (%)"))):
        for row, found in enumerate(seconds.values()):
            draw_bar(panel, row, found, scale if number == 0 else found["total"] / 100)
        sheet.entitle(panel, title)
        style.name_rows(panel, list(seconds), styles)
        panel.tick_params(labelleft=number == 0 or page.current.is_column)
        panel.set_xlim(0, 1.02 * longest / scale if number == 0 else 100)
        panel.xaxis.set_major_formatter(style.SHORT)
    sheet.entries = [Patch(facecolor=ACTIVITIES[name], hatch=HATCHES.get(name, ""), edgecolor="white", linewidth=0,
                           label=WORDS[name]) for name in shown]
    return sheet.finish()


def draw_bar(panel, row: int, found: dict[str, float], scale: float) -> None:
    left = 0.0
    for activity, colour in ACTIVITIES.items():
        if found[activity]:
            panel.barh(row, found[activity] / scale, left=left, height=0.5, color=colour, hatch=HATCHES.get(activity, ""),
                       edgecolor="white", linewidth=0, gid=activity)
            left += found[activity] / scale
