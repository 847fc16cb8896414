"""Which runs belong in one picture: an experiment's methods under one configuration."""

from collections import defaultdict
from dataclasses import dataclass, field

from plots.methods import OWN, Method, group_methods, method_label, settings, swept
from plots.printable import printable
from plots.runs import Run
from plots.variation import flat, is_number

COMMON_PHASE = "common phase"  # the label of a run at whose end others start
NOT_COMPARED = {"name", "description", "seeds", "methods", "recording", "checkpoint"}
DECIDING = ("name", "schedule", "kind", "rule", "form")  # keys that make a table another one (experiments/sections/variation.cpp)
DESCRIBED = {"models": "model", "datasets": "dataset"}  # tables of the file, and the key of [training] that chooses among them
MAY_BE_OTHERWISE = ("training.", *(f"{table}." for table in DESCRIBED))  # for a method


@dataclass
class Comparison:
    """All methods of an experiment at one point of what varies: a sweep, or overrides such as training.model=cnn."""

    experiment: str
    point: dict[str, str]  # what varies among the experiment's runs, beside method and seed
    methods: list[Method]
    config: dict[str, str] = field(default_factory=dict)  # its values of the keys in which the experiment's runs differ

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
        points = points_of(without_common_phases(members))
        comparisons += [Comparison(experiment, dict(point.name), group_methods(point.runs), point.config) for point in points]
    return comparisons


@dataclass
class Placed:
    """A run, with what says where it belongs."""

    run: Run
    names: dict[str, str]  # of what the experiment file varies, its method's own keys left out: key and value
    config: dict[str, str]  # of the keys in which runs differ; "none" where it has no such key
    unused: frozenset[str]  # those of them that do not concern it
    label: str
    own: tuple  # the settings of its method


@dataclass
class Point:
    """A configuration, and the runs at it."""

    names: dict[str, str]
    config: dict[str, str]
    runs: list[Run] = field(default_factory=list)
    own: dict[str, set[tuple]] = field(default_factory=lambda: defaultdict(set))  # by label: settings of runs with all names
    is_beside: bool = False  # what the file varies
    name: dict[str, str] = field(default_factory=dict)  # keys and values that tell it apart from the others


def points_of(runs: list[Run]) -> list[Point]:
    """Each run at the point that its own configuration has, and nowhere else. A run that lacks the name of a swept key is at
    all values of the key only if the key does not concern its method; otherwise it was made beside the sweep, and has a
    point of its own. The program's tables have the same rule (results/result_rows.hpp)."""
    placed = placed_runs(runs)
    keys = list(dict.fromkeys(key for one in placed for key in one.names))
    points: dict[tuple, Point] = {}

    def add(one: Placed, names: dict[str, str]) -> Point:
        identity = (*names.items(), None, *one.config.items())
        point = points.setdefault(identity, Point(names, one.config))
        point.runs.append(one.run)
        point.own[one.label].add(one.own)
        return point

    partial = []
    for one in placed:
        if len(one.names) == len(keys) and not one.unused:
            add(one, {key: one.names[key] for key in keys})
        else:
            partial.append(one)
    named = list(points.values())
    targets = {}  # of runs that differ in the seed alone
    beside = []
    for one in partial:
        alike = (*one.names.items(), None, *one.config.items(), one.unused, one.label, one.own)
        if alike not in targets:
            targets[alike] = points_with(one, named)
        for point in targets[alike]:
            point.runs.append(one.run)
        if not targets[alike]:
            beside.append(one)
    for one in beside:
        point = add(one, names_by_config(one, keys, named))
        point.is_beside = True
    opened = [point for point in points.values() if point.is_beside]
    for one in beside:
        for point in points_with(one, opened):
            if one.run not in point.runs:
                point.runs.append(one.run)
    return named_points(list(points.values()), keys)


def placed_runs(runs: list[Run]) -> list[Placed]:
    whole = [flat({key: value for key, value in run.config.items() if key not in NOT_COMPARED}) for run in runs]
    unused = [unused_keys(run, config) for run, config in zip(runs, whole)]
    values = defaultdict(set)
    every = list(dict.fromkeys(key for config in whole for key in config))
    for config, without in zip(whole, unused):
        for key in every:
            if key not in without:
                values[key].add(config.get(key))
    differing = [key for key in every if len(values[key]) > 1]
    return [Placed(run, {key: value for key, value in swept(run).items() if not key.startswith(OWN)},
                   {key: config.get(key, "none") for key in differing},
                   frozenset(key for key in differing if key in without), method_label(run), own_settings(run))
            for run, config, without in zip(runs, whole, unused)]


