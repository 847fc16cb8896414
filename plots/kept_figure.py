"""What dropping does to the data: the share of samples that went into the model, by their length and by their class."""

import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter

from plots import page, style
from plots.lengths_figure import PANEL, draw_by_length
from plots.methods import Method
from plots.sheet import Place, Sheet

KINDS = ("by_length", "by_class")


def kept_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str):
    """The figure, or None where no run says what was kept. `looks`: by label."""
    styles = {method.name: looks[method.label] for method in methods}
    kinds = {kind: shares for kind in KINDS if (shares := {method.name: share for method in methods
                                                            if (share := shares_of(method, kind)) is not None})}
    if not kinds:
        return None
    sheet = Sheet([[Place(list(styles) if kind == list(kinds)[-1] else [], width=PANEL) for kind in kinds]], heading, subtitle)
    for panel, (kind, shares) in zip(sheet.panels, kinds.items()):
        shown = styles if kind == "by_length" else {name: {**look, "linestyle": "none"} for name, look in styles.items()}
        ends = draw_by_length(panel, shares, shown) if kind == "by_length" else draw_dots(panel, shares, shown)
        most = max(1.0, *(np.nanmax(share) for _, share in shares.values()))  # codes compute parts several times
        bottom = min(panel.get_ylim()[0], most - 0.01)
        panel.set_ylim(bottom, most + 0.05 * (most - bottom))
        panel.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
        sheet.entitle(panel, "Share of the samples that is kept")
    sheet.name_lines(panel, ends, shown)
    return sheet.finish()


def shares_of(method: Method, kind: str):
    """(places, shares) of all seeds together; None where no run says of what they are, or nothing was offered."""
    told = [kinds for run in method.runs if "offered" in (kinds := run.summary.get("samples_kept", {}).get(kind, {}))]
    if not told:
        return None
    kept, offered = (np.sum([one[name] for one in told], axis=0, dtype=float) for name in ("kept", "offered"))
    if not offered.any():
        return None
    places = told[0].get("longest", range(len(kept)))
    return np.array(places), np.divide(kept, offered, out=np.full(len(kept), np.nan), where=offered > 0)


def draw_dots(panel, shares: dict, styles: dict[str, dict]) -> dict[str, tuple[float, float]]:
    """Where the last ones are. Classes have no order, which a line would claim; those of a class stand side by side."""
    ends = {}
    for number, (name, (places, share)) in enumerate(shares.items()):
        beside = places + 0.6 * ((number + 0.5) / len(shares) - 0.5)
        panel.plot(beside, share, **styles[name], markersize=page.current.marker * (0.85 if len(places) <= 20 else 0.65))
        ends[name] = style.last_point(beside, share)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set_xlabel("class")
    return ends
