"""The claims of an experiment. Reads claims.json (results/claims.hpp), and makes the page's table, the claims' figure,
and the stars that mark papers' numbers in other figures."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt

from plots import style
from plots.comparison import Comparison, alone, experiments_among, key_label
from plots.numbers import Quantity, SamePlace, typeset, typeset_number
from plots.report import escaped, table_markup
from plots.runs import CLAIMS, ResultsFault, in_words, read_digested
from plots.sheet import Place, Sheet
from plots.terminal import printable, say

SCHEMA_VERSION = 3
VERDICTS = {"reproduced": "yes", "not reproduced": "no", "inconclusive": "open"}  # with the CSS classes of their badges
HOUR_S, LEAST_HOURS = 3600, 2
SHOWN_POINTS = 4  # most points of a claim in the table; of more points only the lowest and the highest are shown

SURE = {"stated", "established"}  # certainties of numbers in the paper's own words; only these numbers get stars
FIGURE = re.compile(r"([-+]?\d+(?:\.\d+)?)\s*(%|x|times|×|s)?")
LOOK = {"marker": "*", "linestyle": "none", "markeredgewidth": 0.7, "markeredgecolor": "black", "zorder": 6}

ROW, COLUMN_ROW = 0.17, 0.21  # inches per point of a claim; in a paper's column a point's name is above it
MOST_POINTS = 12  # most points of a claim in the figure
SMALL = 0.83  # size of letters in a column's sentences, as a share of the usual size
LABEL = 0.066  # inches per letter of a point's label
COUNTED = {"steps", "rounds"}  # units of measures that are whole numbers
COUNTS = plt.FuncFormatter(lambda value, _: f"{value:,.0f}")
MARKS = {"reproduced": ("o", style.INK), "not reproduced": ("X", style.INK), "inconclusive": ("o", "white")}
WANTED = {"color": "#009E73", "alpha": 0.16, "linewidth": 0}


def read_claims(directories: Iterable[Path]) -> list[dict]:
    """The contents of all claims.json in the directories. Raises ResultsFault for a file that the page cannot show."""
    claims = []
    for directory in dict.fromkeys(directories):
        path = directory / CLAIMS
        expected = f"expected claims of schema version {SCHEMA_VERSION}; the experiment's next start writes them again"
        try:
            document = read_digested(path, {"claims", "judged_runs"})
            if document["schema_version"] != SCHEMA_VERSION:
                raise ValueError(f"schema_version = {document['schema_version']}")
            claims_rows(document["claims"])
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as fault:
            raise ResultsFault(f"{path}: {in_words(fault)}; {expected}") from None
        claims += document["claims"]
    return claims


def claims_of(comparisons: list[Comparison]) -> dict[str, list[dict]]:
    """The claims of each experiment, as in their files. If claims cannot be read, for instance because they have
    another version, a message says so, and figures are drawn without them."""
    found = {}
    for experiment in experiments_among(comparisons):
        runs = [run for comparison in comparisons if comparison.experiment == experiment for run in comparison.runs]
        try:
            found[experiment] = read_claims(sorted({run.directory.parent.parent for run in runs}))
        except ResultsFault as fault:
            say(f"figures do not mark numbers from papers: {fault}")
            found[experiment] = []
    return found


@dataclass(frozen=True)
class Published:
    """A number that a paper states for a measure of a method."""

    method: str
    measure: str
    against: str  # the method in the denominator of a ratio; otherwise empty
    where: dict[str, str]  # values of swept keys
    value: float  # in the measure's own unit
    source: str

    def is_of(self, quantity: Quantity) -> bool:
        return self.measure == quantity.measure and bool(self.against) == quantity.against_baseline


def published_in(claims: dict[str, list[dict]]) -> dict[str, list[Published]]:
    """The numbers from papers for each experiment. Leaves out figures that are not a single number ("about 5", a
    difference, a range), because these have no place in a plot."""
    return {experiment: [one for claim in of_experiment if (one := published(claim)) is not None]
            for experiment, of_experiment in claims.items()}


def published(claim: dict) -> Published | None:
    paper = claim.get("paper") or {}
    value = claimed_value(claim) if claim.get("as") in ("value", "ratio") else None
    if value is None:
        value = value_of(paper.get("figure", ""), claim.get("as"))
    if paper.get("certainty") not in SURE or value is None or claim.get("order") or claim.get("over"):
        return None
    return Published(printable(claim["method"]), claim["measure"],
                     printable(claim.get("against") or "") if claim["as"] == "ratio" else "",
                     {key: str(where) for key, where in (claim.get("where") or {}).items()}, value,
                     printable(paper.get("source", "")))


@dataclass(frozen=True)
class Expected:
    """The range that a claim of theory gives for a measure of a method."""

    method: str
    measure: str
    where: dict[str, str]  # values of swept keys
    low: float  # in the measure's own unit
    high: float


def expected_by_theory(claims: list[dict]) -> list[Expected]:
    """The ranges of all claims of theory about a measure itself, with two bounds."""
    return [Expected(printable(claim["method"]), claim["measure"],
                     {key: str(where) for key, where in (claim.get("where") or {}).items()},
                     *map(float, claim["criterion"]["within"]))
            for claim in claims if claim.get("class") == "theory" and claim.get("as") == "value" and "within" in claim["criterion"]
            and not claim.get("order") and not claim.get("over")]


def claimed_value(claim: dict) -> float | None:
    """The published number in the unit of the claimed measure; None if the claim has none."""
    value = (claim.get("paper") or {}).get("value")
    return None if value is None else float(value)


def value_of(figure: str, effect: str | None) -> float | None:
    """The number in the text of a published figure; a percentage becomes a share. None for a percentage if the effect
    is a ratio, because it may mean the share that is saved."""
    found = FIGURE.fullmatch(figure.strip())
    if not found or effect not in ("value", "ratio") or (effect == "ratio" and found[2] in ("%", "s")):
        return None
    return float(found[1]) / (100 if found[2] == "%" else 1)


def paper_legend(sources: list[str], begin: str = "") -> list:
    """A legend entry for each paper whose numbers are marked."""
    return [plt.Line2D([], [], color=style.INK, **LOOK, markersize=1.6 * style.page.marker, label=begin + source)
            for source in dict.fromkeys(sources)]


def claims_table(claims: list[dict]) -> str:
    """The page's table, as markup."""
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("claim", "paper", "ours", "verdict"))
    return (table_markup("Table of claims", "claims", heads, claims_rows(claims)) +
            '<p class="note">The experiment file fixed the criteria before the runs. In brackets: the 95 % interval of the '
            "mean over n seeds (90 % for claims that two methods are alike). With 6 to 20 seeds the verdict also needs a "
            "sign-flip test; if the test does not agree, the claim is inconclusive.</p>")


