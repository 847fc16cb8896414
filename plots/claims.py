"""The claims of an experiment, one below the other: our mean with its interval, where it was wanted to lie, and the paper's
figure. Each has an axis of its own, since claims have different units."""

import matplotlib.pyplot as plt

from plots import page, style
from plots.published import LOOK, SURE, claimed_value
from plots.report.claims import shown_in
from plots.sheet import Place, Sheet
from plots.sweep_lines import key_label

ROW, COLUMN_ROW = 0.17, 0.21  # inches of a point of a claim; in a column its name stands above it
MOST_POINTS = 12  # of a claim that are drawn
SMALL = 0.83  # of the letters: those of a sentence in a column
LABEL = 0.066  # inches of a letter of a point's label
COUNTED = {"steps", "rounds"}  # units without parts
COUNTS = plt.FuncFormatter(lambda value, _: f"{value:,.0f}")
MARKS = {"reproduced": ("o", style.INK), "not reproduced": ("X", style.INK), "inconclusive": ("o", "white")}
WANTED = {"color": "#009E73", "alpha": 0.16, "linewidth": 0}


def claims_figure(claims: list[dict], heading: str, subtitle: str):
    """`claims`: as claims.json has them. None where none has been judged by a number."""
    shown = [claim for claim in claims if claim["points"]]
    if not shown:
        return None
    are_alike = any("margin" in claim["criterion"] for claim in shown)
    subtitle += "  ·  mean and its 95 % interval" + ", 90 % where two are to be alike" * are_alike
    if without := len(claims) - len(shown):
        subtitle += f"  ·  {without} claim{'s' * (without > 1)} without a value"
    across = 2 if len(shown) > 4 and not page.current.is_column else 1
    rows = [shown[begin:begin + across] for begin in range(0, len(shown), across)]
    lefts = [0.3 + LABEL * max(len(point["label"]) for claim in shown[column::across] for point in points_of(claim))
             for column in range(across)]  # so that axes stand below each other
    sheet = Sheet([[Place(width=5.2, left=left, height=0.3 + ROW * len(points_of(claim)),
                          in_column=0.15 + COLUMN_ROW * len(points_of(claim)), is_wide=True) for claim, left in zip(row, lefts)]
                   for row in rows], heading, subtitle)
    for panel, claim in zip(sheet.panels, shown):
        draw_claim(panel, claim)
        sentence = claim["sentence"].replace(" %", "\u00a0%")  # which stay in one line
        sheet.entitle(panel, sentence, most_lines=3 if page.current.is_column else 2,
                      points=(SMALL if page.current.is_column else 1) * page.current.font)
    sheet.entries = legend_of(shown)
    return sheet.finish()


def points_of(claim: dict) -> list[dict]:
    """Of many the lowest and the highest, with what they are and of how many."""
    points = claim["points"]
    if len(points) <= MOST_POINTS:
        return points
    ends = {"lowest": min(points, key=lambda point: point["mean"]), "highest": max(points, key=lambda point: point["mean"])}
    return [point | {"label": f"{which} of {len(points)}: {point['label']}".removesuffix(": ")} for which, point in ends.items()]


