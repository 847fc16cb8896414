"""Groups the runs that belong in one picture, that is, the methods of an experiment at a point of a sweep. Names the
groups."""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from math import isclose, isfinite

from plots.runs import Run
from plots.terminal import printable

RATE = re.compile(r"[0-9.]+ [kMGT]?(bit|B|bytes)/s")
BANDWIDTH = "bandwidth_bytes_per_s"
SIZES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
# Last parts of keys that are unclear without the key's table: "peak learning rate", "coefficient of the period".
BEFORE_TABLE, OF_TABLE = {"peak", "final", "minimum"}, {"coefficient", "power"}
SECTIONS = {"training", "cluster", "network", "budget", "evaluation"}  # tables whose names add nothing to a key

MPI = " (MPI)"  # at the end of the label of a method that ran under MPI
BASELINE = "sync-sgd"
OWN = "method."  # prefix of a method's own swept keys

COMMON_PHASE = "common phase"  # the label of a run that ends in the model from which others start
WITHOUT_DATA = {"quadratic", "valley", "diagonal-linear"}  # models that use no data set
NOT_COMPARED = {"name", "description", "seeds", "methods", "recording", "checkpoint"}
DECIDING = ("name", "schedule", "kind", "rule", "form")  # a method that sets one replaces the whole table
DESCRIBED = {"models": "model", "datasets": "dataset"}  # tables, each with the key of [training] that chooses from it
MAY_BE_OTHERWISE = ("training.", *(f"{table}." for table in DESCRIBED))  # prefixes of keys that a method may override
BETWEEN = "  ·  "  # separates the parts of a subtitle


def flat(table: dict, prefix: str = "") -> dict[str, str]:
    """Flattens nested tables: {"a": {"b": 1}} becomes {"a.b": "1"}."""
    result = {}
    for key, value in table.items():
        if isinstance(value, dict):
            result.update(flat(value, f"{prefix}{key}."))
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            result.update(flat({str(index): entry for index, entry in enumerate(value)}, f"{prefix}{key}."))
        else:
            result[prefix + key] = number_text(value) if isinstance(value, float) else str(value)
    return result


def number_text(value: float) -> str:
    """The shortest usual notation from which the same number is read, so that different numbers have different
    texts."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def varying(tables: list[dict[str, str]]) -> list[dict[str, str]]:
    """Each table with only those keys whose values differ among the tables; "none" for a key that a table lacks."""
    keys = list(dict.fromkeys(key for table in tables for key in table))
    differing = [key for key in keys if len({table.get(key) for table in tables}) > 1]
    return [{key: table.get(key, "none") for key in differing} for table in tables]


def as_words(point: dict[str, str], between: str = " ", equals: str = "=") -> str:
    """{"cluster.workers": "8"} as workers=8. A value that is clear without its key has no key (see alone())."""
    return printable(between.join(alone(key, value) or f"{key.rsplit('.', 1)[-1]}{equals}{short_value(value)}"
                                  for key, value in point.items()))


def alone(key: str, value: str) -> str:
    """The text of a value that is clear without its key, as in the program's tables (results/run.cpp): a variant's
    label, or a bandwidth as "10 Gbit/s", even if the file gives it in bytes per second. Empty for other values."""
    if key == "variant" or key.endswith(BANDWIDTH) and RATE.fullmatch(value):
        return value
    return bits_per_s(value) if key.endswith(BANDWIDTH) else ""


def value_text(key: str, value: str) -> str:
    """The value as shown along an axis of its key."""
    return alone(key, value) or value


def bits_per_s(value: str) -> str:
    """125000000.0 bytes per second as "1 Gbit/s"; empty if the text is not a number, or needs more than six digits."""
    if not is_number(value) or not float(value) > 0:
        return ""
    bits = 8 * float(value)
    size, letter = next(((size, letter) for size, letter in SIZES if bits >= size), (1, ""))
    short = f"{bits / size:.6g}"
    return f"{short} {letter}bit/s" if isclose(float(short) * size, bits, rel_tol=1e-12) else ""


def in_words(point: dict[str, str], between: str = ", ") -> str:
    """A point for titles: {"x.threshold_s": "12 to 26", "y.bandwidth_bytes_per_s": "10 Gbit/s"} as "threshold = 12 to 26 s,
    10 Gbit/s"."""
    return printable(between.join(alone(key, value) or worded(key_name(key), value)
                                  for key, value in point.items()))


