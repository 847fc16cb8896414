"""Sweeps: runs of an experiment that differ in one number of the configuration or of a method. Their figures have
panels with lines of means, bands, formulas, linear scaling, best points and papers' numbers."""

from collections import defaultdict
from dataclasses import dataclass, field

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from plots import style
from plots.claims import LOOK, Expected, Published, expected_by_theory
from plots.comparison import (BANDWIDTH, BASELINE, RATE, SIZES, Comparison, Method, are_one_to_one, as_label, described, flat,
                              heading, in_order, in_words, is_number, is_same_value, key_label, method_label, panel_name,
                              seeds_text, settings, subtitle, value_text)
from plots.curves import ACROSS
from plots.numbers import (ACCURACY, BYTES, DROPPED, KNOWN, LOSS, SPEED, SPEED_OF_ONE, SPEED_UP, STEP_TIME, TIME_TO_TARGET, Quantity,
                           best_of, claimed_quantity, number, samples_per_s)
from plots.runs import Run
from plots.sheet import Place, Sheet, shared_out, wrapped
from plots.terminal import printable

FEWEST_POINTS = 3
OF_TIMES = (SPEED, STEP_TIME, SPEED_UP, DROPPED)
THIN = [(0, (1, 1.3)), (0, (5, 1.5, 1, 1.5)), (0, (5, 1.5, 1, 1.5, 1, 1.5)), (0, (2, 3))]  # dashes of formulas, the last first
MISSED = {"linestyle": "none", "marker": "x", "markeredgewidth": 1.3}  # the mark where a seed missed the target
MISSED_ROW = 0.05  # height of a row of such marks, as a share of the panel's height
ALIKE = 1e-4  # values that differ by less than this share count as one
# The mark at the middle of the range that a claim of theory gives for the mean.
THEORY = {"linestyle": "none", "marker": "_", "color": style.INK, "markeredgecolor": style.INK, "markeredgewidth": 1.1, "zorder": 5}
ALONE = 7.2, 3.9  # inches of a panel that is alone in its figure
LEAST_ASSUMED = ""  # stands for the formula with the fewest assumptions, which may vary along the sweep


@dataclass
class Line:
    """A method along the swept key."""

    label: str
    methods: dict[float, Method] = field(default_factory=dict)  # by the key's number, ascending
    everywhere: Method | None = None  # the method if the key does not affect it; `methods` is then empty

    @property
    def all_methods(self) -> list[Method]:
        return [self.everywhere] if self.everywhere else [*self.methods.values()]

    @property
    def first(self) -> Method:
        return self.all_methods[0]

    def runs(self, x: float) -> list[Run]:
        method = self.everywhere or self.methods.get(x)
        return method.runs if method else []


@dataclass
class Sweep:
    """Lines along one key. `others`: the other keys that vary in the experiment, with their values here."""

    key: str
    others: dict[str, str]
    lines: list[Line]
    names: dict[float, str]  # texts of the key's values, or the sweep's names for these
    where: Comparison  # one of the sweep's points

    @property
    def experiment(self) -> str:
        return self.where.experiment

    @property
    def xs(self) -> list[float]:
        return sorted(self.names)

    @property
    def runs(self) -> list[Run]:
        return [run for method in self.all_methods for run in method.runs]

    @property
    def all_methods(self) -> list[Method]:
        return [method for line in self.lines for method in line.all_methods]


def find_sweeps(comparisons: list[Comparison]) -> list[Sweep]:
    """The sweeps of each experiment. The numeric key of the configuration with the most values has a sweep for each
    combination of the other keys' values. Each numeric key of a method also has sweeps."""
    experiments = defaultdict(list)
    for comparison in comparisons:
        experiments[comparison.experiment].append(comparison)
    return [sweep for points in experiments.values() for sweep in (*along_the_longest(points), *along_own_keys(points))]


def along_the_longest(points: list[Comparison]) -> list[Sweep]:
    numbers = numeric_keys(points)
    if not numbers:
        return []
    key = max(numbers, key=lambda key: len(numbers[key]))
    follows = {other for other in points[0].point
               if other != key and are_one_to_one({(point.point[key], point.point[other]) for point in points})}  # swept together
    groups = defaultdict(list)
    for point in points:
        groups[tuple((other, value) for other, value in point.point.items() if other != key and other not in follows)].append(point)
    return [sweep_of(key, dict(others), sorted(members, key=lambda point: numbers[key][point.point[key]]), numbers[key])
            for others, members in groups.items() if len(members) >= FEWEST_POINTS]


