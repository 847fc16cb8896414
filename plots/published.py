"""What papers say of an experiment's numbers: the figures of its claims, from the claims.json beside its runs."""

import re
from dataclasses import dataclass

from plots.comparison import Comparison
from plots.printable import printable
from plots.progress import say
from plots.quantities import Quantity
from plots.report.claims import read_claims
from plots.runs import ResultsFault

SURE = {"stated", "established"}  # in the paper's own words: what is derived, or stands in code alone, is not drawn
FIGURE = re.compile(r"([-+]?\d+(?:\.\d+)?)\s*(%|x|times|×|s)?")
LOOK = {"marker": "*", "linestyle": "none", "markeredgewidth": 0.7, "markeredgecolor": "black", "zorder": 6}


@dataclass(frozen=True)
class Published:
    """A number that a paper states for a measure of a method."""

    method: str
    measure: str
    against: str  # the other method, of a ratio; else empty
    where: dict[str, str]  # values of what is swept
    value: float  # in the measure's own unit
    source: str

    def is_of(self, quantity: Quantity) -> bool:
        return self.measure == quantity.measure and bool(self.against) == quantity.against_baseline


def published_in(claims: dict[str, list[dict]]) -> dict[str, list[Published]]:
    """By experiment. A figure that is no plain number ("about 5", a difference, a range) cannot be placed: it is left
    out."""
    return {experiment: [one for claim in of_experiment if (one := published(claim)) is not None]
            for experiment, of_experiment in claims.items()}


def claims_of(comparisons: list[Comparison]) -> dict[str, list[dict]]:
    """By experiment, as their files have them. Claims that cannot be read, such as those of another version, are no reason
    to draw nothing: a message says so."""
    found = {}
    for experiment in dict.fromkeys(comparison.experiment for comparison in comparisons):
        runs = [run for comparison in comparisons if comparison.experiment == experiment for run in comparison.runs]
        try:
            found[experiment] = read_claims(sorted({run.directory.parent.parent for run in runs}))
        except ResultsFault as fault:
            say(f"figures have no marks of papers: {fault}")
            found[experiment] = []
    return found


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


def claimed_value(claim: dict) -> float | None:
    """The paper's figure as a number of what is claimed, if the claim says one."""
    value = (claim.get("paper") or {}).get("value")
    return None if value is None else float(value)


def value_of(figure: str, effect: str | None) -> float | None:
    """A percentage is a share; of a ratio it may as well be what is saved, so that it says nothing."""
    found = FIGURE.fullmatch(figure.strip())
    if not found or effect not in ("value", "ratio") or (effect == "ratio" and found[2] in ("%", "s")):
        return None
    return float(found[1]) / (100 if found[2] == "%" else 1)