def worded(key: str, value: str) -> str:
    """A key and its value in words: threshold = 12 to 26 s. Without a unit if the value is a name, which has its
    own."""
    found = re.fullmatch(r"(.+?)(?:_(?:(bytes)_)?(?:per_)?s)?", key)
    words = found[1].replace("_", " ")
    has_unit = found[1] != key and all(is_number(re.sub("[kMG]$", "", end)) for end in value.split(" to "))
    unit = "" if not has_unit else f" {found[2] or '1'}/s" if key.endswith("_per_s") else " s"
    return f"{words} = {' to '.join(short_value(end) for end in value.split(' to '))}{unit}"


def as_label(name: str, point: dict[str, str]) -> str:
    """A label as in the program's tables (run_label in results/run.hpp): DropCompute, threshold_s = 0.07."""
    return ", ".join(part for part in (name, as_words(point, ", ", " = ")) if part)


def short_value(text: str) -> str:
    """1250000000.0 as 1.25G; a number that needs more than six digits is unchanged."""
    if not is_number(text) or abs(number := float(text)) < 1e4:
        return text
    size, letter = next((size, letter) for size, letter in SIZES if abs(number) >= size)
    short = f"{number / size:.6g}"
    return short + letter if isclose(float(short) * size, number, rel_tol=1e-12) else text


def is_number(text: str) -> bool:
    try:
        return isfinite(float(text))
    except ValueError:
        return False


def key_label(key: str) -> str:
    """The last part of the key in words, with its unit in brackets."""
    words = key_name(printable(key))
    words = re.sub(r"_(bytes)?_?per_s$", lambda found: f" ({found[1] or '1'}/s)", words)
    words = re.sub(r"_s$", " (s)", words)
    return words.replace("_", " ").replace("micro batch", "micro-batch")


def key_name(key: str) -> str:
    """The last part of the key, with its table's name if it is unclear without that name."""
    *parents, last = key.split(".")
    if not parents or parents[-1] in SECTIONS or parents[-1].isdigit():
        return last
    if last in BEFORE_TABLE:
        return f"{last} {parents[-1]}"
    return f"{last} of the {parents[-1]}" if last in OF_TABLE else last


def is_same_value(one: str, other: str) -> bool:
    """Whether two texts are equal or represent the same number, such as 0.010 and 0.01."""
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other


def are_one_to_one(pairs: set[tuple]) -> bool:
    """Whether each first member has one second member only, and each second member one first member only."""
    return len(pairs) == len({first for first, _ in pairs}) == len({second for _, second in pairs})


@dataclass
class Method:
    """A method at one point of a sweep, with one run per seed."""

    label: str  # equal at all points
    runs: list[Run] = field(default_factory=list)  # ascending in seed
    older: list[Run] = field(default_factory=list)  # runs that do not count, because a newer run has the same seed
    lacks_seeds: bool = False  # whether another method of the picture has more seeds
    base: str = ""  # the label without the method's own swept keys
    own: dict[str, str] = field(default_factory=dict)  # these keys, each with its value or the sweep's name of it

    @property
    def name(self) -> str:
        """The label in figures."""
        return f"{self.label} ({seeds_text(len(self.runs))})" if self.lacks_seeds else self.label

    @property
    def algorithm(self) -> str:
        return settings(self.runs[0]).get("algorithm", "")

    @property
    def index(self) -> int | None:
        """The method's position in the experiment file; None if no summary contains it."""
        known = [run.summary["method_index"] for run in self.runs if isinstance(run.summary.get("method_index"), int)]
        return min(known, default=None)


