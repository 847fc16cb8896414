"""Which figures there are to draw, known from the runs' documents alone."""

import re
from dataclasses import dataclass
from zlib import crc32

from plots.comparison import Comparison
from plots.runs import MEASURED
from plots.sweeps import Sweep, find_sweeps
from plots.traces import TRACE
from plots.variation import as_words

ARRIVALS = "arrivals.csv.gz"  # when gradients came, if a run has recorded it
KINDS = ["sweep", "curves", "rounds", "measurements", "arrivals", "kept", "lengths", "timeline"]


@dataclass
class Planned:
    """A figure; there will be none where the tables turn out to have nothing for it."""

    kind: str
    shown: Sweep | Comparison
    name: str  # of its files


def plan_figures(comparisons: list[Comparison], kinds: list[str]) -> list[Planned]:
    several = len({comparison.experiment for comparison in comparisons}) > 1

    def planned(kind: str, shown: Sweep | Comparison, point: dict[str, str]) -> Planned:
        return Planned(kind, shown, file_name(kind, shown.experiment if several else "", as_words(point)))

    plan = [planned("sweep", sweep, sweep.others) for sweep in find_sweeps(comparisons)]
    plan += [planned(kind, comparison, comparison.point) for comparison in comparisons for kind in kinds_of(comparison)]
    return [figure for figure in plan if figure.kind in kinds]


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