def numeric_keys(points: list[Comparison]) -> dict[str, dict[str, float]]:
    """The keys whose values are all numbers; for each key, the numbers by its values."""
    found = {}
    for key in points[0].point:
        numbers = {point.point[key]: number_of(point.point[key], point.config.get(key) or flat(point.runs[0].config).get(key))
                   for point in points}
        if None not in numbers.values() and len(set(numbers.values())) == len(numbers) > 1:
            found[key] = numbers
    return found


def number_of(name: str, value: str | None) -> float | None:
    """The name as a number, or else the value as a number; None if neither is a number."""
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
    """The sweep along a method's own key at one point; None if the key has too few values. Methods that have no own
    swept keys have constant lines. Methods with other keys have their own sweeps. A key that corresponds one to one to
    an earlier key of its method has no sweep."""
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


def in_file_order(lines: list[Line]) -> list[Line]:
    order = {method.label: place for place, method in enumerate(in_order([line.first for line in lines]))}
    return sorted(lines, key=lambda line: order[line.first.label])


def follows_another(methods: list[Method], base: str, key: str) -> bool:
    """Whether this key's values correspond one to one to those of an earlier key of the method."""
    owns = [method.own for method in methods if method.base == base and key in method.own]
    for earlier in owns[0]:
        if earlier == key:
            return False
        if are_one_to_one({(own.get(earlier), own[key]) for own in owns}):
            return True
    return False


def sweep_figure(sweep: Sweep, looks: dict[str, dict], every_formula: bool = False, published: list[Published] = (),
                 claims: list[dict] = (), measures: tuple[str, ...] = ()):
    """A panel per quantity, against the key's number; None if there is none. `looks`: by label. `every_formula`: draws
    all formulas of a method, not only the one with the fewest assumptions. `published`: papers' numbers. `claims`: the
    experiment's claims, whose measures get panels. `measures`: those of the panels; empty: those that tell most."""
    names = shown_names(sweep)
    styles = looks_of_lines(sweep, names, looks)
    dashes, colours = dashes_of(sweep.runs, every_formula), defaultdict(set)
    quantities = asked_quantities(sweep, claims, measures) if measures else shown_quantities(sweep, claims)
    if not quantities:
        return None
    rows, expected = shared_out(quantities, ACROSS), expected_by_theory(claims)
    if len(quantities) == 1:
        sheet = Sheet([[Place(list(styles), width=ALONE[0], height=ALONE[1])]], "", "", entitled=False)
    else:
        sheet = Sheet([[Place(list(styles) if quantity is row[-1] else []) for quantity in row] for row in rows], "", "")
    sources = []
    for axis, quantity in zip(sheet.panels, quantities):
        drawn = draw_quantity(axis, sweep, quantity, names, styles, dashes, published, expected)
        for formula in drawn.formulas:
            colours[formula] |= drawn.formulas[formula]
        sources += drawn.sources
        label, texts = along_axis(sweep.key, sweep.names)
        scale_axes(axis, sweep.xs, drawn.values, texts)
        if len(quantities) == 1:
            axis.set_ylabel("\n".join(wrapped(quantity.title, ALONE[1], style.page.font)))
        else:
            sheet.entitle(axis, quantity.title)
        axis.set_xlabel(label)
        if any(quantity is row[-1] for row in rows):
            sheet.name_lines(axis, drawn.ends, styles)
    explain_marks(sheet, sweep.runs, dashes, colours, sources)
    shown = in_words({sweep.key: span(sweep.names), **sweep.others})
    sheet.heading, sheet.subtitle = heading(sweep.where), subtitle(sweep.where, shown, sweep.all_methods)
    return sheet.finish()