def group_methods(runs: list[Run]) -> list[Method]:
    """Groups runs into methods, one per label. If runs of a label have different settings, these become part of it."""
    labelled = defaultdict(list)
    for run in runs:
        labelled[method_label(run)].append(run)
    members, parts = defaultdict(list), {}
    for label, of_label in labelled.items():
        for run, differing in zip(of_label, own_values(of_label)):
            clock = MPI if run.on_wall_clock else ""
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
    """For each run of one method, the settings in which runs differ, or the sweep's names for them if unique."""
    differing = varying([flat(settings(run)) for run in runs])
    named = [{key.removeprefix(OWN): value for key, value in swept(run).items() if key.startswith(OWN)} for run in runs]
    pairs = {(tuple(names.items()), tuple(values.items())) for names, values in zip(named, differing)}
    return named if are_one_to_one(pairs) else differing


def swept(run: Run) -> dict[str, str]:
    """The keys that the experiment file varies, with their values or names. A method's own key becomes method.KEY."""
    return {column_of(key): shortened(printable(value)) for key, value in run.summary.get("sweep") or []}


def shortened(value: str) -> str:
    """125000000.0 as 1.25e+08."""
    return number_text(float(value)) if re.fullmatch(r"[-+]?\d+\.\d+(e[-+]?\d+)?", value) else value


def column_of(key: str) -> str:
    """methods."Drop.Compute".threshold_s as method.threshold_s, the name in exported tables."""
    found = re.fullmatch(r"""methods\.("(?:[^"\\]|\\.)*"|'[^']*'|[^.]*)\.(.+)""", key)
    return OWN + found[2] if found else key


def newest_runs(label: str, runs: list[Run]) -> Method:
    """The newest run of each seed. A seed that was run twice, for instance with another description, counts once."""
    seeds = defaultdict(list)
    for run in sorted(runs, key=lambda run: (run.written, run.directory)):
        seeds[run.seed].append(run)
    return Method(label, runs=[seeds[seed][-1] for seed in sorted(seeds)],
                  older=[run for seed in sorted(seeds) for run in seeds[seed][:-1]])


def in_order(methods: list[Method]) -> list[Method]:
    """The methods in the order of the experiment file; if unknown, the baseline first and the others by label."""
    if all(method.index is not None for method in methods):
        return sorted(methods, key=lambda method: (method.index, sortable(method.label)))
    return sorted(methods, key=lambda method: (method.algorithm != BASELINE, sortable(method.label)))


def sortable(label: str) -> list:
    """A key for sorting that ignores case and compares numbers by value: period 4 before period 16."""
    parts = re.split(r"(\d+(?:\.\d+)?)", label.casefold())
    return [float(part) if number % 2 else part for number, part in enumerate(parts)]


def method_label(run: Run) -> str:
    return printable(run.summary.get("method") or settings(run).get("label") or run.directory.parent.name)


def settings(run: Run) -> dict:
    """The table of the run's method in its configuration."""
    return (run.config.get("methods") or [{}])[0]


def seeds_text(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


@dataclass
class Comparison:
    """All methods of an experiment at one point. Points differ by a sweep, or by overrides such as
    training.model=cnn."""

    experiment: str
    point: dict[str, str]  # keys that vary among the experiment's runs, except method and seed, with their values here
    methods: list[Method]
    config: dict[str, str] = field(default_factory=dict)  # keys in which the experiment's runs differ, and values here

    @property
    def runs(self) -> list[Run]:
        return [run for method in self.methods for run in method.runs]


def compare(runs: list[Run]) -> list[Comparison]:
    """Groups runs by experiment and configuration."""
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
    """A run, and the keys by which it is assigned to points."""

    run: Run
    names: dict[str, str]  # keys that the experiment file varies, except keys of the method, with their values
    config: dict[str, str]  # keys in which runs differ, with their values; "none" if the run lacks the key
    unused: frozenset[str]  # keys in `config` that do not affect the run
    label: str
    own: tuple  # settings of the run's method


@dataclass
class Point:
    """A configuration, and the runs that belong to it."""

    names: dict[str, str]
    config: dict[str, str]
    runs: list[Run] = field(default_factory=list)
    own: dict[str, set[tuple]] = field(default_factory=lambda: defaultdict(set))  # by label: settings of runs with all names
    is_beside: bool = False  # whether its runs were made outside the sweep
    name: dict[str, str] = field(default_factory=dict)  # keys and values that distinguish the point from all others


def points_of(runs: list[Run]) -> list[Point]:
    """Assigns each run to the point of its own configuration. A run that lacks a swept key belongs to all values of the
    key if the key does not apply to its method. Otherwise it was made outside the sweep and has its own point. The
    program's tables use the same rule (results/found_runs.hpp)."""
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
    targets = {}  # runs that differ only in the seed have the same targets
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
                   frozenset(key for key in differing if key in without), method_label(run), tuple(flat(settings(run)).items()))
            for run, config, without in zip(runs, whole, unused)]


