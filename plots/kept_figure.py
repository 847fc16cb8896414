"""What dropping does to the data: the share of samples that went into the model, by their length and by their class."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter

from plots import style
from plots.lengths_figure import BETWEEN, HEIGHT, PANEL, draw_by_length
from plots.methods import Method

KINDS = ("by_length", "by_class")
MARKERS = dict(zip(map(str, style.DASHES), "os^"))  # dots of one colour are told apart as lines are


def kept_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str):
    """The figure, or None where no run says what was kept. `looks`: by label."""
    styles = {method.name: looks[method.label] for method in methods}
    kinds = {kind: shares for kind in KINDS if (shares := {method.name: share for method in methods
                                                            if (share := shares_of(method, kind)) is not None})}
    if not kinds:
        return None
    width = 0.85 + len(kinds) * (PANEL + BETWEEN) - BETWEEN + 0.5 + style.label_inches(styles)
    figure = plt.figure(figsize=(width, HEIGHT))
    for number, (kind, shares) in enumerate(kinds.items()):
        left = 0.85 + number * (PANEL + BETWEEN)
        panel = figure.add_axes([left / width, 0.14, PANEL / width, 1 - 1.2 / HEIGHT - 0.14])
        shown = styles if kind == "by_length" else {name: as_dots(look) for name, look in styles.items()}
        ends = draw_by_length(panel, shares, shown) if kind == "by_length" else draw_dots(panel, shares, shown)
        most = max(1.0, *(np.nanmax(share) for _, share in shares.values()))  # codes compute parts several times
        bottom = min(panel.get_ylim()[0], most - 0.01)
        panel.set_ylim(bottom, most + 0.05 * (most - bottom))
        panel.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
        panel.set_title("Share of the samples that is kept", loc="left", fontsize=10)
    style.label_lines(panel, ends, shown)
    style.title(figure, heading, subtitle)
    return figure


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


def as_dots(look: dict) -> dict:
    return {"color": look["color"], "linestyle": "none", "marker": MARKERS[str(look["linestyle"])]}


def draw_dots(panel, shares: dict, styles: dict[str, dict]) -> dict[str, tuple[float, float]]:
    """Where the last ones are. Classes have no order, which a line would claim; those of a class stand side by side."""
    ends = {}
    for number, (name, (places, share)) in enumerate(shares.items()):
        beside = places + 0.6 * ((number + 0.5) / len(shares) - 0.5)
        panel.plot(beside, share, **styles[name], markersize=4.5 if len(places) <= 20 else 3.5)
        ends[name] = style.last_point(beside, share)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set_xlabel("class")
    return ends
