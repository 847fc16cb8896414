"""The section of claims: what a paper says, what was found here, and the verdict, from the claims.json that a run leaves
beside an experiment's runs (results/scoreboard.hpp)."""

from collections.abc import Iterable
from pathlib import Path

from plots.numbers import SamePlace, typeset, typeset_number
from plots.report.markup import escaped
from plots.runs import ResultsFault, in_words, read_digested
from plots.variation import alone

FILE, SCHEMA_VERSION = "claims.json", 2
VERDICTS = {"reproduced": "yes", "not reproduced": "no", "inconclusive": "open"}  # and the class of its badge
HOUR_S, LEAST_HOURS = 3600, 2
SHOWN_POINTS = 4  # of a claim; of more the lowest and the highest


def read_claims(directories: Iterable[Path]) -> list[dict]:
    """Of all of these that have such a file."""
    claims = []
    for directory in dict.fromkeys(directories):
        path = directory / FILE
        expected = f"expected the claims of schema version {SCHEMA_VERSION} that `run` writes; the experiment's next start does"
        try:
            document = read_digested(path, {"claims", "judged_runs"})
            if document["schema_version"] != SCHEMA_VERSION:
                raise ValueError(f"schema_version = {document['schema_version']}")
            claims_row(document["claims"])
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as fault:
            raise ResultsFault(f"{path}: {in_words(fault)}; {expected}") from None
        claims += document["claims"]
    return claims


def claims_table(claims: list[dict]) -> str:
    return ('<div class="scroll" tabindex="0" role="region" aria-label="Table of claims"><table class="claims"><thead><tr>'
            '<th scope="col">claim</th><th scope="col">paper</th><th scope="col">ours</th><th scope="col">verdict</th></tr>'
            f'</thead><tbody>{claims_row(claims)}</tbody></table></div>'
            '<p class="note">What counts as reproduced was fixed in the experiment file. In brackets: the 95 % interval of the '
            "mean over n seeds, 90 % where the claim is that two are alike. With 6 to 20 seeds a sign-flip test agrees, or the "
            "claim is inconclusive.</p>")


def claims_row(claims: list[dict]) -> str:
    """One per claim."""
    lines = []
    for claim in claims:
        verdict, reason = claim["verdict"], claim.get("reason")
        why = f'<small>{escaped(reason)}</small>' if reason else ""
        lines.append(f'<tr><th scope="row">{escaped(claim["sentence"])}<small>{escaped(judged_by(claim))}</small></th>'
                     f'<td data-name="paper">{paper_text(claim.get("paper"))}</td><td data-name="ours">{points_text(claim)}</td>'
                     f'<td><span class="verdict {VERDICTS[verdict]}">{verdict}</span>{why}</td></tr>')
    return "".join(lines)


def judged_by(claim: dict) -> str:
    """What is measured, and what counts as reproduced."""
    if order := claim.get("order"):
        return f"{claim['measure']}: {' < '.join(order)}"
    own, other, measure = claim["method"], claim.get("against"), claim["measure"]
    what = {"ratio": f"{measure}, {own} divided by {other}", "difference": f"{measure}, {own} less {other}"}.get(
        claim["as"], f"{measure} of {own}")
    over = claim.get("over")
    if claim["as"] == "best":
        what = f"the value of {over} at which {measure} of {own} is best"
    elif over:
        what += f", slope {'per doubling of' if claim.get('per_doubling') else 'over'} {over}"
    if where := claim.get("where"):
        what += ", at " + ", ".join(alone(key, str(value)) or f"{key} = {value}" for key, value in where.items())
    times, unit = shown_in(claim)
    bounds = ", ".join(f"{name} {bound_text(bound, times)}" for name, bound in claim["criterion"].items())
    return f"{what}: {bounds} {unit}".rstrip()


def shown_in(claim: dict) -> tuple[float, str]:
    """What its numbers are multiplied with to be shown, and the unit then: 100 and "points", of a difference of shares.
    Seconds are hours where what is wanted or found goes to two hours or more, as in the program's tables
    (results/claims.cpp)."""
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
    """The mean, its interval and the number of seeds, with two digits of half the interval, or four of the mean."""
    mean, interval = times * float(point["mean"]), point["interval"] and [times * end for end in point["interval"]]
    half = (interval[1] - interval[0]) / 2 if interval else 0
    text = SamePlace.of(mean, half)
    bounds = f"[{typeset(text(interval[0]))}, {typeset(text(interval[1]))}], " if interval else ""
    of_unit = f" {escaped(unit)}" if unit else ""
    label = f"<small>{escaped(point['label'])}</small>" if point["label"] else ""
    seeds = f"n = {int(point['n'])}{restriction_text(point.get('restricted'), unit)}"
    return f"<div>{label}{typeset(text(mean))}{of_unit}<small>{bounds}{seeds}</small></div>"


def restriction_text(restricted: dict | None, unit: str = "s") -> str:
    """Of times to a target that not all seeds reached."""
    if not restricted:
        return ""
    own, other = int(restricted["own_reached"]), int(restricted["other_reached"])
    horizon_s = float(restricted["horizon_s"])
    horizon = f"{typeset_number(horizon_s / HOUR_S)} h" if unit == "h" else f"{typeset_number(horizon_s)} s"
    return f", times up to {horizon}, reached by {own} and {other}"