def unused_keys(run: Run, config: dict[str, str]) -> frozenset[str]:
    """Keys of the configuration that do not apply to the run: its method overrides them, or they describe a model or
    data set that it does not use."""
    own = own_training(run)
    training = {**flat(run.config.get("training", {})), **flat(settings(run).get("training", {}))}
    trained = {kind: {value for key, value in training.items() if key.rsplit(".", 1)[-1] == kind} for kind in DESCRIBED.values()}
    return frozenset(key for key in config if any(f"{key}.".startswith(one if one.endswith(".") else f"{one}.") for one in own) or any(
        key.startswith(f"{table}.") and not any(key.startswith(f"{table}.{name}.") for name in trained[kind])
        for table, kind in DESCRIBED.items()))


def points_with(one: Placed, points: list[Point]) -> list[Point]:
    """The points to which the run belongs, in addition to that of its own configuration."""
    stands = any(agrees(one, point) and all(one.config[key] == point.config[key] for key in point.config if key not in one.unused)
                 for point in points)

    def is_there(point: Point) -> bool:
        if not agrees(one, point):
            return False
        differing = {key for key in point.config if key not in one.unused and one.config[key] != point.config[key]}
        if one.label in point.own:  # the keys affect the run's method
            return not differing and one.own in point.own[one.label]
        # At one point the file's value may equal the method's override. The configurations do not differ there.
        return not differing or (stands and len(one.names) < len(point.names) and all(key.startswith(MAY_BE_OTHERWISE) for key in differing))

    return [point for point in points if is_there(point)]


def agrees(one: Placed, point: Point) -> bool:
    return all(point.names.get(key, value) == value for key, value in one.names.items())


def names_by_config(one: Placed, keys: list[str], named: list[Point]) -> dict[str, str]:
    """The values of the swept keys for a run outside the sweep, by the sweep's names if it has these values."""
    known = {key: {point.config[key]: point.names[key] for point in named if key in point.config} for key in keys}
    config = flat(one.run.config)
    return {key: one.names.get(key) or known[key].get(config.get(key)) or config.get(key) or f"no {key}" for key in keys}


def named_points(points: list[Point], keys: list[str]) -> list[Point]:
    """The points in order, with their names. These are the sweep's names. Further keys are added if points have equal
    names, or if a point outside the sweep differs from all others in these keys."""
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
    return [points[place] for place in places_in_order(firsts, [point.name for point in points], list(points[0].name))]


def points_in_order(comparisons: list[Comparison]) -> list[Comparison]:
    """The comparisons of one experiment in the order of places_in_order()."""
    keys = list(dict.fromkeys(key for one in comparisons for key in one.point))
    firsts = [min(one.runs, key=lambda run: run.written) for one in comparisons]
    named = [{key: one.point.get(key, "") for key in keys} for one in comparisons]
    return [comparisons[place] for place in places_in_order(firsts, named, keys)]


def places_in_order(firsts: list[Run], named: list[dict[str, str]], keys: list[str]) -> list[int]:
    """Positions in ascending order of the keys' values. `firsts`: the first run at each position; `named`: its value of
    each key. Values that are not numbers, such as variants, are in the order in which they were first run."""
    places = range(len(firsts))
    numeric = {key: all(is_number(name[key]) for name in named) for key in keys}
    begun = {(key, value): min(run.written for run, name in zip(firsts, named) if name[key] == value)
             for key in keys for value in {name[key] for name in named}}
    return sorted(places, key=lambda place: [float(named[place][key]) if numeric[key] else begun[key, named[place][key]]
                                             for key in keys])