def claims_rows(claims: list[dict]) -> str:
    """A row per claim, as markup."""
    lines = []
    for claim in claims:
        verdict, reason = claim["verdict"], claim.get("reason")
        why = f'<small>{escaped(reason)}</small>' if reason else ""
        lines.append(f'<tr><th scope="row">{escaped(claim["sentence"])}<small>{escaped(judged_by(claim))}</small></th>'
                     f'<td data-name="paper">{paper_text(claim.get("paper"))}</td><td data-name="ours">{points_text(claim)}</td>'
                     f'<td><span class="verdict {VERDICTS[verdict]}">{verdict}</span>{why}</td></tr>')
    return "".join(lines)


def judged_by(claim: dict) -> str:
    """The claim's measure and criterion in words."""
    if order := claim.get("order"):
        return f"{claim['measure']}: {' < '.join(order)}"
    own, other, measure = claim["method"], claim.get("against"), claim["measure"]
    what = {"ratio": f"{measure}, {own} divided by {other}", "difference": f"{measure}, {own} less {other}"}.get(
        claim["as"], f"{measure} of {own}")
    over = claim.get("over")
    if claim["as"] == "best":
        what = f"the value of {over} at which {measure} of {own} is best"
    elif over:
        over = f"sqrt(2 ln {over})" if claim.get("over_sqrt_log") else over
        what += f", slope {'per doubling of' if claim.get('per_doubling') else 'over'} {over}"
    if where := claim.get("where"):
        what += ", at " + ", ".join(alone(key, str(value)) or f"{key} = {value}" for key, value in where.items())
    times, unit = shown_in(claim)
    bounds = ", ".join(f"{name} {bound_text(bound, times)}" for name, bound in claim["criterion"].items())
    return f"{what}: {bounds} {unit}".rstrip()


