"""The same sweep in several experiments, or at several points of what else varies: a panel each, of the quantity that says
most."""

from plots import page
from plots.comparison import heading
from plots.published import Published
from plots.quantities import ACCURACY, LOSS, SPEED_OF_ONE, SPEED_UP, STEP_TIME, Quantity
from plots.regimes_figure import described, name_of
from plots.sheet import Place, Sheet, shared_out
from plots.sweep_figure import explain_marks, shown_names, shown_quantities
from plots.sweep_lines import along_axis, dashes_of, draw_quantity, key_label, looks_of_lines, scale_axes
from plots.sweeps import Sweep

ACROSS = 3  # panels side by side on a screen


def sweeps_figure(sweeps: list[Sweep], looks: dict[str, dict], published: dict[str, list[Published]]):
    """Of at least two sweeps along one key. `looks`: by label, of all lines; `published`: by experiment."""
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
        if page.current.is_column or any(sweep is row[0] for row in rows):
            panel.set_ylabel(quantity.title.split(":")[0])
        sheet.entitle(panel, name_of(sweep.where, places, without=sweep.key))
        if any(sweep is row[-1] for row in rows):
            named.append((panel, drawn.ends, styles))
    share_values(sheet.panels)
    for panel, ends, styles in named:
        sheet.name_lines(panel, ends, styles)
    explain_marks(sheet, [run for sweep in sweeps for run in sweep.runs], dashes,
                  {formula: colours.get(formula, set()) for formula in dashes}, sources)
    return sheet.finish()


def share_values(panels) -> None:
    """One scale of values for all, lest a small effect look like a large one in the panel beside it."""
    if len({panel.get_yscale() for panel in panels}) > 1:
        return
    low, high = (reduce(end) for reduce, end in zip((min, max), zip(*(panel.get_ylim() for panel in panels))))
    for panel in panels:
        panel.set_ylim(low, high)


def most_telling(sweeps: list[Sweep]) -> Quantity:
    """Of those that any sweep has."""
    there = {quantity for sweep in sweeps for quantity in shown_quantities(sweep)}
    return next((quantity for quantity in (ACCURACY, LOSS, SPEED_UP, SPEED_OF_ONE) if quantity in there), STEP_TIME)