def own_training(run: Run) -> tuple[str, ...]:
    """Prefixes of the keys of [training] that the run's method overrides. If the method sets a key in DECIDING, such as
    another schedule, it overrides the whole table (experiments/sections/variation.cpp)."""
    keys = flat(settings(run).get("training", {}), "training.")
    return tuple(key.rsplit(".", 1)[0] + "." if key.count(".") > 1 and key.rsplit(".", 1)[-1] in DECIDING else key for key in keys)


def without_common_phases(runs: list[Run]) -> list[Run]:
    """Leaves out the runs of common phases: methods count steps and time from the end of their common phase."""
    if not any("common" in run.config.get("training", {}) for run in runs):
        return runs
    return [run for run in runs if method_label(run) != COMMON_PHASE]


def in_common(comparisons: list[Comparison]) -> dict[str, str]:
    """The varying keys whose values are equal in all of these comparisons."""
    first, *others = (comparison.point for comparison in comparisons)
    return {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}


def experiments_among(comparisons: list[Comparison]) -> list[str]:
    return list(dict.fromkeys(comparison.experiment for comparison in comparisons))


def heading(comparison: Comparison) -> str:
    newest = max(comparison.runs, key=lambda run: run.written)
    lines = (newest.config.get("description") or comparison.experiment).splitlines()
    return printable(" ".join(line.strip() for line in lines))


def subtitle(comparison: Comparison, point: str, methods: list[Method] | None = None) -> str:
    """The subtitle: experiment, workers, model, point, number of seeds. `methods`: those in the figure; None: all."""
    config = comparison.runs[0].config
    training, parts = config.get("training", {}), [comparison.experiment]
    workers = config.get("cluster", {}).get("workers")
    if workers and "workers=" not in point.replace(" ", ""):
        parts.append(f"{workers} worker" + ("" if workers == 1 else "s"))
    if point:
        parts.append(point)
    model, dataset = training.get("model", "none"), training.get("dataset")
    if model != "none":
        parts.append(f"{model} on {dataset}" if dataset and model not in WITHOUT_DATA else model)
    if any(run.config.get("network", {}).get("contention") is False for run in comparison.runs):
        parts.append("links are not shared")
    seeds = {len(method.runs) for method in methods or comparison.methods}
    bound = "up to " if len(seeds) > 1 else ""
    parts.append("one seed" if seeds == {1} else f"line: mean of {bound}{max(seeds)} seeds, band: lowest to highest")
    return printable(BETWEEN.join(parts))


def without_band(text: str) -> str:
    """A subtitle without the part that explains lines and bands, for figures that have none."""
    return BETWEEN.join(part for part in text.split(BETWEEN) if not part.startswith("line: mean"))


def panel_name(comparison: Comparison, comparisons: list[Comparison], without: str = "") -> str:
    """The values in which a comparison differs from the others. `without`: a key to leave out."""
    several = len(experiments_among(comparisons)) > 1
    point = {key: value for key, value in comparison.point.items() if key != without and key not in in_common(comparisons)}
    parts = [comparison.experiment * several, in_words(point)]
    return ", ".join(part for part in parts if part)


def described(comparisons: list[Comparison], key: str = "") -> str:
    """The subtitle of a figure with one panel per comparison. `key`: the key of the panels' horizontal axis."""
    shown = subtitle(comparisons[0], "", [method for comparison in comparisons for method in comparison.methods])
    parts = shown.split(BETWEEN)
    if len(experiments_among(comparisons)) > 1:
        parts[0] = f"{len(comparisons)} experiments"
    varies = {key, *(key for one in comparisons for key in one.point)}
    shared = {name: value for name, value in in_common(comparisons).items() if name != key}
    common = in_words(shared)
    numbers = {one.runs[0].config.get("cluster", {}).get("workers") for one in comparisons}  # may differ by variant
    alike = "cluster.workers" not in varies and len(numbers) == 1
    return BETWEEN.join([*(part for part in parts if not re.fullmatch(r"\d+ workers?", part) or alike), *([common] if common else [])])


def bars_described(comparisons: list[Comparison]) -> str:
    """Like described(), for bars with intervals instead of lines with bands."""
    return described(comparisons).replace("line: ", "").replace("band: lowest to highest", "its 95 % interval")
