"""Charts on the page: looks of lines, and the numbers that the page's script draws (curves, costs of the target,
sweeps, timelines). Also the accounts of worker-seconds, as a table with bars."""

import numpy as np

from plots import style
from plots.comparison import Comparison, Method, as_words
from plots.curves import Curve, at_target_of, method_curve
from plots.numbers import Quantity, is_plain, mean_and_half, typeset_number
from plots.report import escaped, table_markup, without_places
from plots.style import byte_unit, time_unit
from plots.sweeps import (Line, Sweep, along_axis, find_sweeps, is_spaced_by_factors, looks_of_sweeps, shown_quantities,
                          size_text_of, values_of, without_missed)
from plots.timeline import ACTIVITIES, WORDS, Panel, recorded_panels, seconds_of, share_text, window_s

DARK = {"#000000": "#e8e8e4", "#0072B2": "#4aa3df", "#333333": "#8d949e", "#E2E2E2": "#4a5058",
        "#882255": "#c7609a", "#332288": "#8f83dd", "#8C510A": "#c98b48", "#01665E": "#4fb3a6",
        "#A50026": "#e0566f"}
SYMBOLS = {"o": "circle", "s": "square", "^": "triangle-up", "v": "triangle-down", "D": "diamond", "d": "diamond-tall",
           "P": "cross", "X": "x", "x": "x", "*": "star", "<": "triangle-left", ">": "triangle-right", "p": "pentagon",
           "h": "hexagon"}
WIDTH = 2  # width of a line in pixels

POINTS = 240  # most points of a line
NUMBERS = 450_000  # most numbers on a page, which take about 1.6 MB
FEWEST_POINTS = 16  # every line may have this many points
# Curves are first shown along the first of these axes: the question is how much is learned in a given time.
AXES = [("time_s", "time"), ("communicated_bytes", "bytes"), ("step", "steps"), ("samples", "samples"), ("epoch", "epochs")]
VALUES = [("test_accuracy", "test accuracy", "target_accuracy"), ("test_loss", "test loss", "target_loss"),
          ("train_loss", "training loss", None)]

TIME, BYTES = "time_s", "communicated_bytes"
FEWEST_METHODS = 2  # fewest methods in the chart of costs
MOST_BARS = 4000  # most bars in the timelines of a point; a browser draws this many at once


def dark(colour: str) -> str:
    return DARK.get(colour, colour)


def pixels(linestyle) -> list[float]:
    """The lengths of dashes and gaps; empty for a solid line."""
    named = {"solid": [], "-": [], "dashed": [5, 2], "--": [5, 2], "dotted": [1.5, 1.5], ":": [1.5, 1.5],
             "dashdot": [5, 1.5, 1.5, 1.5], "-.": [5, 1.5, 1.5, 1.5]}
    lengths = named.get(linestyle, []) if isinstance(linestyle, str) else linestyle[1] or []
    return [round(WIDTH * length, 1) for length in lengths]


def page_look(look: dict) -> dict:
    """The look of a method on the page, on light and dark screens. `look`: from style.line_styles."""
    colour = look.get("color", style.INK)
    found = {"light": colour, "dark": dark(colour), "dash": pixels(look.get("linestyle", "solid"))}
    if look.get("marker") in SYMBOLS:
        found["symbol"] = SYMBOLS[look["marker"]]
    return found


def swatch(look: dict) -> str:
    """A piece of a method's line, as markup."""
    shown = page_look(look)
    dashes = f' stroke-dasharray="{" ".join(map(str, shown["dash"]))}"' if shown["dash"] else ""
    return (f'<svg class="swatch" width="26" height="10" aria-hidden="true" style="--light:{shown["light"]};'
            f'--dark:{shown["dark"]}"><line x1="1" y1="5" x2="25" y2="5"{dashes}/></svg>')


def five_digits(value: float) -> float:
    """The value rounded to five digits, because a screen does not show more."""
    return float(f"{value:.5g}")


def shortened(value: float) -> float | int | None:
    """The value rounded to five digits, an int if it is whole; None if it is not finite."""
    if not np.isfinite(value):
        return None
    short = five_digits(value)
    return int(short) if short.is_integer() else short


class Numbers:
    """Lists of numbers. Equal lists are stored once, since many lines have the same points of an axis."""

    def __init__(self):
        self.lists: list[list] = []
        self.places: dict[tuple, int] = {}

    def place(self, values: np.ndarray) -> int:
        """The position of the list with these values, which is added if it is new."""
        rounded = [shortened(float(value)) for value in values]
        place = self.places.setdefault(tuple(rounded), len(self.lists))
        if place == len(self.lists):
            self.lists.append(rounded)
        return place


def list_count(comparisons: list[Comparison]) -> int:
    """The number of lists of numbers that all lines on the page need."""
    return len(AXES) * len(VALUES) * sum(4 if len(method.runs) > 1 else 2
                                         for comparison in comparisons for method in comparison.methods)