def shown_in(claim: dict) -> tuple[float, str]:
    """The factor for showing the claim's numbers, and their unit: 100 and "points" for a difference of shares. Times
    are in hours if the criterion or a point reaches two hours, as in the program's tables (results/claims.cpp)."""
    shown = claim.get("shown") or {}
    times, unit = float(shown.get("times", 1)), str(shown.get("unit", ""))
    if unit != "s":
        return times, unit
    bounds = [end for bound in claim["criterion"].values() for end in (bound if isinstance(bound, list) else [bound])]
    most_s = max((abs(float(number)) for number in (*bounds, *(point["mean"] for point in claim["points"]))), default=0)
    return (times / HOUR_S, "h") if most_s >= LEAST_HOURS * HOUR_S else (times, unit)


def bound_text(bound, times: float) -> str:
    return " to ".join(typeset_number(times * end, 6) for end in (bound if isinstance(bound, list) else [bound]))


def paper_text(paper: dict | None) -> str:
    if not paper:
        return "–"
    return f'{escaped(paper["figure"])}<small>{escaped(paper["source"])}; {escaped(paper["certainty"])}</small>'


def points_text(claim: dict) -> str:
    points, (times, unit) = claim["points"], shown_in(claim)
    if not points:
        return "–"
    shown, more = points, ""
    if len(points) > SHOWN_POINTS:
        shown = [min(points, key=lambda point: point["mean"]), max(points, key=lambda point: point["mean"])]
        more = f"<small>the lowest and the highest of {len(points)} points</small>"
    return "".join(point_text(point, times, unit) for point in shown) + more


def point_text(point: dict, times: float = 1, unit: str = "") -> str:
    """The mean to two digits of half its interval (or four digits), its interval and the number of seeds, as markup."""
    mean, interval = times * float(point["mean"]), point["interval"] and [times * end for end in point["interval"]]
    half = (interval[1] - interval[0]) / 2 if interval else 0
    text = SamePlace.of(mean, half)
    bounds = f"[{typeset(text(interval[0]))}, {typeset(text(interval[1]))}], " if interval else ""
    of_unit = f" {escaped(unit)}" if unit else ""
    label = f"<small>{escaped(point['label'])}</small>" if point["label"] else ""
    seeds = f"n = {int(point['n'])}{restriction_text(point.get('restricted'), unit)}"
    return f"<div>{label}{typeset(text(mean))}{of_unit}<small>{bounds}{seeds}</small></div>"


def restriction_text(restricted: dict | None, unit: str = "s") -> str:
    """The remark about times to a target that not all seeds reached."""
    if not restricted:
        return ""
    own, other = int(restricted["own_reached"]), int(restricted["other_reached"])
    horizon_s = float(restricted["horizon_s"])
    horizon = f"{typeset_number(horizon_s / HOUR_S)} h" if unit == "h" else f"{typeset_number(horizon_s)} s"
    return f", times up to {horizon}, reached by {own} and {other}"


def claims_figure(claims: list[dict], heading: str, subtitle: str):
    """The figure of an experiment's claims: the mean of its runs with its interval, the range that the claim wants, and
    the paper's number. Each claim has its own axis, since units differ. `claims`: as in claims.json. None if no claim
    has a number."""
    shown = [claim for claim in claims if claim["points"]]
    if not shown:
        return None
    are_alike = any("margin" in claim["criterion"] for claim in shown)
    subtitle += "  ·  mean and its 95 % interval" + ", 90 % for claims that two methods are alike" * are_alike
    if without := len(claims) - len(shown):
        subtitle += f"  ·  {without} claim{'s' * (without > 1)} without a value"
    across = 2 if len(shown) > 4 and not style.page.is_column else 1
    rows = [shown[begin:begin + across] for begin in range(0, len(shown), across)]
    lefts = [0.3 + LABEL * max(len(point["label"]) for claim in shown[column::across] for point in points_of(claim))
             for column in range(across)]  # so that axes in the same column are aligned
    sheet = Sheet([[Place(width=5.2, left=left, height=0.3 + ROW * len(points_of(claim)),
                          in_column=0.15 + COLUMN_ROW * len(points_of(claim)), is_wide=True) for claim, left in zip(row, lefts)]
                   for row in rows], heading, subtitle)
    for panel, claim in zip(sheet.panels, shown):
        draw_claim(panel, claim)
        sentence = claim["sentence"].replace(" %", "\u00a0%")  # a number and its percent sign stay on one line
        sheet.entitle(panel, sentence, most_lines=3 if style.page.is_column else 2,
                      points=(SMALL if style.page.is_column else 1) * style.page.font)
    sheet.entries = legend_of(shown)
    return sheet.finish()


