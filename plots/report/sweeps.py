"""What depends on a swept number, as the page's script draws it: a line per method along the key."""

import numpy as np

from plots.report.looks import page_look
from plots.report.lines import shortened
from plots.report.markup import without_places
from plots.style import line_styles
from plots.sweep_figure import shown_quantities
from plots.sweep_lines import algorithm_of, along_axis, is_spaced_by_factors, size_text_of, values_of, without_missed
from plots.sweeps import Line, Sweep, find_sweeps
from plots.variation import as_words


def sweeps_of(comparisons: list, looks: dict[str, dict], claims: list[dict]) -> list[dict]:
    """`looks`: by label of a method; along a method's own key its points are one line, which has another label."""
    found = []
    for sweep in find_sweeps(comparisons):
        own = looks if all(line.label in looks for line in sweep.lines) else line_styles(
            {line.label: algorithm_of(line) for line in sweep.lines})
        values = [{"label": quantity.title, "lines": lines} for quantity in shown_quantities(sweep, claims)
                  if (lines := [drawn for line in sweep.lines if (drawn := line_of(sweep, line, quantity, own[line.label]))])]
        if values:
            where = as_words(sweep.others, ", ", " = ")
            label, texts = along_axis(sweep.key, sweep.names)
            found.append({"key": label, "where": f"{label}{', at ' if where else ''}{where}",
                          "spread": is_spaced_by_factors(sweep.xs), "ticks": sweep.xs,
                          "texts": [size_text_of(texts[x]) for x in sweep.xs], "values": values})
    return found


def line_of(sweep: Sweep, line: Line, quantity, look: dict) -> dict | None:
    """None where there is nothing to draw: no value, or a target that some seed never reached."""
    values, _ = without_missed(sweep, line, quantity, values_of(sweep, line, quantity))
    if not values:
        return None
    reduced = [[shortened(float(reduce(of_seeds))) for of_seeds in values.values()] for reduce in (np.mean, np.min, np.max)]
    several = any(len(of_seeds) > 1 for of_seeds in values.values())
    return {"name": without_places(line.label), "look": page_look(look), "x": list(values),
            **dict(zip(("mean", "low", "high"), reduced if several else reduced[:1]))}
