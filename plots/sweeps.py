"""Sweeps: runs of an experiment that differ in one number, of the whole configuration or of a method's own."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from plots.comparison import Comparison
from plots.methods import Method, in_order, settings
from plots.runs import Run
from plots.variation import as_label, flat, is_number, value_text

FEWEST_POINTS = 3


@dataclass
class Line:
    """A method along the key."""

    label: str
    methods: dict[float, Method] = field(default_factory=dict)  # ascending in the key's number
    everywhere: Method | None = None  # instead: the key does not concern it

    def runs(self, x: float) -> list[Run]:
        method = self.everywhere or self.methods.get(x)
        return method.runs if method else []


@dataclass
class Sweep:
    """Lines along one key; `others` are what else varies in the experiment, as it is here."""

    key: str
    others: dict[str, str]
    lines: list[Line]
    names: dict[float, str]  # of the values: their own, or as the sweep calls them
    where: Comparison  # at one of its points: what was run

    @property
    def experiment(self) -> str:
        return self.where.experiment

    @property
    def xs(self) -> list[float]:
        return sorted(self.names)

    @property
    def runs(self) -> list[Run]:
        return [run for line in self.lines for method in (line.everywhere, *line.methods.values()) if method
                for run in method.runs]


def find_sweeps(comparisons: list[Comparison]) -> list[Sweep]:
    """Of each experiment along the numeric key of the configuration with the most values, one for each value of the
    others; and along each number of methods' own."""
    experiments = defaultdict(list)
    for comparison in comparisons:
        experiments[comparison.experiment].append(comparison)
    return [sweep for points in experiments.values() for sweep in (*along_the_longest(points), *along_own_keys(points))]


def along_the_longest(points: list[Comparison]) -> list[Sweep]:
    numbers = numeric_keys(points)
    if not numbers:
        return []
    key = max(numbers, key=lambda key: len(numbers[key]))
    follows = {other for other in points[0].point if other != key and goes_with(points, key, other)}
    groups = defaultdict(list)
    for point in points:
        groups[tuple((other, value) for other, value in point.point.items() if other != key and other not in follows)].append(point)
    return [sweep_of(key, dict(others), sorted(members, key=lambda point: numbers[key][point.point[key]]), numbers[key])
            for others, members in groups.items() if len(members) >= FEWEST_POINTS]


def goes_with(points: list[Comparison], key: str, other: str) -> bool:
    """Whether each value of the key has its own value of the other: they are swept together."""
    pairs = {(point.point[key], point.point[other]) for point in points}
    return len(pairs) == len({value for value, _ in pairs}) == len({value for _, value in pairs})


def numeric_keys(points: list[Comparison]) -> dict[str, dict[str, float]]:
    """By key the number behind each of its values."""
    found = {}
    for key in points[0].point:
        numbers = {point.point[key]: number_of(point.point[key], point.config.get(key) or flat(point.runs[0].config).get(key))
                   for point in points}
        if None not in numbers.values() and len(set(numbers.values())) == len(numbers) > 1:
            found[key] = numbers
    return found


def number_of(name: str, value: str | None) -> float | None:
    """The name itself, if it is a number; or what it is the name of."""
    return next((float(text) for text in (name, value) if text is not None and is_number(text)), None)


def sweep_of(key: str, others: dict[str, str], points: list[Comparison], numbers: dict[str, float]) -> Sweep:
    lines: dict[str, Line] = {}
    methods = in_order([method for point in points for method in point.methods])
    for label in dict.fromkeys(method.label for method in methods):
        lines[label] = Line(label, {numbers[point.point[key]]: method for point in points for method in point.methods
                                    if method.label == label})
    names = {numbers[point.point[key]]: value_text(key, point.point[key]) for point in points}
    return Sweep(key, others, list(lines.values()), names, points[0])


def along_own_keys(points: list[Comparison]) -> list[Sweep]:
    sweeps = []
    for point in points:
        for key in dict.fromkeys(key for method in point.methods for key in method.own):
            if sweep := along_own_key(point, key):
                sweeps.append(sweep)
    return sweeps


def along_own_key(point: Comparison, key: str) -> Sweep | None:
    """Methods without numbers of their own are the same everywhere; those with others have other figures. A key that
    always goes with an earlier one of the same method has no figure of its own."""
    lines, names = defaultdict(dict), {}
    for method in point.methods:
        if key not in method.own:
            continue
        x = number_of(method.own[key], flat(settings(method.runs[0])).get(key))
        if x is None or follows_another(point.methods, method.base, key):
            continue
        others = {other: value for other, value in method.own.items()
                  if other != key and not follows_another(point.methods, method.base, other)}
        lines[as_label(method.base, others)][x] = method
        names[x] = value_text(key, method.own[key])
    if max((len(line) for line in lines.values()), default=0) < FEWEST_POINTS:
        return None
    found = [Line(label, dict(sorted(line.items()))) for label, line in lines.items()]
    constant = [Line(method.label, everywhere=method) for method in point.methods if not method.own]
    return Sweep(key, point.point, in_file_order([*constant, *found]), names, point)


def in_file_order(lines: Iterable[Line]) -> list[Line]:
    def first(line: Line) -> Method:
        return line.everywhere or next(iter(line.methods.values()))

    order = {method.label: place for place, method in enumerate(in_order([first(line) for line in lines]))}
    return sorted(lines, key=lambda line: order[first(line).label])


def follows_another(methods: list[Method], base: str, key: str) -> bool:
    """Whether an earlier key of the method has its own value for each of this one's."""
    owns = [method.own for method in methods if method.base == base and key in method.own]
    for earlier in owns[0]:
        if earlier == key:
            return False
        pairs = {(own.get(earlier), own[key]) for own in owns}
        if len(pairs) == len({value for value, _ in pairs}) == len({value for _, value in pairs}):
            return True
    return False