def sweeps_figure(sweeps: list[Sweep], looks: dict[str, dict], published: dict[str, list[Published]]):
    """The most informative quantity of two or more sweeps along one key, with a panel per sweep. `looks`: by label, for
    all lines; `published`: by experiment."""
    quantity = most_telling(sweeps)
    rows = shared_out(sweeps, ACROSS)
    names = {label: name for sweep in sweeps for label, name in shown_names(sweep).items()}
    places = [sweep.where for sweep in sweeps]
    several = len({place.experiment for place in places}) > 1
    sheet = Sheet([[Place(list(names.values()) if sweep is row[-1] else [], height=2.8) for sweep in row] for row in rows],
                  f"{quantity.title} against {key_label(sweeps[0].key)}" if several else heading(places[0]),
                  described(places, sweeps[0].key) + ("" if several else f"  ·  {quantity.title}"))
    colours, sources, named = {}, [], []
    dashes = dashes_of([run for sweep in sweeps for run in sweep.runs], every=False)
    for panel, sweep in zip(sheet.panels, sweeps):
        styles = looks_of_lines(sweep, names, looks)
        drawn = draw_quantity(panel, sweep, quantity, names, styles, dashes, published[sweep.experiment])
        for formula, of_formula in drawn.formulas.items():
            colours.setdefault(formula, set()).update(of_formula)
        sources += drawn.sources
        label, texts = along_axis(sweep.key, sweep.names)
        scale_axes(panel, sweep.xs, drawn.values, texts)
        panel.set_xlabel(label)
        if style.page.is_column or any(sweep is row[0] for row in rows):
            panel.set_ylabel(quantity.title.split(":")[0])
        sheet.entitle(panel, panel_name(sweep.where, places, without=sweep.key))
        if any(sweep is row[-1] for row in rows):
            named.append((panel, drawn.ends, styles))
    share_values(sheet.panels)
    for panel, ends, styles in named:
        sheet.name_lines(panel, ends, styles)
    explain_marks(sheet, [run for sweep in sweeps for run in sweep.runs], dashes,
                  {formula: colours.get(formula, set()) for formula in dashes}, sources)
    return sheet.finish()


def looks_of_sweeps(sweeps: list[Sweep]) -> dict[str, dict]:
    """One look for each label of the sweeps' lines."""
    algorithms: dict[str, str] = {}
    for sweep in sweeps:
        for line in sweep.lines:
            algorithms.setdefault(line.label, line.first.algorithm)
    return style.line_styles(algorithms)


def share_values(panels) -> None:
    """Gives all panels the same range of values, so that readers can compare effects."""
    if len({panel.get_yscale() for panel in panels}) > 1:
        return
    low, high = (reduce(end) for reduce, end in zip((min, max), zip(*(panel.get_ylim() for panel in panels))))
    for panel in panels:
        panel.set_ylim(low, high)


def most_telling(sweeps: list[Sweep]) -> Quantity:
    """The most informative quantity among those that at least one sweep has."""
    there = {quantity for sweep in sweeps for quantity in shown_quantities(sweep)}
    return next((quantity for quantity in (ACCURACY, LOSS, SPEED_UP, SPEED_OF_ONE) if quantity in there), STEP_TIME)


def span(names: dict[float, str]) -> str:
    """The range of a key's values: "8 to 64"."""
    return f"{size_text_of(names[min(names)])} to {size_text_of(names[max(names)])}"


def shown_quantities(sweep: Sweep, claims: list[dict] = ()) -> list[Quantity]:
    """The quantities that have values to show; first those of claims."""
    scales_workers = sweep.key == "cluster.workers"
    wanted = [SPEED, *([SPEED_OF_ONE] if scales_workers else []), STEP_TIME, SPEED_UP, DROPPED, ACCURACY, LOSS, TIME_TO_TARGET, BYTES]
    shown = [quantity for quantity in wanted
             if np.nansum([value for line in sweep.lines for values in values_of(sweep, line, quantity).values()
                           for value in values]) > 0]
    if ACCURACY in shown and LOSS in shown:
        shown.remove(LOSS)
    if BYTES in shown and (scales_workers or not has_model(sweep) or not differ(sweep, BYTES)):
        shown.remove(BYTES)
    if has_model(sweep) and not scales_workers:  # many keys, such as those of [training], have no effect on times
        claimed = {claim["measure"] for claim in claims}
        shown = [quantity for quantity in shown if quantity not in OF_TIMES or quantity.measure in claimed
                 or not is_one_value(sweep, quantity)]
    return claimed_quantities(sweep, claims, [quantity.measure for quantity in wanted]) + shown


def asked_quantities(sweep: Sweep, claims: list[dict], measures: tuple[str, ...]) -> list[Quantity]:
    """The quantities of these measures that have values to show."""
    of_claims = {claim["measure"]: claim for claim in claims}
    found = [KNOWN.get(measure) or claimed_quantity(of_claims.get(measure, {"measure": measure})) for measure in measures]
    return [quantity for quantity in found if any(values_of(sweep, line, quantity) for line in sweep.lines)]


