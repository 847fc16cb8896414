"""What the target cost each method: the time until it was reached against the bytes that all had sent by then."""

import numpy as np

from plots.comparison import Comparison
from plots.horizontal import at_target_of
from plots.intervals import mean_and_half
from plots.report.lines import clock_of, shortened
from plots.report.looks import page_look
from plots.report.markup import without_places
from plots.style import byte_unit, time_unit

TIME, BYTES = "time_s", "communicated_bytes"
FEWEST = 2  # methods: one has nothing to stand beside


def costs_of(comparison: Comparison, looks: dict[str, dict]) -> dict | None:
    """What the page's script draws; None where fewer than two methods have reached the target with every seed, or where
    nothing is sent."""
    reached, missed = {}, []
    for method in comparison.methods:
        values = [[at_target_of(run, column) for run in method.runs] for column in (TIME, BYTES)]
        if any(value is None for of_column in values for value in of_column):
            missed.append(method)
        else:
            reached[method.label] = method, [mean_and_half(of_column) for of_column in values]
    most = [max((of_method[place][0] for _, of_method in reached.values()), default=0) for place in range(2)]
    if len(reached) < FEWEST or not all(value > 0 and np.isfinite(value) for value in most):
        return None
    (seconds, unit), (size, size_name) = time_unit(most[0]), byte_unit(most[1])
    return {"across": f"sent by all until then ({size_name})", "upwards": f"{clock_of(comparison)} to the target ({unit})",
            "missed": [without_places(method.name) for method in missed],
            "methods": [{"name": without_places(method.name), "look": page_look(looks[label]),
                         "upwards": scaled(time, seconds), "across": scaled(sent, size)}
                        for label, (method, (time, sent)) in reached.items()]}


def scaled(mean_and_half_width: tuple[float, float | None], divisor: float) -> list[float]:
    """The mean, and half its interval where there is one."""
    return [shortened(value / divisor) for value in mean_and_half_width if value is not None]
