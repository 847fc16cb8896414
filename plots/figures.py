"""Which figures there are to draw, known from the runs' documents alone."""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from zlib import crc32

from plots.comparison import Comparison, in_common
from plots.grids import Grid, find_grids
from plots.runs import MEASURED
from plots.sweeps import Sweep, find_sweeps
from plots.traces import TRACE
from plots.variation import as_words

CLAIMS = "claims.json"  # beside the runs
ARRIVALS = "arrivals.csv.gz"  # when gradients came, if a run has recorded it
OF_POINTS = ["curves", "rounds", "measurements", "arrivals", "kept", "lengths", "timeline"]
OF_ENDS = ["bars", "pareto", "accounts", "distributions"]  # of points of a sweep only where asked for: it has its own figure
KINDS = ["claims", "sweep", "sweeps", "heat", "regimes", "paretos", "rankings", *OF_POINTS, *OF_ENDS]
NEEDS = {
    "claims": "claims that have been judged", "sweep": "a swept number with at least three values",
    "sweeps": "a number that is swept at several values of something else",
    "heat": "two swept numbers, with three and two values at least", "regimes": "variants, or several experiments",
    "paretos": "variants, or several experiments, with evaluations",
    "rankings": "variants, or several experiments, with evaluations of three methods", "curves": "evaluations", "rounds": "a period that changes",
    "measurements": "[measurements]", "arrivals": "recording.arrivals", "kept": "recording.samples",
    "lengths": "recording.samples of texts", "timeline": "recording.trace", "bars": "two methods", "pareto": "evaluations",
    "accounts": "steps", "distributions": "at least 50 steps"}
MOST_REGIMES = 12  # in one picture


@dataclass
class Planned:
    """A figure; there will be none where the tables turn out to have nothing for it."""

    kind: str
    shown: Sweep | Grid | Comparison | list[Sweep] | list[Comparison]
    name: str  # of its files


def plan_figures(comparisons: list[Comparison], kinds: list[str], asked: bool = False) -> list[Planned]:
    """Those of these kinds; `asked`: for these kinds alone."""
    several = len({comparison.experiment for comparison in comparisons}) > 1

    def planned(kind: str, shown: Sweep | Grid | Comparison, point: dict[str, str], along: str = "") -> Planned:
        return Planned(kind, shown, file_name(kind, shown.experiment if several else "", along, as_words(point)))

    sweeps = find_sweeps(comparisons)
    experiments = {comparison.experiment: comparison for comparison in comparisons if has_claims(comparison)}
    claims = [Planned("claims", one, file_name("claims", experiment if several else ""))
              for experiment, one in experiments.items()]
    of_place = Counter((sweep.experiment, *sweep.others.items()) for sweep in sweeps)
    plan = claims + [planned("sweep", sweep, sweep.others,
                    sweep.key.rsplit(".", 1)[-1] if of_place[sweep.experiment, *sweep.others.items()] > 1 else "")
            for sweep in sweeps]
    plan += [Planned("sweeps", members, file_name("sweeps", experiment, key if len(keys) > 1 else ""))
             for keys in [alike(sweeps)] for (key, experiment), members in keys.items()]
    plan += [planned("heat", grid, grid.others) for grid in find_grids(comparisons)]
    plan += [Planned(kind, members, file_name(kind, members[0].experiment if several and not mixed(members) else "",
                                              as_words(in_common(members))))
             for kind in ("regimes", "paretos", "rankings") for members in regimes(comparisons, sweeps)]
    swept = {sweep.experiment for sweep in sweeps if is_of_configuration(sweep)}
    plan += [planned(kind, comparison, comparison.point) for comparison in comparisons
             for kind in [*kinds_of(comparison), *(OF_ENDS if asked or comparison.experiment not in swept else [])]
             if kind != "distributions" or variant_beside(comparison, comparisons, before=True) is None]
    return [figure for figure in plan if figure.kind in kinds]


def variant_beside(comparison: Comparison, comparisons: list[Comparison], before: bool = False) -> Comparison | None:
    """Of two variants the other one, if it comes after this one, or before it: one picture shows both."""
    def without(one: Comparison) -> tuple:
        return one.experiment, {key: value for key, value in one.point.items() if key != "variant"}
    pair = [one for one in comparisons if "variant" in one.point and without(one) == without(comparison)]
    if len(pair) != 2 or comparison not in pair:
        return None
    return pair[0] if before and pair[1] is comparison else pair[1] if not before and pair[0] is comparison else None


def has_claims(comparison: Comparison) -> bool:
    return any((directory / CLAIMS).exists() for directory in {run.directory.parent.parent for run in comparison.runs})


def alike(sweeps: list[Sweep]) -> dict[tuple[str, str], list[Sweep]]:
    """Those along one key, by the last part of that and, where they are of one experiment among several, by this."""
    several = len({sweep.experiment for sweep in sweeps}) > 1
    keys = defaultdict(list)
    for sweep in sweeps:
        keys[sweep.key].append(sweep)
    return {(key.rsplit(".", 1)[-1], members[0].experiment if several and len({one.experiment for one in members}) == 1 else ""):
            members for key, members in keys.items() if 2 <= len(members) <= MOST_REGIMES}


def is_of_configuration(sweep: Sweep) -> bool:
    """And not of a method's own."""
    return sweep.key in sweep.where.point


def mixed(comparisons: list[Comparison]) -> bool:
    return len({comparison.experiment for comparison in comparisons}) > 1


def regimes(comparisons: list[Comparison], sweeps: list[Sweep]) -> list[list[Comparison]]:
    """Points that stand side by side: the variants of an experiment at each point of what else varies, other points of one
    that is swept along no number, and experiments of one point each."""
    swept = {sweep.experiment for sweep in sweeps if is_of_configuration(sweep)}
    groups = defaultdict(list)
    for comparison in comparisons:
        if "variant" in comparison.point:
            others = tuple(item for item in comparison.point.items() if item[0] != "variant")
            groups[comparison.experiment, others].append(comparison)
        elif comparison.experiment not in swept:
            groups[comparison.experiment, ()].append(comparison)
    alone = [members[0] for (experiment, _), members in groups.items() if len(members) == 1 and experiment not in swept]
    return [members for members in [*groups.values(), alone] if 2 <= len(members) <= MOST_REGIMES]


def kinds_of(comparison: Comparison) -> list[str]:
    """What its runs can show beside their place in a sweep: without a model there are no evaluations."""
    runs = comparison.runs
    has_model = any(run.config.get("training", {}).get("model", "none") != "none" for run in runs)
    has_trace = any((run.directory / TRACE).exists() for run in runs)
    has_arrivals = any((run.directory / ARRIVALS).exists() for run in runs)
    is_measured = any((run.directory / MEASURED).exists() for run in runs)
    has_kept = any("offered" in kinds for run in runs for kinds in run.summary.get("samples_kept", {}).values())
    has_lengths = any("test_loss" in run.summary.get("samples_kept", {}).get("by_length", {}) for run in runs)
    return (["curves"] * has_model + ["rounds"] + ["measurements"] * is_measured + ["arrivals"] * has_arrivals +
            ["kept"] * has_kept + ["lengths"] * has_lengths + ["timeline"] * has_trace)


def file_name(*parts: str) -> str:
    """The parts that are not empty, in characters that suit every file system; the end of a long one as a digest.
    A plus is dropped: 1e+06 must not become 1e-06."""
    name = re.sub(r"[^\w.=-]+", "-", "-".join(part for part in parts if part).replace("+", ""))
    return name if len(name) <= 100 else f"{name[:90]}-{crc32(name.encode()):08x}"