def draw_claim(panel, claim: dict) -> None:
    times, unit = shown_in(claim)
    points, paper = points_of(claim), claimed_value(claim)
    ends = [times * end for point in points for end in (point["interval"] or [point["mean"]])]
    bounds = [times * bound for bound in wanted(claim) if bound is not None]
    everything = [*ends, *bounds, *([times * paper] if paper is not None else [])]
    room = 0.08 * (max(everything) - min(everything)) or 0.1 * abs(everything[0]) or 1
    left, right = min(everything) - room, max(everything) + room
    low, high = (None if bound is None else times * bound for bound in wanted(claim))
    panel.axvspan(left if low is None else low, right if high is None else high, **WANTED, gid="wanted")
    for row, point in enumerate(points):
        marker, face = MARKS[point["verdict"]]
        if point["interval"]:
            panel.plot([times * end for end in point["interval"]], [row, row], color=style.INK, gid="interval",
                       linewidth=0.8 * page.current.line, solid_capstyle="butt")
        panel.plot(times * point["mean"], row, marker, color=style.INK, markerfacecolor=face, markeredgecolor=style.INK,
                   markeredgewidth=1, markersize=1.2 * page.current.marker, gid="mean", zorder=4)
    if paper is not None:
        middle = (len(points) - 1) / 2  # between two rows, or else just above one: our own mean is to be seen beside it
        panel.plot(times * paper, middle if middle % 1 else middle - 0.4, color=style.INK, **star(claim), markersize=2 * page.current.marker,
                   gid="paper")
    panel.set_xlim(left, right)
    panel.set_ylim(len(points) - 0.3, -0.7)
    panel.set_yticks(range(len(points)), ["" if page.current.is_column else point["label"] for point in points], fontsize="x-small")
    if page.current.is_column and any(point["label"] for point in points):
        panel.set_ylim(len(points) - 0.5, -1)
        for row, point in enumerate(points):
            panel.text(0.01, row - 0.3, point["label"], transform=panel.get_yaxis_transform(), va="bottom", fontsize="x-small",
                       zorder=6, gid="name")
    panel.tick_params(axis="y", length=0)
    panel.grid(axis="y", visible=False)
    panel.spines["left"].set_visible(False)
    counts = right - left >= 1 and (unit in COUNTED or claim["measure"] in COUNTED and claim["as"] != "ratio")
    panel.xaxis.set_major_locator(plt.MaxNLocator(page.current.ticks, integer=counts, min_n_ticks=1 if counts else 2))
    panel.xaxis.set_major_formatter(COUNTS if counts else style.SHORT)
    panel.set_xlabel(axis_text(claim, unit), labelpad=1)


def wanted(claim: dict) -> tuple[float | None, float | None]:
    """The bounds between which the interval was to lie; None: none on that side. The neighbours of an order are to differ."""
    criterion = claim["criterion"]
    if claim.get("order"):
        return 0, None
    if "within" in criterion:
        return tuple(criterion["within"])
    if "margin" in criterion:
        none = 1 if claim["as"] == "ratio" and not claim.get("over") else 0
        return none - criterion["margin"], none + criterion["margin"]
    return criterion.get("above"), criterion.get("below")


def axis_text(claim: dict, unit: str) -> str:
    kind = {"difference": "difference", "ratio": "ratio", "best": f"best {key_label(claim.get('over', ''))}"}.get(
        "difference" if claim.get("order") else claim["as"], "")
    if claim.get("over") and claim["as"] != "best":
        over = key_label(claim["over"]).split(" (")[0]
        kind = "slope per doubling" if claim.get("per_doubling") else f"slope over {over}"
    measure = measure_text(claim["measure"])
    return ", ".join(part for part in (measure, kind) if part) + (f" ({unit})" if unit and unit != measure else "")


def measure_text(measure: str) -> str:
    """In words, without the unit of a time, which is said apart: "micro-batches per second" and "time to target"."""
    text = measure.replace("_per_s", "_per_second").removesuffix("_s").replace("_", " ")
    return text.replace("micro batch", "micro-batch").replace("hessian", "Hessian")


def star(claim: dict) -> dict:
    """Hollow where the paper does not state the number itself."""
    return LOOK if claim["paper"].get("certainty") in SURE else {**LOOK, "markerfacecolor": "white", "markeredgewidth": 1}


def legend_of(claims: list[dict]) -> list:
    size = {"markersize": 1.4 * page.current.marker}
    verdicts = {point["verdict"] for claim in claims for point in points_of(claim)}
    entries = [plt.Line2D([], [], linestyle="none", marker=marker, color=style.INK, markerfacecolor=face,
                          markeredgecolor=style.INK, markeredgewidth=1, label=f"ours: {verdict}", **size)
               for verdict, (marker, face) in MARKS.items() if verdict in verdicts]
    entries.append(plt.Rectangle((0, 0), 1, 1, label="where it was wanted", **WANTED))
    said = {claim["paper"]["certainty"] in SURE: claim for claim in claims if claimed_value(claim) is not None}
    return entries + [plt.Line2D([], [], color=style.INK, **star(claim), **size,
                                 label="the paper" if sure else "by the paper's code, or derived from it")
                      for sure, claim in sorted(said.items(), reverse=True, key=lambda item: item[0])]
