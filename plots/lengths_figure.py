"""How well texts of each length are learned: the last models' test loss and accuracy by length."""

import numpy as np
from matplotlib.ticker import PercentFormatter

from plots import page, style
from plots.methods import Method
from plots.sheet import Place, Sheet

PANEL = 5.2  # inches of its width
LENGTHS = "length in tokens, by eighths of the training samples"
TITLES = {"test_loss": "Test loss of the last model", "test_accuracy": "Test accuracy of the last model"}


def lengths_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str):
    """The figure, or None where no run has losses by length. `looks`: by label."""
    styles = {method.name: looks[method.label] for method in methods}
    panels = {quantity: lines for quantity in TITLES if (lines := {method.name: line for method in methods
                                                                   if (line := means_of(method, quantity)) is not None})}
    if not panels:
        return None
    sheet = Sheet([[Place(list(styles) if number == len(panels) - 1 else [], width=PANEL) for number in range(len(panels))]],
                  heading, subtitle.replace(", band: lowest to highest", ""))
    for panel, (quantity, lines) in zip(sheet.panels, panels.items()):
        ends = draw_by_length(panel, lines, styles)
        if quantity == "test_accuracy":
            panel.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
        sheet.entitle(panel, TITLES[quantity])
    sheet.name_lines(panel, ends, styles)
    return sheet.finish()


def draw_by_length(panel, lines: dict, styles: dict[str, dict]) -> dict[str, tuple[float, float]]:
    """Lines of (longest of each eighth, values), eighths at equal distances; returns where they end."""
    ends = {}
    for name, (longest, values) in lines.items():
        places = np.arange(len(longest))
        panel.plot(places, values, **styles[name])
        panel.set_xticks(places, ranges(longest), rotation=45 if page.current.is_column else 0)
        ends[name] = style.last_point(places, values)
    panel.set_xlabel(LENGTHS)
    return ends


def ranges(longest) -> list[str]:
    """Where the first one begins no run says: samples of the test set may be shorter than all that are trained on."""
    others = [(int(length) + 1, int(last)) for length, last in zip(longest[:-1], longest[1:])]
    return [f"≤{int(longest[0])}", *(f"{first}–{last}" if first < last else f"{last}" for first, last in others)]


def told_by_length(method: Method) -> list[dict]:
    """What each of its runs says of lengths, where one does."""
    return [kinds["by_length"] for run in method.runs if "by_length" in (kinds := run.summary.get("samples_kept", {}))]


def means_of(method: Method, quantity: str):
    """(longest, mean over the seeds that have test samples so long); None where no run has any."""
    told = [(kinds["longest"], np.array(kinds[quantity], dtype=float)) for kinds in told_by_length(method)
            if kinds.get(quantity)]
    if not told or not any(np.isfinite(values).any() for _, values in told):
        return None
    values = np.array([of_seed for _, of_seed in told])
    counts = np.isfinite(values).sum(axis=0)
    sums = np.nansum(values, axis=0)
    return np.array(told[0][0]), np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
