"""Figures of the JSON output of two commands: the predictions of `syncopate predict FILE --json`, and the thresholds of
`syncopate thresholds --json`. `./dev plot FILE.json` writes FILE.png and FILE.svg beside the file."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from plots import style
from plots.comparison import as_label, is_number, value_text
from plots.numbers import SPEED_UP, typeset, typeset_number, with_decimals
from plots.runs import ResultsFault, in_words
from plots.sheet import Place, Sheet, save
from plots.sweeps import THIN, along_axis, ring, scale_axes, trivially_best
from plots.terminal import printable

PANELS = {"S_eff": "effective_speedup", "Time per optimizer step (s)": "step_time_s"}
LOOKS = {"S_eff": {"color": "#D55E00", "marker": "o"}, "S_eff by Eq. 6": {"color": "#D55E00", "linestyle": style.DASHES[2]},
         "steps' speed-up": {"color": "#0072B2", "linestyle": style.DASHES[1], "marker": "^"},
         "kept": {"color": "#009E73", "linestyle": style.DASHES[3], "marker": "s"}}


def write_json_figure(path: Path, formats: tuple[str, ...] = ("png", "svg"), on: str = "screen") -> list[Path]:
    """Writes the figure beside the file. `on`: a key of style.PAGES. Raises ResultsFault, OSError."""
    style.use_page(on)
    report = read_json(path)
    is_prediction = isinstance(report, dict) and "predictions" in report
    figure = predictions_figure(report, path) if is_prediction else thresholds_figure(checked_thresholds(report, path))
    return save(figure, path.parent, path.stem, formats)


def read_json(path: Path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as fault:
        raise ResultsFault(f"{path}: {in_words(fault)}; expected the output of `syncopate thresholds SOURCE --json "
                           f"{path}` or `syncopate predict FILE --json`") from None


@dataclass
class Line:
    """The predictions for a method at the values of the swept key, by simulation and by the formula with the fewest
    assumptions. If the key does not apply to the method, each dictionary has a single prediction, with the key None."""

    algorithm: str = ""
    method: str = ""  # decides the colour
    simulated: dict[float | None, dict] = field(default_factory=dict)
    formula: dict[float | None, dict] = field(default_factory=dict)

    def values(self, quantity: str, by: str) -> dict[float | None, float]:
        there = {x: point.get(quantity) for x, point in getattr(self, by).items()}
        return {x: there[x] for x in sorted(there, key=lambda x: (x is not None, x or 0)) if there[x] is not None}


def read_lines(report: dict, path: Path) -> tuple[str, dict[str, Line]]:
    """The swept key with the most values, and the lines by name. Values of other swept keys are part of the name.
    Raises ResultsFault."""
    try:
        points = [({key: value for key, value in one["sweep"]}, one) for one in report["predictions"]]
        keys = {key: {sweep[key] for sweep, _ in points if key in sweep} for sweep, _ in points for key in sweep}
        numeric = [key for key in keys if len(keys[key]) > 1 and all(map(is_number, keys[key]))]
        if not numeric:
            raise ResultsFault(f"{path}: no number is swept in these predictions; expected an experiment whose [sweep] has "
                               "at least two values of a number")
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
        raise ResultsFault(f"{path}: {in_words(fault)}; expected the output of `syncopate predict FILE --json`") from None
    lines = {name: line for name, line in lines.items() if line.simulated or line.formula}
    if not lines:
        raise ResultsFault(f"{path}: none of its methods has a prediction; nothing can be drawn")
    return along, lines


def numbers_of(prediction: dict) -> dict[str, float | None]:
    return {quantity: None if prediction[quantity] is None else float(prediction[quantity]) for quantity in PANELS.values()}


def predictions_figure(report: dict, path: Path):
    """S_eff and the time per step against the swept number: a line per method, a thin line for its formula, and a ring
    around the best S_eff. `report`: the content of the file; `path`: the file, for messages. Raises ResultsFault."""
    along, lines = read_lines(report, path)
    looks = looks_of_lines(lines)
    thin = {"linestyle": THIN[0], "linewidth": 0.58 * style.page.line}
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
                                        markeredgewidth=1.2, markersize=1.6 * style.page.marker, label="best point"))
    return sheet.finish()


def looks_of_lines(lines: dict[str, Line]) -> dict[str, dict]:
    """Each line has its own dashes and marker. All lines of a method have the method's colour."""
    colours = style.line_styles({line.method: line.algorithm for line in lines.values()})
    looks = style.line_styles({name: line.algorithm for name, line in lines.items()})
    return {name: {**looks[name], "color": colours[lines[name].method]["color"]} for name in lines}


