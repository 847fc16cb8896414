"""Which runs belong in one picture: an experiment's methods under one configuration."""

from collections import defaultdict
from dataclasses import dataclass

from plots.methods import OWN, Method, group_methods, method_label, settings, swept
from plots.printable import printable
from plots.runs import Run
from plots.variation import flat, is_number, varying

COMMON_PHASE = "common phase"  # the label of a run at whose end others start
NOT_COMPARED = {"name", "description", "seeds", "methods", "recording", "checkpoint"}


@dataclass
class Comparison:
    """All methods of an experiment at one point of what varies: a sweep, or overrides such as training.model=cnn."""

    experiment: str
    point: dict[str, str]  # what varies among the experiment's runs, beside method and seed
    methods: list[Method]

    @property
    def runs(self) -> list[Run]:
        return [run for method in self.methods for run in method.runs]


def compare(runs: list[Run]) -> list[Comparison]:
    """Runs grouped by experiment and configuration."""
    experiments = defaultdict(list)
    for run in runs:
        experiments[printable(run.config.get("name") or run.directory.parent.parent.name)].append(run)
    comparisons = []
    for experiment, members in experiments.items():
        members = without_common_phases(members)
        groups = points_by_name(members) or points_by_value(members)
        comparisons += [Comparison(experiment, dict(point), group_methods(group)) for point, group in groups.items()]
    return comparisons


def points_by_value(runs: list[Run]) -> dict[tuple, list[Run]]:
    """By what differs in the configurations."""
    points = varying([flat({key: value for key, value in run.config.items() if key not in NOT_COMPARED}) for run in runs])
    groups = defaultdict(list)
    for run, point in zip(runs, points):
        groups[tuple(point.items())].append(run)
    add_to_other_points(groups)
    return groups


def points_by_name(runs: list[Run]) -> dict[tuple, list[Run]]:
    """By the names that the experiment file gives what it varies (a variant's label, not all that it changes); empty where
    one name stands for several configurations. A run that a key does not concern belongs to each of its values."""
    named = [{key: value for key, value in swept(run).items() if not key.startswith(OWN)} for run in runs]
    keys = list(dict.fromkeys(key for names in named for key in names))
    configs = varying([flat({key: value for key, value in run.config.items() if key not in NOT_COMPARED}) for run in runs])
    whole = [number for number, names in enumerate(named) if len(names) == len(keys)]
    pairs = {(tuple(named[number].items()), tuple(configs[number].items())) for number in whole}
    if not keys or not whole or len(pairs) > len({names for names, _ in pairs}):
        return {}
    groups = {tuple((key, named[number][key]) for key in keys): [] for number in in_order(whole, runs, named, keys)}
    for point, members in groups.items():
        members += [run for run, names in zip(runs, named) if all(dict(point)[key] == names[key] for key in names)]
    present = {id(run) for members in groups.values() for run in members}
    return groups if all(id(run) in present for run in runs) else {}


def points_in_order(comparisons: list[Comparison]) -> list[Comparison]:
    """Of one experiment, as in_order has places of runs."""
    keys = list(dict.fromkeys(key for one in comparisons for key in one.point))
    runs = [one.runs[0] for one in comparisons]
    firsts = {id(run): min(other.written for other in one.runs) for run, one in zip(runs, comparisons)}
    named = [{key: one.point.get(key, "") for key in keys} for one in comparisons]
    return [comparisons[place] for place in in_order(list(range(len(comparisons))), runs, named, keys, firsts)]


def in_order(places: list[int], runs: list[Run], named: list[dict[str, str]], keys: list[str],
             firsts: dict[int, str] | None = None) -> list[int]:
    """Ascending in numbers; what has no number, such as variants, as it was run first."""
    numeric = {key: all(is_number(named[place][key]) for place in places) for key in keys}
    written = {place: (firsts or {}).get(id(runs[place]), runs[place].written) for place in places}
    first = {(key, value): min(written[place] for place in places if named[place][key] == value)
             for key in keys for value in {named[place][key] for place in places}}
    return sorted(places, key=lambda place: [float(named[place][key]) if numeric[key] else first[key, named[place][key]]
                                             for key in keys])


def add_to_other_points(groups: dict[tuple, list[Run]]) -> None:
    """A method that has otherwise what varies in [training] is run once for all its values: it belongs to each."""
    runs = [(dict(point), run) for point, members in groups.items() for run in members]
    for other, members in groups.items():
        present = {(method_label(run), run.seed) for run in members}
        for point, run in runs:
            own = own_training(run)
            concerned = own and all(value == point[key] or key.startswith(own) for key, value in other)
            if concerned and (method_label(run), run.seed) not in present:
                members.append(run)
                present.add((method_label(run), run.seed))


def own_training(run: Run) -> tuple[str, ...]:
    """Beginnings of the keys of [training] that the run's method has otherwise; all of a table that it names anew."""
    keys = flat(settings(run).get("training", {}), "training.")
    return tuple(key.rsplit(".", 1)[0] + "." if key.rsplit(".", 1)[-1] in ("name", "schedule", "form") else key
                 for key in keys)


def without_common_phases(runs: list[Run]) -> list[Run]:
    """Methods count steps and time from the end of their common phase: beside them it is no method of its own."""
    if not any("common" in run.config.get("training", {}) for run in runs):
        return runs
    return [run for run in runs if method_label(run) != COMMON_PHASE]


def in_common(comparisons: list[Comparison]) -> dict[str, str]:
    """What varies elsewhere and has one value in all of them."""
    first, *others = (comparison.point for comparison in comparisons)
    return {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}


def heading(comparison: Comparison) -> str:
    newest = max(comparison.runs, key=lambda run: run.written)
    lines = (newest.config.get("description") or comparison.experiment).splitlines()
    return printable(" ".join(line.strip() for line in lines))


def subtitle(comparison: Comparison, point: str, methods: list[Method] | None = None) -> str:
    """What was run, and over how many seeds the lines go: those of `methods`, or else of the comparison."""
    config = comparison.runs[0].config
    training, parts = config.get("training", {}), [comparison.experiment]
    workers = config.get("cluster", {}).get("workers")
    if workers and "workers=" not in point.replace(" ", ""):
        parts.append(f"{workers} worker" + ("" if workers == 1 else "s"))
    if point:
        parts.append(point)
    model, dataset = training.get("model", "none"), training.get("dataset")
    if model != "none":
        parts.append(f"{model} on {dataset}" if dataset and model != "quadratic" else model)
    seeds = {len(method.runs) for method in methods or comparison.methods}
    bound = "up to " if len(seeds) > 1 else ""
    parts.append("one seed" if seeds == {1} else f"line: mean of {bound}{max(seeds)} seeds, band: lowest to highest")
    return printable("  ·  ".join(parts))