def claimed_quantities(sweep: Sweep, claims: list[dict], known: list[str]) -> list[Quantity]:
    """The quantities of claims whose measures are not in `known`."""
    found = {claim["measure"]: claimed_quantity(claim) for claim in claims
             if claim["measure"] not in known}
    return [quantity for quantity in found.values() if any(values_of(sweep, line, quantity) for line in sweep.lines)]


def has_model(sweep: Sweep) -> bool:
    return any(run.config.get("training", {}).get("model", "none") != "none" for run in sweep.runs)


def differ(sweep: Sweep, quantity: Quantity) -> bool:
    """Whether the quantity changes along the key for at least one method."""
    return any(len({round(np.mean(of_seeds), 9) for of_seeds in values_of(sweep, line, quantity).values()}) > 1
               for line in sweep.lines)


def is_one_value(sweep: Sweep, quantity: Quantity) -> bool:
    """Whether the quantity has the same mean for all methods at all values of the key."""
    values = [of_seeds for line in sweep.lines for of_seeds in values_of(sweep, line, quantity).values()]
    return len({round(np.mean(of_seeds), 9) for of_seeds in values}) < 2


def explain_marks(sheet: Sheet, runs: list[Run], dashes: dict[str, tuple], colours: dict[str, set[str]],
                  sources: list[str]) -> None:
    """Fills the legend with lines without dots, and marks without lines. A formula that only one method has is in the
    method's colour."""
    kinds = {line.get_gid() for panel in sheet.panels for line in panel.lines}
    entries = [({"linestyle": dash, "color": min(colours[name]) if len(colours[name]) == 1 else style.INK,
                 "linewidth": 0.58 * style.page.line}, formula_text(name, runs)) for name, dash in dashes.items() if colours[name]]
    if "linear" in kinds:
        entries.append(({"linestyle": style.DASHES[1], "color": style.FAINT, "linewidth": 0.58 * style.page.line},
                        "linear scaling: no worker waits"))
    if "missed" in kinds:
        entries.append(({**MISSED, "markeredgecolor": style.INK, "markersize": 1.2 * style.page.marker},
                        "target not reached by all seeds"))
    if "best" in kinds:
        entries.append(({"linestyle": "none", "marker": "o", "color": "none", "markeredgecolor": style.INK,
                         "markeredgewidth": 1.2, "markersize": 1.6 * style.page.marker}, "best point"))
    if "theory" in kinds:
        entries.append(({**THEORY, "markersize": 3 * style.page.marker}, "by theory: the middle of the claim's range"))
    entries += [({"color": style.INK, **LOOK, "markersize": 1.6 * style.page.marker}, source)
                for source in dict.fromkeys(sources)]
    sheet.entries = [plt.Line2D([], [], label=text, **look) for look, text in entries]


def formula_text(name: str, runs: list[Run]) -> str:
    """The formula's name. For LEAST_ASSUMED the names of all formulas for which it stands, by method if methods
    differ."""
    if name != LEAST_ASSUMED:
        return name
    names = defaultdict(dict)
    for run in runs:
        if run.summary.get("predicted"):
            names[method_label(run)][run.summary["predicted"][-1]["formula"]] = True
    methods = defaultdict(list)
    for method, of_method in names.items():
        methods[" or ".join(of_method)].append(method)
    if len(methods) == 1:
        return "by formula: " + next(iter(methods))
    return "by formula: " + "; ".join(f"{', '.join(of_text)}: {text}" for text, of_text in methods.items())


def shown_names(sweep: Sweep) -> dict[str, str]:
    """The names of the lines by label. A line with fewer seeds than others has the number of seeds in its name."""
    counts = {line.label: sorted({len(method.runs) for method in line.all_methods}) for line in sweep.lines}
    most = max(max(of_line) for of_line in counts.values())
    names = {}
    for label, of_line in counts.items():
        seeds = seeds_text(of_line[-1]) if len(of_line) == 1 else f"{of_line[0]} to {of_line[-1]} seeds"
        names[label] = label if of_line == [most] else f"{label} ({seeds})"
    return names


