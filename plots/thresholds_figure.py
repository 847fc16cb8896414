"""What `syncopate thresholds --json` has found (Giladi et al. 2023, Figure 3c): S_eff, the share of micro-batches that
are kept, and how much faster steps get, against the threshold. Use: `./dev plot FILE.json`, which writes FILE.png and
FILE.svg beside it."""

from pathlib import Path

import numpy as np

from plots import page, style
from plots.numbers import typeset, typeset_number, with_decimals
from plots.runs import ResultsFault, in_words
from plots.sheet import Place, Sheet

LOOKS = {"S_eff": {"color": "#D55E00", "marker": "o"}, "S_eff by Eq. 6": {"color": "#D55E00", "linestyle": style.DASHES[2]},
         "steps' speed-up": {"color": "#0072B2", "linestyle": style.DASHES[1], "marker": "^"},
         "kept": {"color": "#009E73", "linestyle": style.DASHES[3], "marker": "s"}}


def checked_thresholds(report: dict, path: Path) -> dict:
    try:
        for way in ("throughput", "s-eff"):
            for effect in report["by"][way]["thresholds"]:
                float(effect["threshold_s"] + effect["drop_rate"] + effect["time_saved"] + effect["effective_speedup"])
        report["source"], report["workers"], report["steps"], report["micro_batches"], float(report["serial_s"])
        report["by"]["throughput"]["best"]
    except (ValueError, KeyError, TypeError, IndexError) as fault:
        raise ResultsFault(f"{path}: {in_words(fault)}; expected what `syncopate thresholds SOURCE --json "
                           f"{path}` writes") from None
    return report


def column(report: dict, way: str, name: str) -> np.ndarray:
    return np.array([effect[name] for effect in report["by"][way]["thresholds"]])


def thresholds_figure(report: dict):
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
        panel.plot(at, height, "o", color="white", markersize=1.3 * page.current.marker, markeredgecolor=LOOKS["S_eff"]["color"],
                   markeredgewidth=1.8, zorder=5)
        panel.annotate(f"{typeset_number(at)} {unit}: {typeset(with_decimals(height, 3))}, {typeset(with_decimals(100 * best['drop_rate'], 1))} % dropped", (at, height), (0, -9),
                       textcoords="offset points", ha="center", va="top", fontsize="small")
    # Where little is kept, steps get faster without bound, which would leave no room for the rest.
    panel.set_ylim(0, 1.35 * max(1.0, max(lines["S_eff"].max(), lines["S_eff by Eq. 6"].max())))
    panel.set_xlim(thresholds[0] / scale, thresholds[-1] / scale)
    panel.set_xlabel(f"threshold ({unit})")
    panel.set_ylabel("times what it is without a threshold")
    sheet.name_lines(panel, {name: (thresholds[-1] / scale, values[-1]) for name, values in lines.items()}, LOOKS)
    return sheet.finish()
