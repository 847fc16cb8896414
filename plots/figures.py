"""Plans and draws the figures of some runs. Each kind of figure has its own function. A method looks the same in all
figures of an experiment."""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from zlib import crc32

from plots.claims import Published, claims_figure, claims_of, published_in
from plots.comparison import (Comparison, as_words, bars_described, experiments_among, heading, in_common, in_words,
                              is_same_value, panel_name, subtitle)
from plots.curves import ROWS, curve_panels, curves_figure, method_curve
from plots.final_results import COSTS, bars_figure, pareto_figure, pareto_panels, ranking_figure, speed_panels
from plots.heat import Grid, find_grids, heat_figure
from plots.numbers import END_TIME, SPEED, STEP_TIME
from plots.recordings import arrivals_figure, kept_figure, lengths_figure, measurements_figure
from plots.rounds import changes_period, distributions_figure, period_panels, rounds_figure
from plots.runs import ARRIVALS, CLAIMS, MEASURED, TRACE
from plots.style import line_styles
from plots.sweeps import Sweep, find_sweeps, looks_of_sweeps, sweep_figure, sweeps_figure
from plots.timeline import accounts_figure, has_accounts, timeline_figure, times_figure, titles_of

OF_ENDS = ["bars", "pareto", "accounts", "distributions"]  # not for a sweep's points: the sweep has its own figure
MOST_REGIMES = 12  # most comparisons side by side in one figure
SIMPLE = {"rounds": rounds_figure, "measurements": measurements_figure, "arrivals": arrivals_figure,
          "kept": kept_figure, "lengths": lengths_figure, "timeline": timeline_figure, "accounts": accounts_figure}


@dataclass
class Planned:
    """A figure to draw. It is left out if the runs' tables have no data for it."""

    kind: str
    shown: Sweep | Grid | Comparison | list[Sweep] | list[Comparison]
    name: str  # its files' name, without suffix


def plan_figures(comparisons: list[Comparison], kinds: list[str], asked: bool = False) -> list[Planned]:
    """The figures of these kinds for which, by the runs' documents, there may be data. `asked`: the user named the
    kinds."""
    several = mixed(comparisons)

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
    """The other one of two variants, if it comes after this one (or `before` it). One picture shows two variants."""
    def without(one: Comparison) -> tuple:
        return one.experiment, {key: value for key, value in one.point.items() if key != "variant"}
    pair = [one for one in comparisons if "variant" in one.point and without(one) == without(comparison)]
    if len(pair) != 2 or comparison not in pair:
        return None
    return pair[0] if before and pair[1] is comparison else pair[1] if not before and pair[0] is comparison else None


def has_claims(comparison: Comparison) -> bool:
    return any((directory / CLAIMS).exists() for directory in {run.directory.parent.parent for run in comparison.runs})


def alike(sweeps: list[Sweep]) -> dict[tuple[str, str], list[Sweep]]:
    """Groups of sweeps along the same key, by the key's last part. If there are several experiments, the name of a
    group within a single experiment contains the experiment."""
    several = len({sweep.experiment for sweep in sweeps}) > 1
    keys = defaultdict(list)
    for sweep in sweeps:
        keys[sweep.key].append(sweep)
    return {(key.rsplit(".", 1)[-1], members[0].experiment if several and len({one.experiment for one in members}) == 1 else ""):
            members for key, members in keys.items() if 2 <= len(members) <= MOST_REGIMES}


def is_of_configuration(sweep: Sweep) -> bool:
    """Whether the swept key belongs to the configuration, not to a method."""
    return sweep.key in sweep.where.point


def mixed(comparisons: list[Comparison]) -> bool:
    return len(experiments_among(comparisons)) > 1


def regimes(comparisons: list[Comparison], sweeps: list[Sweep]) -> list[list[Comparison]]:
    """Groups of comparisons to show side by side: an experiment's variants, for each value of its other keys; the
    points of an experiment without a swept number; and experiments with a single point."""
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
    """The kinds of figures of a single point for which its runs may have data."""
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
    """The parts that are not empty, joined by hyphens, in characters that all file systems allow. A long name ends in a
    digest. A plus sign is dropped, because as a hyphen it would turn 1e+06 into 1e-06."""
    name = re.sub(r"[^\w.=-]+", "-", "-".join(part for part in parts if part).replace("+", ""))
    return name if len(name) <= 100 else f"{name[:90]}-{crc32(name.encode()):08x}"