@dataclass
class Drawn:
    """The contents of a panel that the legend, the axes and the names of lines need."""

    ends: dict[str, tuple[float, float]] = field(default_factory=dict)  # ends of lines, by name
    values: list[float] = field(default_factory=list)
    formulas: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # by formula: colours of its lines
    sources: list[str] = field(default_factory=list)  # sources of numbers from papers


def draw_quantity(axis, sweep: Sweep, quantity: Quantity, names: dict[str, str], styles: dict[str, dict],
                  dashes: dict[str, tuple], published: list[Published], expected: list[Expected] = ()) -> Drawn:
    """Draws the lines of a quantity. `names`: names of lines by label; `styles`: looks by name; `dashes`: dashes of
    formulas by name; `expected`: ranges by theory."""
    drawn = Drawn()
    rows = 0
    for line in sweep.lines:
        values, missed = without_missed(sweep, line, quantity, values_of(sweep, line, quantity))
        if missed:
            height = 0.97 - MISSED_ROW * rows  # a row per method, since several may miss the target at the same value
            rows += 1
            axis.plot(missed, [height] * len(missed), transform=axis.get_xaxis_transform(), gid="missed",
                      **MISSED, markeredgecolor=styles[names[line.label]]["color"], markersize=1.2 * style.page.marker)
        if values:
            draw_method(axis, sweep, line, quantity, values, names[line.label], styles, dashes, published, drawn)
            draw_expected(axis, sweep, line, quantity, expected)
    if sweep.key == "cluster.workers" and quantity.linear:
        drawn.values += draw_linear(axis, sweep, quantity)
    drawn.values = [value for value in drawn.values if np.isfinite(value)]
    return drawn


def without_missed(sweep: Sweep, line: Line, quantity: Quantity, values: dict) -> tuple[dict, list[float]]:
    """The values without points at which a seed missed the target, and these points. At such a point the mean of the
    other seeds would flatter the method."""
    if "_to_target" not in quantity.measure:
        return values, []
    missed = [x for x in sweep.xs if len(values.get(x, [])) < len(line.runs(x))]
    return {x: of_seeds for x, of_seeds in values.items() if x not in missed}, missed


def looks_of_lines(sweep: Sweep, names: dict[str, str], looks: dict[str, dict]) -> dict[str, dict]:
    """The looks by name. A method to which the key does not apply has no markers."""
    return {names[line.label]: style.without_marker(looks[line.label]) if line.everywhere else looks[line.label]
            for line in sweep.lines}


def draw_method(axis, sweep: Sweep, line: Line, quantity: Quantity, values: dict[float, list[float]], name: str, styles,
                dashes, published: list[Published], drawn: Drawn) -> None:
    look = styles[name]
    drawn.ends[name] = draw_line(axis, values, look, "everywhere" if line.everywhere else "method")
    drawn.values += [value for of_seeds in values.values() for value in of_seeds]
    if not line.everywhere and not trivially_best(sweep.key, quantity):
        ring(axis, {x: float(np.mean(of_seeds)) for x, of_seeds in values.items()}, quantity, look)
    for formula, dash in dashes.items():
        if said := draw_formula(axis, formula, sweep, line, quantity, {**look, "dashes": dash}):
            drawn.values += said
            drawn.formulas[formula].add(look["color"])
    for one in stated_at(sweep, line, quantity, published):
        value = quantity.times * one.value
        axis.plot(float(where_of(one.where, sweep.key)), value, color=look["color"], **LOOK,
                  markersize=2 * style.page.marker, gid="paper")
        drawn.values.append(value)
        drawn.sources.append(one.source)


def formulas_of(run: Run, every: bool) -> dict[str, dict]:
    """The predictions of a run by formula, in the reverse order of the summary: the first makes the fewest assumptions,
    and is the one in the table of results. Without `every` only the first is returned, with the name LEAST_ASSUMED."""
    formulas = (run.summary.get("predicted") or [])[::-1]
    if every:
        return {formula["formula"]: formula for formula in formulas}
    return {LEAST_ASSUMED: formulas[0]} if formulas else {}


def trivially_best(key: str, quantity: Quantity) -> bool:
    """Whether the best point is trivial, because more workers are always faster."""
    return key == "cluster.workers" and quantity in (SPEED, SPEED_UP)


