"""The methods among runs of one configuration: what each is called, which runs count, in which order they appear."""

import re
from collections import defaultdict
from dataclasses import dataclass, field

from plots.printable import printable
from plots.runs import Run
from plots.variation import as_words, flat, varying

MPI = " (MPI)"  # ends the label of a method that ran on a wall clock
BASELINE = "sync-sgd"


@dataclass
class Method:
    """A method at one point of a sweep, with one run per seed."""

    label: str  # the same at every point
    runs: list[Run] = field(default_factory=list)  # ascending in seed
    older: list[Run] = field(default_factory=list)  # left out: a newer run has the same seed
    lacks_seeds: bool = False  # another method of the picture has more

    @property
    def name(self) -> str:
        """The label as figures show it."""
        return f"{self.label} ({seeds_text(len(self.runs))})" if self.lacks_seeds else self.label

    @property
    def algorithm(self) -> str:
        return settings(self.runs[0]).get("algorithm", "")

    @property
    def index(self) -> int | None:
        """Position in the experiment file; None if no summary tells it."""
        known = [run.summary["method_index"] for run in self.runs if isinstance(run.summary.get("method_index"), int)]
        return min(known, default=None)


def group_methods(runs: list[Run]) -> list[Method]:
    """A method per label; two under one label whose settings differ are told apart by what differs."""
    labelled = defaultdict(list)
    for run in runs:
        labelled[method_label(run)].append(run)
    members = defaultdict(list)
    for label, of_label in labelled.items():
        for run, differing in zip(of_label, varying([flat(settings(run)) for run in of_label])):
            name = " ".join([label, as_words(differing)]).strip()
            members[name + (MPI if run.directory.name.endswith("-mpi") else "")].append(run)
    methods = in_order([newest_runs(label, of_method) for label, of_method in members.items()])
    for method in methods:
        method.lacks_seeds = len(method.runs) < max(len(other.runs) for other in methods)
    return methods


def newest_runs(label: str, runs: list[Run]) -> Method:
    """A seed run again, say under another description, has two directories; both would count double in means."""
    seeds = defaultdict(list)
    for run in sorted(runs, key=lambda run: (run.written, run.directory)):
        seeds[run.seed].append(run)
    return Method(label, runs=[seeds[seed][-1] for seed in sorted(seeds)],
                  older=[run for seed in sorted(seeds) for run in seeds[seed][:-1]])


def in_order(methods: list[Method]) -> list[Method]:
    """As in the experiment file; where that is not known, the baseline and then by label."""
    if all(method.index is not None for method in methods):
        return sorted(methods, key=lambda method: (method.index, sortable(method.label)))
    return sorted(methods, key=lambda method: (method.algorithm != BASELINE, sortable(method.label)))


def sortable(label: str) -> list:
    """Words without regard to case, numbers by value: period 4 before period 16."""
    parts = re.split(r"(\d+(?:\.\d+)?)", label.casefold())
    return [float(part) if number % 2 else part for number, part in enumerate(parts)]


def method_label(run: Run) -> str:
    return printable(run.summary.get("method") or settings(run).get("label") or run.directory.parent.name)


def settings(run: Run) -> dict:
    """What the configuration says about the run's own method."""
    return (run.config.get("methods") or [{}])[0]


def seeds_text(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"
