"""What `syncopate predict FILE --json` says of a sweep: S_eff and the time per step against the swept number, a line for
each method, its formula as a thin one, the best S_eff of each in a ring. Use: `./dev plot FILE.json`, which writes
FILE.png and FILE.svg beside it."""

from dataclasses import dataclass, field
from pathlib import Path

import matplotlib.pyplot as plt

from plots import page, style
from plots.printable import printable
from plots.quantities import SPEED_UP
from plots.runs import ResultsFault, in_words
from plots.sheet import Place, Sheet
from plots.sweep_lines import THIN, along_axis, ring, scale_axes, trivially_best
from plots.variation import as_label, is_number, value_text

PANELS = {"S_eff": "effective_speedup", "Time per optimizer step (s)": "step_time_s"}


@dataclass
class Line:
    """A method at the values of the key, by simulation and by the formula that assumes least; empty where it has none.
    One whose runs the key does not concern has a single point, at no value."""

    algorithm: str = ""
    method: str = ""  # whose colour it has, whatever else is swept
    simulated: dict[float | None, dict] = field(default_factory=dict)
    formula: dict[float | None, dict] = field(default_factory=dict)

    def values(self, quantity: str, by: str) -> dict[float | None, float]:
        there = {x: point.get(quantity) for x, point in getattr(self, by).items()}
        return {x: there[x] for x in sorted(there, key=lambda x: (x is not None, x or 0)) if there[x] is not None}


def read_lines(report: dict, path: Path) -> tuple[str, dict[str, Line]]:
    """The swept number with the most values, and the lines by their names, which hold whatever else is swept."""
    try:
        points = [({key: value for key, value in one["sweep"]}, one) for one in report["predictions"]]
        keys = {key: {sweep[key] for sweep, _ in points if key in sweep} for sweep, _ in points for key in sweep}
        numeric = [key for key in keys if len(keys[key]) > 1 and all(map(is_number, keys[key]))]
        if not numeric:
            raise ResultsFault(f"{path}: no number is swept in these predictions; expected an experiment with [sweep] "
                               "over at least two values of a number")
        along = max(numeric, key=lambda key: len(keys[key]))
        lines = {}
        for sweep, one in points:
            others = {key: value for key, value in sweep.items() if key != along}
            line = lines.setdefault(as_label(printable(one["method"]), others),
                                    Line(str(one.get("algorithm") or ""), printable(one["method"])))
            x = float(sweep[along]) if along in sweep else None
            if one["simulated"]:
                line.simulated[x] = numbers_of(one["simulated"])
            if one["formulas"]:
                line.formula[x] = numbers_of(one["formulas"][-1])
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise ResultsFault(f"{path}: {in_words(fault)}; expected what `syncopate predict FILE --json` prints") from None
    lines = {name: line for name, line in lines.items() if line.simulated or line.formula}
    if not lines:
        raise ResultsFault(f"{path}: none of its methods has a prediction; nothing can be drawn")
    return along, lines


def numbers_of(said: dict) -> dict[str, float | None]:
    return {quantity: None if said[quantity] is None else float(said[quantity]) for quantity in PANELS.values()}


def predictions_figure(report: dict, path: Path):
    along, lines = read_lines(report, path)
    looks = looks_of_lines(lines)
    thin = {"linestyle": THIN[0], "linewidth": 0.58 * page.current.line}
    against = list(dict.fromkeys(one["against"] for one in report["predictions"] if one.get("against")))
    sheet = Sheet([[Place(), Place(list(lines))]], f"Predictions for {printable(str(report['experiment']))}",
                  printable("S_eff against " + (against[0] if len(against) == 1 else "the method that the table names")))
    xs = sorted({x for line in lines.values() for x in (*line.simulated, *line.formula) if x is not None})
    for panel, (title, quantity) in zip(sheet.panels, PANELS.items()):
        drawn, ends = [], {}
        for name, line in lines.items():
            by_simulation, by_formula = line.values(quantity, "simulated"), line.values(quantity, "formula")
            draw(panel, by_formula, xs, {"color": looks[name]["color"], **thin, "gid": "formula"})
            draw(panel, by_simulation, xs, {**looks[name], "gid": "simulation"})
            whole = by_simulation or by_formula
            if not whole:
                continue
            drawn += [*by_simulation.values(), *by_formula.values()]
            last = list(whole)[-1]
            ends[name] = (xs[-1] if last is None else last, whole[last])
            if quantity == "effective_speedup" and None not in whole and not trivially_best(along, SPEED_UP):
                ring(panel, whole, SPEED_UP, looks[name])
        if quantity == "effective_speedup":
            panel.axhline(1, color=style.FAINT, linewidth=0.8, zorder=0)
        label, texts = along_axis(along, {x: value_text(along, str(x)) for x in xs})
        scale_axes(panel, xs, drawn, texts)
        sheet.entitle(panel, title)
        panel.set_xlabel(label)
    sheet.name_lines(sheet.panels[-1], ends, looks)
    if any(line.formula for line in lines.values()):
        sheet.entries.append(plt.Line2D([], [], color=style.INK, **thin, label="by formula"))
    if any(line.get_gid() == "best" for line in sheet.panels[0].lines):
        sheet.entries.append(plt.Line2D([], [], linestyle="none", marker="o", color="none", markeredgecolor=style.INK,
                                        markeredgewidth=1.2, markersize=1.6 * page.current.marker, label="best point"))
    return sheet.finish()


def looks_of_lines(lines: dict[str, Line]) -> dict[str, dict]:
    """A line and a marker for each, a colour for each method."""
    colours = style.line_styles({line.method: line.algorithm for line in lines.values()})
    looks = style.line_styles({name: line.algorithm for name, line in lines.items()})
    return {name: {**looks[name], "color": colours[lines[name].method]["color"]} for name in lines}


def draw(panel, values: dict[float | None, float], xs: list[float], look: dict) -> None:
    """What the key does not concern is the same everywhere."""
    if None in values:
        panel.plot([xs[0], xs[-1]], [values[None]] * 2, **look)
    elif values:
        panel.plot(list(values), list(values.values()), **look)