def values_of(sweep: Sweep, line: Line, quantity: Quantity) -> dict[float, list[float]]:
    """The values of all seeds by the key's number. A quantity relative to the baseline has values only for common
    seeds, and none if the baseline is missing or is the only method."""
    values = {}
    baseline = next((other for other in sweep.lines if other.first.algorithm == BASELINE), None)
    if quantity.against_baseline and (baseline is None or len(sweep.lines) < 2):
        return {}
    for x in sweep.xs:
        of_seeds = [(run.seed, number(quantity.value(run))) for run in line.runs(x)]
        if quantity.against_baseline:
            by_seed = {run.seed: number(quantity.value(run)) for run in baseline.runs(x)}
            of_seeds = [(seed, value / by_seed[seed]) for seed, value in of_seeds if by_seed.get(seed)]
        if there := [value for _, value in of_seeds if np.isfinite(value)]:
            values[x] = there
    return values


def dashes_of(runs: list[Run], every: bool) -> dict[str, tuple]:
    """The dashes of formulas by name. The formulas of a run have different dashes. A formula has the same dashes
    everywhere."""
    places = {}
    for run in runs:
        for place, name in enumerate(formulas_of(run, every)):
            places[name] = max(place, places.get(name, 0))
    return {name: THIN[min(place, len(THIN) - 1)] for name, place in places.items()}


def draw_formula(axis, name: str, sweep: Sweep, line: Line, quantity: Quantity, look: dict) -> list[float]:
    """Draws a formula's predictions as a thin line without dots, and returns them."""
    every, points = name != LEAST_ASSUMED, []
    for x in sweep.xs:
        said = [quantity.formula(run, formulas[name]) for run in line.runs(x) if name in (formulas := formulas_of(run, every))]
        if values := [value for value in said if value is not None]:
            points.append((x, float(np.mean(values))))
    if points:
        axis.plot(*zip(*points), color=look["color"], linewidth=0.58 * style.page.line, linestyle=look["dashes"],
                  gid="formula")
    return [y for _, y in points]


def draw_linear(axis, sweep: Sweep, quantity: Quantity) -> list[float]:
    """Draws linear scaling: the speed without waiting, from synchronous SGD on the fewest workers. Returns its
    values."""
    fewest = sweep.xs[0]
    there = [line for line in sweep.lines if line.runs(fewest)]
    # Without synchronous SGD take the fastest method: slower methods drop work, or wait.
    chosen = [line for line in there if line.first.algorithm == BASELINE] or there
    one = max(float(np.mean([samples_per_s(run) / busy_share(run) for run in line.runs(fewest)])) for line in chosen) / fewest
    values = [quantity.linear(x, one) for x in sweep.xs]
    axis.plot(sweep.xs, values, color=style.FAINT, linewidth=0.58 * style.page.line, linestyle=style.DASHES[1], gid="linear",
              zorder=1)
    return values


def busy_share(run: Run) -> float:
    """The share of their time in which workers do not wait; 1 if the summary has no accounts."""
    seconds = (run.summary.get("worker_seconds") or {}).get("summed")
    return 1 - seconds["wait"] / seconds["total"] if seconds and seconds["total"] > 0 else 1.0


def draw_expected(axis, sweep: Sweep, line: Line, quantity: Quantity, expected: list[Expected]) -> None:
    """Marks the middles of a theory's ranges for this method."""
    there = {float(where_of(one.where, sweep.key)): quantity.times * (one.low + one.high) / 2 for one in expected
             if one.measure == quantity.measure and not quantity.against_baseline and one.method == line.first.base
             and is_at(sweep, one.where)}
    if there:
        axis.plot([*there], [*there.values()], **THEORY, markersize=3 * style.page.marker, gid="theory")


def stated_at(sweep: Sweep, line: Line, quantity: Quantity, published: list[Published]) -> list[Published]:
    """The papers' numbers for this method along the key, at the sweep's values of the other keys."""
    baseline = next((other.label for other in sweep.lines if other.first.algorithm == BASELINE), "")
    return [one for one in published
            if one.is_of(quantity) and one.method == line.first.base and one.against in ("", baseline)
            and is_at(sweep, one.where)]


def is_at(sweep: Sweep, where: dict[str, str]) -> bool:
    """Whether a claim's `where` has the sweep's key, and the sweep's values of the other keys."""
    return where_of(where, sweep.key) is not None and all(
        where_of(where, key) is None or is_same_value(where_of(where, key), value) for key, value in sweep.others.items())


def where_of(where: dict[str, str], key: str) -> str | None:
    """The value of the key in a claim's `where`, which may have only the last part of the key's name."""
    return next((value for name, value in where.items() if name == key or name.endswith("." + key)), None)