def draw(panel, values: dict[float | None, float], xs: list[float], look: dict) -> None:
    """Draws a line. A value with the key None is drawn as a constant over all xs."""
    if None in values:
        panel.plot([xs[0], xs[-1]], [values[None]] * 2, **look)
    elif values:
        panel.plot(list(values), list(values.values()), **look)


def checked_thresholds(report: dict, path: Path) -> dict:
    """Returns the report if it contains all that the figure needs. Raises ResultsFault if it does not."""
    try:
        for way in ("throughput", "s-eff"):
            for effect in report["by"][way]["thresholds"]:
                float(effect["threshold_s"] + effect["drop_rate"] + effect["time_saved"] + effect["effective_speedup"])
        report["source"], report["workers"], report["steps"], report["micro_batches"], float(report["serial_s"])
        report["by"]["throughput"]["best"]
    except (ValueError, KeyError, TypeError, IndexError) as fault:
        raise ResultsFault(f"{path}: {in_words(fault)}; expected the output of `syncopate thresholds SOURCE --json "
                           f"{path}`") from None
    return report


def column(report: dict, way: str, name: str) -> np.ndarray:
    return np.array([effect[name] for effect in report["by"][way]["thresholds"]])


def thresholds_figure(report: dict):
    """S_eff, the share of kept micro-batches and the speed-up of steps against the threshold (Giladi et al. 2023, Figure
    3c)."""
    sheet = Sheet([[Place(list(LOOKS), width=6.4)]], f"Thresholds for {Path(report['source']).name}",
                  f"{report['workers']} workers, {report['steps']} steps of {report['micro_batches']} micro-batches, "
                  f"T^c = {typeset_number(report['serial_s'])} s")
    panel, = sheet.panels
    thresholds = column(report, "throughput", "threshold_s")
    scale, unit = style.time_unit(float(thresholds[-1]))
    lines = {"S_eff": column(report, "throughput", "effective_speedup"),
             "S_eff by Eq. 6": column(report, "s-eff", "effective_speedup"),
             "steps' speed-up": 1 / (1 - column(report, "throughput", "time_saved")),
             "kept": 1 - column(report, "throughput", "drop_rate")}
    panel.axhline(1, color=style.FAINT, linewidth=0.8)
    for name, values in lines.items():
        panel.plot(thresholds / scale, values, **style.marked_here_and_there(LOOKS[name]))
    if best := report["by"]["throughput"]["best"]:
        at, height = best["threshold_s"] / scale, best["effective_speedup"]
        panel.plot(at, height, "o", color="white", markersize=1.3 * style.page.marker, markeredgecolor=LOOKS["S_eff"]["color"],
                   markeredgewidth=1.8, zorder=5)
        dropped = typeset(with_decimals(100 * best["drop_rate"], 1))
        panel.annotate(f"{typeset_number(at)} {unit}: {typeset(with_decimals(height, 3))}, {dropped} % dropped", (at, height), (0, -9),
                       textcoords="offset points", ha="center", va="top", fontsize="small")
    # The speed-up grows without bound if few micro-batches are kept, so the other lines set the range.
    panel.set_ylim(0, 1.35 * max(1.0, max(lines["S_eff"].max(), lines["S_eff by Eq. 6"].max())))
    panel.set_xlim(thresholds[0] / scale, thresholds[-1] / scale)
    panel.set_xlabel(f"threshold ({unit})")
    panel.set_ylabel("relative to no threshold")
    sheet.name_lines(panel, {name: (thresholds[-1] / scale, values[-1]) for name, values in lines.items()}, LOOKS)
    return sheet.finish()