def points_per_line(lists: int) -> int:
    """The number of points that each line may have so that the page stays small. `lists`: their number on the page."""
    return int(np.clip(NUMBERS // max(1, lists), FEWEST_POINTS, POINTS))


def kept_points(values: np.ndarray, most: int) -> np.ndarray:
    """Positions of at most `most` (at least 4) points to show: both ends, and the lowest and the highest point of
    each of several equal pieces in between, so that no spike is lost."""
    if len(values) <= most:
        return np.arange(len(values))
    pieces = np.array_split(np.arange(1, len(values) - 1), (most - 2) // 2)
    extremes = [piece[at] for piece in pieces for at in (np.argmin(values[piece]), np.argmax(values[piece]))]
    return np.unique([0, *extremes, len(values) - 1])


def lines_of(comparison: Comparison, looks: dict[str, dict], numbers: Numbers, most: int) -> dict:
    """The curves of one comparison for the page's script."""
    config = comparison.runs[0].config
    longest = max((run.metrics["time_s"].max() for run in comparison.runs if len(run.metrics)), default=0)
    seconds, unit = time_unit(float(longest) if np.isfinite(longest) else 0)
    targets = config.get("evaluation", {})
    if targets.get("target_of", "test") != "test":
        targets = {}
    clock = clock_of(comparison)
    return {"axes": [{"key": key, "label": f"{clock} ({unit})" if key == "time_s" else label,
                      "short": clock if key == "time_s" else label, "divisor": seconds if key == "time_s" else 1}
                     for key, label in AXES],
            "values": [{"key": key, "label": label, "percent": key.endswith("accuracy"), "rising": key.endswith("accuracy"),
                        **({"target": targets[target]} if target and target in targets else {})}
                       for key, label, target in VALUES if has_values(comparison, key)],
            "methods": [{"name": without_places(method.name), "look": page_look(looks[method.label]), "seeds": len(method.runs),
                         "curves": curves_of(method, numbers, most)} for method in comparison.methods]}


def clock_of(comparison: Comparison) -> str:
    """The name of the clock on which the comparison's runs were timed."""
    clocks = {run.on_wall_clock for run in comparison.runs}
    return {frozenset([False]): "virtual time", frozenset([True]): "wall-clock time"}.get(frozenset(clocks), "time")


def has_values(comparison: Comparison, column: str) -> bool:
    return any(np.isfinite(run.metrics[column].to_numpy(float)).any() for run in comparison.runs)


def curves_of(method: Method, numbers: Numbers, most: int) -> dict[str, list[int]]:
    """By "axis|value": the positions in Numbers of a curve's lists: x, mean and, with several seeds, the lowest and the
    highest value."""
    curves = {}
    for axis, _ in AXES:
        for value, _, _ in VALUES:
            if curve := method_curve(method, axis, value):
                curves[f"{axis}|{value}"] = places(curve, numbers, most, band=len(method.runs) > 1)
    return curves


def places(curve: Curve, numbers: Numbers, most: int, band: bool) -> list[int]:
    kept = kept_points(curve.mean, most)
    return [numbers.place(values[kept]) for values in
            (curve.x, curve.mean, *((curve.low, curve.high) if band else ()))]


def costs_of(comparison: Comparison, looks: dict[str, dict]) -> dict | None:
    """The time to the target and the bytes that all workers had sent by then, for the page's script. None if fewer than
    two methods reached the target with every seed, or if nothing was sent."""
    reached, missed = {}, []
    for method in comparison.methods:
        values = [[at_target_of(run, column) for run in method.runs] for column in (TIME, BYTES)]
        if any(value is None for of_column in values for value in of_column):
            missed.append(method)
        else:
            reached[method.label] = method, [mean_and_half(of_column) for of_column in values]
    most = [max((of_method[place][0] for _, of_method in reached.values()), default=0) for place in range(2)]
    if len(reached) < FEWEST_METHODS or not all(value > 0 and np.isfinite(value) for value in most):
        return None
    (seconds, unit), (size, size_name) = time_unit(most[0]), byte_unit(most[1])
    return {"across": f"sent by all until then ({size_name})", "upwards": f"{clock_of(comparison)} to the target ({unit})",
            "missed": [without_places(method.name) for method in missed],
            "methods": [{"name": without_places(method.name), "look": page_look(looks[label]),
                         "upwards": scaled(time, seconds), "across": scaled(sent, size)}
                        for label, (method, (time, sent)) in reached.items()]}


def scaled(mean_and_half_width: tuple[float, float | None], divisor: float) -> list[float]:
    """The mean divided by `divisor`, and half of its interval, also divided, if there is one."""
    return [shortened(value / divisor) for value in mean_and_half_width if value is not None]


def sweeps_of(comparisons: list, looks: dict[str, dict], claims: list[dict]) -> list[dict]:
    """A line per method along each swept number, for the page's script. `looks`: by label of a method. Along a method's
    own swept key its points form one line, which has its own label and look."""
    found = []
    for sweep in find_sweeps(comparisons):
        own = looks if all(line.label in looks for line in sweep.lines) else looks_of_sweeps([sweep])
        values = [{"label": quantity.title, "lines": lines} for quantity in shown_quantities(sweep, claims)
                  if (lines := [drawn for line in sweep.lines if (drawn := line_of(sweep, line, quantity, own[line.label]))])]
        if values:
            where = as_words(sweep.others, ", ", " = ")
            label, texts = along_axis(sweep.key, sweep.names)
            found.append({"key": label, "where": f"{label}{', at ' if where else ''}{where}",
                          "spread": is_spaced_by_factors(sweep.xs), "ticks": sweep.xs,
                          "texts": [size_text_of(texts[x]) for x in sweep.xs], "values": values})
    return found


def line_of(sweep: Sweep, line: Line, quantity: Quantity, look: dict) -> dict | None:
    """The line of a method; None if it has no value, or if a seed missed the target at every point."""
    values, _ = without_missed(sweep, line, quantity, values_of(sweep, line, quantity))
    if not values:
        return None
    reduced = [[shortened(float(reduce(of_seeds))) for of_seeds in values.values()] for reduce in (np.mean, np.min, np.max)]
    several = any(len(of_seeds) > 1 for of_seeds in values.values())
    return {"name": without_places(line.label), "look": page_look(look), "x": list(values),
            **dict(zip(("mean", "low", "high"), reduced if several else reduced[:1]))}


def timeline_of(comparison: Comparison, looks: dict[str, dict]) -> dict | None:
    """The first rounds of each method's first seed, for the page's script; None if no run has a trace."""
    panels = recorded_panels(comparison.methods)
    if not panels:
        return None
    window = window_s(panels)
    while bars_until(panels, window) > MOST_BARS:
        window *= 0.8
    scale, unit = time_unit(window)
    return {"unit": unit, "window": five_digits(window / scale), "activities": list(ACTIVITIES),
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
            "bars": [[place[thread], activity[name], five_digits(begin / scale),
                      five_digits((min(end, window) - begin) / scale)]
                     for thread, name, begin, end in spans.itertuples(index=False)],
            "rounds": [five_digits(end / scale) for end in ends[ends <= window]],
            "until": five_digits(min(panel.trace.until_s, window) / scale), "capped": panel.trace.capped}


def accounts_table(comparison: Comparison, swatches: dict[str, str]) -> str:
    """The table of accounts as markup; empty without accounts. `swatches`: a piece of each method's line, by label."""
    seconds = {method.name: (method, found) for method in comparison.methods if (found := seconds_of(method))}
    if not seconds:
        return ""
    longest = max(found["total"] for _, found in seconds.values())
    shown = [name for name in ACTIVITIES if any(found[name] for _, found in seconds.values())]
    heads = "".join(f'<th scope="col"><i class="key {name}"></i>{WORDS[name]} <small>%</small></th>' for name in shown)
    lines = []
    for name, (method, found) in seconds.items():
        pieces = "".join(f'<i class="{activity}" style="width:{100 * found[activity] / longest:.3f}%" '
                         f'title="{WORDS[activity]}: {share_text(found[activity] / found["total"])}"></i>'
                         for activity in shown if found[activity])
        cells = "".join(f'<td data-name="{WORDS[activity]}, %"><i class="key {activity}"></i>'
                        f"{100 * found[activity] / found['total']:.1f}</td>" for activity in shown)
        total = seconds_text(found["total"])
        lines.append(f'<tr><th scope="row">{swatches.get(method.label, "")}{escaped(name)}</th>'
                     f'<td class="bar"><div>{pieces}</div></td>{cells}<td data-name="worker-seconds">{total}</td></tr>')
    return table_markup("Accounts", "accounts", f'<th scope="col">method</th><th scope="col" class="bar"></th>{heads}'
                        '<th scope="col">worker-seconds</th>', "".join(lines))


def seconds_text(seconds: float) -> str:
    decimals = 0 if seconds >= 1000 else 1
    if not is_plain(seconds, decimals):
        return typeset_number(seconds)
    return f"{seconds:,.{decimals}f}".replace(",", "\u202f")


def account_colours() -> str:
    """Style rules for the colours of the activities."""
    def rules(colours: dict[str, str]) -> str:
        return "".join(f".{name}{{background:{colour}}}" for name, colour in colours.items())

    return (rules(ACTIVITIES) + "@media (prefers-color-scheme: dark){"
            + rules({name: dark(colour) for name, colour in ACTIVITIES.items()}) + "}")