def draw_line(panel, values: dict[float, list[float]], look: dict, gid: str) -> tuple[float, float]:
    """Draws the mean over seeds, and a band from the lowest to the highest seed. Returns the line's end."""
    x = list(values)
    mean, low, high = ([reduce(of_seeds) for of_seeds in values.values()] for reduce in (np.mean, np.min, np.max))
    panel.fill_between(x, low, high, color=look["color"], alpha=0.16, linewidth=0)
    panel.plot(x, mean, **look, gid=gid)
    return x[-1], mean[-1]


def ring(panel, means: dict[float, float], quantity: Quantity, look: dict) -> None:
    """Draws a ring around the best point."""
    if (x := best_of(means, quantity)) is not None:
        panel.plot(x, means[x], "o", color="none", markersize=2.1 * style.page.marker, markeredgecolor=look["color"],
                   markeredgewidth=1.4, zorder=5, gid="best", clip_on=False)


def scale_axes(panel, xs: list[float], values: list[float], names: dict[float, str] | None = None) -> None:
    """Sets scales, ticks and the texts of ticks. An axis is logarithmic if its values are spaced by factors. `names`:
    the sweep's names of the key's values."""
    if is_spaced_by_factors(xs):
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_locator(FixedLocator(legible(xs)))
        panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: size_text(x)))
    if names and any(size_text(x) != size_text_of(name) for x, name in names.items()):  # the sweep has names
        if all(is_number(name) for name in names.values()):
            panel.set_xticks(shown := legible(xs) if is_spaced_by_factors(xs) else xs, [names[x] for x in shown])
        else:
            panel.set_xticks(xs, [printable(names[x]) for x in xs], rotation=25, ha="right")
    if values and min(values) > 0 and max(values) / min(values) >= 10:
        panel.set_yscale("log")
        panel.yaxis.set_minor_locator(NullLocator())
        if max(values) / min(values) < 100:
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    elif values and max(values) - min(values) <= ALIKE * max(map(abs, values)):  # values differ only in late digits
        panel.set_ylim(values[0] - 0.1 * (abs(values[0]) or 1), values[0] + 0.1 * (abs(values[0]) or 1))
    else:
        panel.yaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10]))  # 42.2 and 42.25, but not 42.225
    panel.yaxis.set_major_formatter(style.SHORT)
    panel.yaxis.set_minor_formatter(NullFormatter())


def is_spaced_by_factors(xs: list[float]) -> bool:
    """Whether ascending values cover a factor of 10, or grow by equal factors."""
    if xs[0] <= 0 or len(xs) < 3:
        return bool(xs[0] > 0 and xs[-1] / xs[0] >= 10)
    factors, steps = np.divide(xs[1:], xs[:-1]), np.diff(xs)
    return bool(xs[-1] / xs[0] >= 10 or (factors.max() < 1.01 * factors.min() and steps.max() > 1.5 * steps.min()))


def legible(xs: list[float]) -> list[float]:
    """The values without those whose texts would overlap on a logarithmic axis. Keeps the last value."""
    digit = 0.02 if not style.page.is_column else 0.035  # width of a digit, as a share of a panel's width
    kept = xs[-1:]
    for x in reversed(xs[:-1]):
        widest = max(len(size_text(x)), len(size_text(kept[-1])))
        if np.log(kept[-1] / x) >= digit * (1 + widest) * np.log(xs[-1] / xs[0]):
            kept.append(x)
    return kept


def along_axis(key: str, names: dict[float, str]) -> tuple[str, dict[float, str]]:
    """The axis's label, and the names of the values. For bandwidths, names are plain numbers in one unit, which is in
    the label."""
    if not key.endswith(BANDWIDTH) or not all(RATE.fullmatch(name) for name in names.values()):
        label = key_label(key)
        return (label if all(map(is_number, names.values())) else label.split(" (")[0]), names
    size, letter = next(((size, letter) for size, letter in SIZES if 8 * max(names) >= size), (1, ""))
    return f"bandwidth ({letter}bit/s)", {x: f"{8 * x / size:g}" for x in names}


def size_text_of(name: str) -> str:
    try:
        return size_text(float(name))
    except ValueError:
        return name


def size_text(x: float) -> str:
    return f"{x:g}" if abs(x) < 10000 else style.short_number(x)