def unused_keys(run: Run, config: dict[str, str]) -> frozenset[str]:
    """Keys of the configuration that do not concern the run: its method has them otherwise, or they describe a model or a
    data set that it does not train."""
    own = own_training(run)
    training = {**flat(run.config.get("training", {})), **flat(settings(run).get("training", {}))}
    trained = {kind: {value for key, value in training.items() if key.rsplit(".", 1)[-1] == kind} for kind in DESCRIBED.values()}
    return frozenset(key for key in config if any(f"{key}.".startswith(one if one.endswith(".") else f"{one}.") for one in own) or any(
        key.startswith(f"{table}.") and not any(key.startswith(f"{table}.{name}.") for name in trained[kind])
        for table, kind in DESCRIBED.items()))


def own_settings(run: Run) -> tuple:
    return tuple(flat(settings(run)).items())


def points_with(one: Placed, points: list[Point]) -> list[Point]:
    """At which of them the run is, too."""
    stands = any(agrees(one, point) and all(one.config[key] == point.config[key] for key in point.config if key not in one.unused)
                 for point in points)

    def is_there(point: Point) -> bool:
        if not agrees(one, point):
            return False
        differing = {key for key in point.config if key not in one.unused and one.config[key] != point.config[key]}
        if one.label in point.own:  # the keys concern its method
            return not differing and one.own in point.own[one.label]
        # What a method has otherwise is not to be seen where the file has the same value: at one point.
        return not differing or (stands and len(one.names) < len(point.names) and all(key.startswith(MAY_BE_OTHERWISE) for key in differing))

    return [point for point in points if is_there(point)]


def agrees(one: Placed, point: Point) -> bool:
    return all(point.names.get(key, value) == value for key, value in one.names.items())


def names_by_config(one: Placed, keys: list[str], named: list[Point]) -> dict[str, str]:
    """Of a run beside the sweep: its configuration's values, by the names that the sweep has for them."""
    known = {key: {point.config[key]: point.names[key] for point in named if key in point.config} for key in keys}
    config = flat(one.run.config)
    return {key: one.names.get(key) or known[key].get(config.get(key)) or config.get(key) or f"no {key}" for key in keys}


def named_points(points: list[Point], keys: list[str]) -> list[Point]:
    """In order, each with its name: the sweep's names, and of the other keys those that tell points of the same names apart,
    or that a point beside the sweep has otherwise than all others."""
    by_names = defaultdict(list)
    for point in points:
        by_names[tuple(point.names.items())].append(point)
    of_sweep = defaultdict(set)
    for point in points:
        for key, value in point.config.items():
            if not point.is_beside:
                of_sweep[key].add(value)
    others = {key for alike in by_names.values() for key in alike[0].config if len({point.config[key] for point in alike}) > 1}
    others |= {key for point in points if point.is_beside for key, value in point.config.items() if value not in of_sweep[key]}
    for point in points:
        point.name = {**point.names, **{key: value for key, value in point.config.items() if key in others and key not in keys}}
    if not keys:
        return points
    firsts = [min(point.runs, key=lambda run: run.written) for point in points]
    return [points[place] for place in in_order(list(range(len(points))), firsts, [point.name for point in points],
                                                list(points[0].name))]


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


def own_training(run: Run) -> tuple[str, ...]:
    """Beginnings of the keys of [training] that the run's method has otherwise; all of a table that it names anew."""
    keys = flat(settings(run).get("training", {}), "training.")
    return tuple(key.rsplit(".", 1)[0] + "." if key.count(".") > 1 and key.rsplit(".", 1)[-1] in DECIDING else key for key in keys)


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
    if any(run.config.get("network", {}).get("contention") is False for run in comparison.runs):
        parts.append("links are not shared")
    seeds = {len(method.runs) for method in methods or comparison.methods}
    bound = "up to " if len(seeds) > 1 else ""
    parts.append("one seed" if seeds == {1} else f"line: mean of {bound}{max(seeds)} seeds, band: lowest to highest")
    return printable("  ·  ".join(parts))
