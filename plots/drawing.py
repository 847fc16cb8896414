"""From what is planned to figures: each kind's own function, and one look per method in all figures of an experiment."""

from plots.accounts_figure import accounts_figure
from plots.arrivals_figure import arrivals_figure
from plots.bars_figure import bars_figure
from plots.choice import same
from plots.claims_figure import claims_figure
from plots.comparison import Comparison, heading, subtitle
from plots.curves_figure import curves_figure
from plots.distributions_figure import distributions_figure
from plots.heat_figure import heat_figure
from plots.kept_figure import kept_figure
from plots.lengths_figure import lengths_figure
from plots.measurements_figure import measurements_figure
from plots.pareto_figure import pareto_figure, pareto_panels
from plots.plan import Planned, mixed, variant_beside
from plots.published import claims_of, published_in
from plots.ranking_figure import ranking_figure
from plots.regimes_figure import regimes_figure
from plots.request import AXES_OF, Request
from plots.rounds_figure import rounds_figure
from plots.style import line_styles
from plots.sweep_figure import sweep_figure
from plots.sweeps import Sweep
from plots.sweeps_figure import sweeps_figure
from plots.timeline_figure import timeline_figure
from plots.variation import in_words

SIMPLE = {"rounds": rounds_figure, "measurements": measurements_figure, "arrivals": arrivals_figure, "kept": kept_figure,
          "lengths": lengths_figure, "timeline": timeline_figure, "accounts": accounts_figure}


class Drawing:
    def __init__(self, comparisons: list[Comparison], request: Request):
        self.request, self.comparisons = request, comparisons
        self.claims = claims_of(comparisons)
        self.published = published_in(self.claims)
        experiments = dict.fromkeys(comparison.experiment for comparison in comparisons)
        self.looks = {experiment: looks_of([comparison for comparison in comparisons if comparison.experiment == experiment])
                      for experiment in experiments}

    def draw(self, planned: Planned):
        """The figure; None where the tables have nothing for it."""
        shown, axes = planned.shown, self.request.axes
        if planned.kind == "claims":
            return claims_figure(self.claims[shown.experiment], heading(shown), shown.experiment)
        if planned.kind == "sweep":
            return sweep_figure(shown, self.looks_of_lines(shown), self.request.every_formula,
                                self.published[shown.experiment], self.claims[shown.experiment])
        if planned.kind == "sweeps":
            return sweeps_figure(shown, looks_of_all(shown), self.published)
        if planned.kind == "heat":
            return heat_figure(shown)
        if planned.kind == "regimes":
            name = "What differs between experiments" if mixed(shown) else heading(shown[0])
            wanted = ("time",) if axes == AXES_OF[self.request.page] else axes  # of each there are as many panels again
            experiments = list(dict.fromkeys(one.experiment for one in shown))
            claims, published = ([one for experiment in experiments for one in said[experiment]]
                                 for said in (self.claims, self.published))
            return regimes_figure(shown, looks_of(shown), name, wanted, claims, published)
        if planned.kind == "paretos":
            return pareto_panels(shown, looks_of(shown), "What differs between experiments" if mixed(shown) else heading(shown[0]),
                                 axes)
        if planned.kind == "rankings":
            return ranking_figure(shown, looks_of(shown), "What differs between experiments" if mixed(shown) else heading(shown[0]))
        about = (shown.methods, self.looks[shown.experiment], heading(shown),
                 subtitle(shown, in_words(shown.point)))
        if planned.kind == "curves":
            return curves_figure(*about, axes)
        if planned.kind == "pareto":
            return pareto_figure(*about, axes)
        if planned.kind == "bars":
            return bars_figure(*about, [one for one in self.published[shown.experiment]
                                        if all(same(shown.point.get(key, ""), value) for key, value in one.where.items())])
        if planned.kind == "distributions":
            return distributions_figure(*about, variant_beside(shown, self.comparisons))
        return SIMPLE[planned.kind](*about)

    def looks_of_lines(self, sweep: Sweep) -> dict[str, dict]:
        """Along a method's own key its points are one line, which has another label."""
        looks = self.looks[sweep.experiment]
        if all(line.label in looks for line in sweep.lines):
            return looks
        return looks_of_all([sweep])


def looks_of_all(sweeps: list[Sweep]) -> dict[str, dict]:
    """One look per label in all of them."""
    algorithms: dict[str, str] = {}
    for sweep in sweeps:
        for line in sweep.lines:
            algorithms.setdefault(line.label, (line.everywhere or next(iter(line.methods.values()))).algorithm)
    return line_styles(algorithms)


def looks_of(comparisons: list[Comparison]) -> dict[str, dict]:
    algorithms: dict[str, str] = {}
    for comparison in comparisons:
        for method in comparison.methods:
            algorithms.setdefault(method.label, method.algorithm)
    return line_styles(algorithms)


