"""What every worker did in the first rounds, as bars that the page draws: where runs have a trace."""

from plots.comparison import Comparison
from plots.report.looks import page_look
from plots.report.markup import without_places
from plots.style import time_unit
from plots.timeline_figure import ACTIVITIES, Panel, window_s
from plots.traces import TRACE, read_trace

MOST_BARS = 4000  # of all methods together: a browser draws so many at once


def timeline_of(comparison: Comparison, looks: dict[str, dict]) -> dict | None:
    """What the page's script draws, of the first seed of each method that has a trace; None where none has."""
    panels = [Panel(method, run, read_trace(run.directory / TRACE)) for method in comparison.methods
              if (run := next((run for run in method.runs if (run.directory / TRACE).exists()), None))]
    if not panels:
        return None
    window = window_s(panels)
    while bars_until(panels, window) > MOST_BARS:
        window *= 0.8
    scale, unit = time_unit(window)
    return {"unit": unit, "window": shortened(window / scale), "activities": list(ACTIVITIES),
            "methods": [panel_data(panel, looks, window, scale) for panel in panels]}


def bars_until(panels: list[Panel], window: float) -> int:
    return sum(len(shown_spans(panel, window)) for panel in panels)


def shown_spans(panel: Panel, window: float):
    spans = panel.trace.spans
    return spans[spans["thread"].isin(panel.rows()) & (spans["begin_s"] < window)]


def panel_data(panel: Panel, looks: dict[str, dict], window: float, scale: float) -> dict:
    rows = panel.rows()
    place = {thread: number for number, thread in enumerate(rows)}
    spans = shown_spans(panel, window)
    activity = {name: number for number, name in enumerate(ACTIVITIES)}
    ends = panel.run.steps["time_s"]
    return {"name": without_places(panel.method.label), "look": page_look(looks[panel.method.label]),
            "rows": [panel.trace.names[thread] for thread in rows], "of": len(panel.trace.names),
            "bars": [[place[thread], activity[name], shortened(begin / scale), shortened((min(end, window) - begin) / scale)]
                     for thread, name, begin, end in spans.itertuples(index=False)],
            "rounds": [shortened(end / scale) for end in ends[ends <= window]],
            "until": shortened(min(panel.trace.until_s, window) / scale), "capped": panel.trace.capped}


def shortened(value: float) -> float:
    return float(f"{value:.5g}")
