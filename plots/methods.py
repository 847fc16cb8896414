"""The methods among runs of one configuration: what each is called, which runs count, in which order they appear."""

import re
from collections import defaultdict
from dataclasses import dataclass, field

from plots.printable import printable
from plots.runs import Run
from plots.variation import as_label, flat, number_text, varying

MPI = " (MPI)"  # ends the label of a method that ran on a wall clock
BASELINE = "sync-sgd"
OWN = "method."  # begins the name of a swept key of a method's own


@dataclass
class Method:
    """A method at one point of a sweep, with one run per seed."""

    label: str  # the same at every point
    runs: list[Run] = field(default_factory=list)  # ascending in seed
    older: list[Run] = field(default_factory=list)  # left out: a newer run has the same seed
    lacks_seeds: bool = False  # another method of the picture has more
    base: str = ""  # the label without what is swept of the method's own
    own: dict[str, str] = field(default_factory=dict)  # that: key and value, or the name that the sweep gives it

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
    members, parts = defaultdict(list), {}
    for label, of_label in labelled.items():
        for run, differing in zip(of_label, own_values(of_label)):
            clock = MPI if run.directory.name.endswith("-mpi") else ""
            name = as_label(label, differing) + clock
            members[name].append(run)
            parts[name] = label + clock, differing
    methods = in_order([newest_runs(label, of_method) for label, of_method in members.items()])
    for method in methods:
        method.base, method.own = parts[method.label]
    for method in methods:
        method.lacks_seeds = len(method.runs) < max(len(other.runs) for other in methods)
    return methods


def own_values(runs: list[Run]) -> list[dict[str, str]]:
    """In what the settings of one method's runs differ, by the names that its sweep gives these values, where each name
    stands for one value."""
    differing = varying([flat(settings(run)) for run in runs])
    named = [{key: value for key, value in swept(run).items() if key.startswith(OWN)} for run in runs]
    return without_prefix(named) if explains(named, differing) else differing


def explains(named: list[dict[str, str]], differing: list[dict[str, str]]) -> bool:
    """Whether equal names are equal values and the other way round."""
    pairs = {(tuple(names.items()), tuple(values.items())) for names, values in zip(named, differing)}
    return len(pairs) == len({names for names, _ in pairs}) == len({values for _, values in pairs})


def without_prefix(named: list[dict[str, str]]) -> list[dict[str, str]]:
    return [{key.removeprefix(OWN): value for key, value in names.items()} for names in named]


def swept(run: Run) -> dict[str, str]:
    """What the experiment file varies: each key and its value, or its name; a key of a method's own as method.KEY."""
    return {column_of(key): shortened(printable(value)) for key, value in run.summary.get("sweep") or []}


def shortened(value: str) -> str:
    """1.25e+08 of 125000000.0."""
    return number_text(float(value)) if re.fullmatch(r"[-+]?\d+\.\d+(e[-+]?\d+)?", value) else value


def column_of(key: str) -> str:
    """method.threshold_s of methods."Drop.Compute".threshold_s, as the tidy tables name it."""
    found = re.fullmatch(r"""methods\.("(?:[^"\\]|\\.)*"|'[^']*'|[^.]*)\.(.+)""", key)
    return OWN + found[2] if found else key


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