class Drawing:
    """Draws planned figures. `axes`: axes of curves and Pareto fronts; None: those that tell most;
    `axes_side_by_side`: axes if the curves of several comparisons are side by side; `measures`: measures of panels;
    empty: those that tell most."""

    def __init__(self, comparisons: list[Comparison], axes: tuple[str, ...] | None, axes_side_by_side: tuple[str, ...],
                 every_formula: bool, measures: tuple[str, ...] = ()):
        self.comparisons, self.axes, self.axes_side_by_side = comparisons, axes, axes_side_by_side
        self.every_formula, self.measures = every_formula, measures
        self.claims = claims_of(comparisons)
        self.published = published_in(self.claims)
        self.looks = {experiment: looks_of([comparison for comparison in comparisons if comparison.experiment == experiment])
                      for experiment in experiments_among(comparisons)}

    def draw(self, planned: Planned):
        """The figure; None if the tables have nothing for it."""
        shown = planned.shown
        if planned.kind == "claims":
            return claims_figure(self.claims[shown.experiment], heading(shown), shown.experiment)
        if planned.kind == "sweep":
            return sweep_figure(shown, self.looks_of_lines(shown), self.every_formula,
                                self.published[shown.experiment], self.claims[shown.experiment], self.measures)
        if planned.kind == "sweeps":
            return sweeps_figure(shown, looks_of_sweeps(shown), self.published)
        if planned.kind == "heat":
            return heat_figure(shown)
        if isinstance(shown, list):
            return self.draw_side_by_side(planned.kind, shown)
        about = (shown.methods, self.looks[shown.experiment], heading(shown),
                 subtitle(shown, in_words(shown.point)))
        if planned.kind == "curves":
            return curves_figure(*about, self.axes, self.measures)
        if planned.kind == "pareto":
            return pareto_figure(*about, self.axes or tuple(COSTS))
        if planned.kind == "bars":
            return bars_figure(*about, [one for one in self.published[shown.experiment]
                                        if all(is_same_value(shown.point.get(key, ""), value) for key, value in one.where.items())],
                               self.measures)
        if planned.kind == "distributions":
            return distributions_figure(*about, variant_beside(shown, self.comparisons))
        return SIMPLE[planned.kind](*about)

    def draw_side_by_side(self, kind: str, shown: list[Comparison]):
        name = "What differs between experiments" if mixed(shown) else heading(shown[0])
        if kind == "paretos":
            return pareto_panels(shown, looks_of(shown), name, self.axes or tuple(COSTS))
        if kind == "rankings":
            return ranking_figure(shown, looks_of(shown), name)
        claims, published = ([one for experiment in experiments_among(shown) for one in by_experiment[experiment]]
                             for by_experiment in (self.claims, self.published))
        return regimes_figure(shown, looks_of(shown), name, self.axes_side_by_side, claims, published)

    def looks_of_lines(self, sweep: Sweep) -> dict[str, dict]:
        """The looks of lines by label. Along a method's own swept key its points form one line with its own label."""
        looks = self.looks[sweep.experiment]
        return looks if all(line.label in looks for line in sweep.lines) else looks_of_sweeps([sweep])


def regimes_figure(comparisons: list[Comparison], looks: dict[str, dict], heading: str, axes: tuple[str, ...],
                   claims: list[dict] = (), published: list[Published] = ()):
    """Comparisons side by side: accuracy or loss, with a row of panels for each of the axes. Without a model: the times
    that runs take if claims are about these, otherwise the period if a method changes it, otherwise speeds. None if
    there is nothing to show. `looks`: by label, for all methods; `published`: papers' numbers."""
    row = next((row for row in ROWS if any(method_curve(method, "step", row.column)
                                           for comparison in comparisons for method in comparison.methods)), None)
    if row:
        return curve_panels(comparisons, looks, heading, axes, row)
    measures = Counter(claim["measure"] for claim in claims)
    if END_TIME.measure in measures and has_accounts(comparisons):
        titles = titles_of(comparisons, [panel_name(one, comparisons) for one in comparisons])
        return times_figure(titles, looks, heading, bars_described(comparisons), published)
    if any(changes_period(method) for comparison in comparisons for method in comparison.methods):
        return period_panels(comparisons, looks, heading)
    about_steps = 2 * measures[STEP_TIME.measure] > measures.total()
    return speed_panels(comparisons, looks, heading, STEP_TIME if about_steps else SPEED)


def looks_of(comparisons: list[Comparison]) -> dict[str, dict]:
    """One look for each label among all methods."""
    algorithms: dict[str, str] = {}
    for comparison in comparisons:
        for method in comparison.methods:
            algorithms.setdefault(method.label, method.algorithm)
    return line_styles(algorithms)