def points_of(claim: dict) -> list[dict]:
    """The points to draw: up to MOST_POINTS, otherwise only the lowest and the highest, whose labels then say so."""
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
                       linewidth=0.8 * style.page.line, solid_capstyle="butt")
        panel.plot(times * point["mean"], row, marker, color=style.INK, markerfacecolor=face, markeredgecolor=style.INK,
                   markeredgewidth=1, markersize=1.2 * style.page.marker, gid="mean", zorder=4)
    if paper is not None:
        middle = (len(points) - 1) / 2  # between rows, so that it does not hide a mean
        panel.plot(times * paper, middle if middle % 1 else middle - 0.4, color=style.INK, **star(claim), markersize=2 * style.page.marker,
                   gid="paper")
    panel.set_xlim(left, right)
    panel.set_ylim(len(points) - 0.3, -0.7)
    panel.set_yticks(range(len(points)), ["" if style.page.is_column else point["label"] for point in points], fontsize="x-small")
    if style.page.is_column and any(point["label"] for point in points):
        panel.set_ylim(len(points) - 0.5, -1)
        for row, point in enumerate(points):
            panel.text(0.01, row - 0.3, point["label"], transform=panel.get_yaxis_transform(), va="bottom", fontsize="x-small",
                       zorder=6, gid="name")
    panel.tick_params(axis="y", length=0)
    panel.grid(axis="y", visible=False)
    panel.spines["left"].set_visible(False)
    counts = right - left >= 1 and (unit in COUNTED or claim["measure"] in COUNTED and claim["as"] != "ratio")
    panel.xaxis.set_major_locator(plt.MaxNLocator(style.page.ticks, integer=counts, min_n_ticks=1 if counts else 2))
    panel.xaxis.set_major_formatter(COUNTS if counts else style.SHORT)
    panel.set_xlabel(axis_text(claim, unit), labelpad=1)


def wanted(claim: dict) -> tuple[float | None, float | None]:
    """Bounds within which the interval must lie; None: no bound. Neighbours of an order must differ by more than 0."""
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
        over = f"sqrt(2 ln {over})" if claim.get("over_sqrt_log") else over
        kind = "slope per doubling" if claim.get("per_doubling") else f"slope over {over}"
    measure = measure_text(claim["measure"])
    return ", ".join(part for part in (measure, kind) if part) + (f" ({unit})" if unit and unit != measure else "")


def measure_text(measure: str) -> str:
    """The measure in words, without the unit of a time: "micro-batches per second", "time to target"."""
    text = measure.replace("_per_s", "_per_second").removesuffix("_s").replace("_", " ")
    return text.replace("micro batch", "micro-batch").replace("hessian", "Hessian")


def star(claim: dict) -> dict:
    """The look of the paper's mark: hollow if the paper does not state the number itself."""
    return LOOK if claim["paper"].get("certainty") in SURE else {**LOOK, "markerfacecolor": "white", "markeredgewidth": 1}


def legend_of(claims: list[dict]) -> list:
    size = {"markersize": 1.4 * style.page.marker}
    verdicts = {point["verdict"] for claim in claims for point in points_of(claim)}
    entries = [plt.Line2D([], [], linestyle="none", marker=marker, color=style.INK, markerfacecolor=face,
                          markeredgecolor=style.INK, markeredgewidth=1, label=f"ours: {verdict}", **size)
               for verdict, (marker, face) in MARKS.items() if verdict in verdicts]
    entries.append(plt.Rectangle((0, 0), 1, 1, label="range that reproduces the claim", **WANTED))
    said = {claim["paper"]["certainty"] in SURE: claim for claim in claims if claimed_value(claim) is not None}
    return entries + [plt.Line2D([], [], color=style.INK, **star(claim), **size,
                                 label="the paper" if sure else "by the paper's code, or derived from it")
                      for sure, claim in sorted(said.items(), reverse=True, key=lambda item: item[0])]
