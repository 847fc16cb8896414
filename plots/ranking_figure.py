"""Methods by what they come to in the end, the best above, a panel for each regime: mean over seeds with its 95 % interval."""

from matplotlib.ticker import MaxNLocator

from plots import page, style
from plots.bars_figure import draw_interval, seeds_of
from plots.comparison import Comparison
from plots.intervals import mean_and_half
from plots.methods import Method
from plots.pareto_figure import means
from plots.quantities import ACCURACY, LOSS, Quantity
from plots.regimes_figure import ACROSS, described, name_of
from plots.sheet import Place, Sheet, shared_out

FEWEST = 3  # methods: two are compared by their curves
ROW = 0.27  # inches


def ranking_figure(comparisons: list[Comparison], looks: dict[str, dict], heading: str):
    """None where there are few methods, or none is evaluated. `looks`: by label, of all methods of all comparisons."""
    gain = next((gain for gain in (ACCURACY, LOSS) if all(len(means(one.methods, gain)) >= FEWEST for one in comparisons)), None)
    if gain is None:
        return None
    ranked = [ranking(one.methods, gain) for one in comparisons]
    lines = shared_out(list(zip(comparisons, ranked)), ACROSS)
    sheet = Sheet([[place_of(methods) for _, methods in line] for line in lines], heading,
                  "  ·  ".join(part for part in described(comparisons).split("  ·  ") if not part.startswith(("line: mean", "band:")))
                  + seeds_of([method for methods in ranked for method in methods]))
    for panel, one, methods in zip(sheet.panels, comparisons, ranked):
        draw_rows(panel, methods, gain, {method.name: looks[method.label] for method in methods})
        sheet.entitle(panel, name_of(one, comparisons))
        panel.set_xlabel(gain.title.lower())
    return sheet.finish()


def ranking(methods: list[Method], gain: Quantity) -> list[Method]:
    """Those all of whose seeds were evaluated, the best first."""
    there = means(methods, gain)
    return sorted((method for method in methods if method.name in there), key=lambda method: there[method.name],
                  reverse=gain is ACCURACY)


def place_of(methods: list[Method]) -> Place:
    return Place(width=3.0, left=style.label_inches([method.name for method in methods]), height=ROW * len(methods) + 0.3, is_wide=True)


def draw_rows(panel, methods: list[Method], gain: Quantity, looks: dict[str, dict]) -> None:
    for row, method in enumerate(methods):
        look = looks[method.name]
        mean, half = mean_and_half([gain.value(run) for run in method.runs])
        panel.plot(mean, row, look.get("marker", "o"), color=look["color"], markersize=1.4 * page.current.marker, gid="mean", zorder=4)
        if half is not None:
            draw_interval(panel, mean, row, half, look["color"])
    style.name_rows(panel, [method.name for method in methods], looks)
    panel.xaxis.set_major_formatter(style.SHORT)
    panel.xaxis.set_major_locator(MaxNLocator(page.current.ticks - 2))
