"""What dropping does to the data: the share of samples that went into the model, by their length and by their class."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter

from plots import style
from plots.methods import Method

HEIGHT, PANEL = 4.9, 5.2  # inches: of the figure, and the width of a panel
NAMES = {"by_length": "length in tokens: the longest of each eighth of the training samples", "by_class": "class"}


def kept_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str):
    """The figure, or None where no run says what was kept. `looks`: by label."""
    styles = {method.name: looks[method.label] for method in methods}
    kinds = {kind: shares for kind in NAMES if (shares := {method.name: share for method in methods
                                                            if (share := shares_of(method, kind)) is not None})}
    if not kinds:
        return None
    right = style.label_inches(styles) + 0.15
    width = 0.75 + len(kinds) * (PANEL + right) + 0.6 * (len(kinds) - 1)
    figure = plt.figure(figsize=(width, HEIGHT))
    for number, (kind, shares) in enumerate(kinds.items()):
        left = 0.75 + number * (PANEL + right + 0.6)
        panel = figure.add_axes([left / width, 0.14, PANEL / width, 1 - 1.2 / HEIGHT - 0.14])
        draw_shares(panel, kind, shares, styles)
    style.title(figure, heading, subtitle)
    return figure


def shares_of(method: Method, kind: str):
    """(places, shares) of all seeds together; None where no run says."""
    told = [run.summary["samples_kept"][kind] for run in method.runs if kind in run.summary.get("samples_kept", {})]
    if not told:
        return None
    kept, offered = (np.sum([one[name] for one in told], axis=0, dtype=float) for name in ("kept", "offered"))
    places = told[0].get("longest", range(len(kept)))
    return np.array(places), np.divide(kept, offered, out=np.full(len(kept), np.nan), where=offered > 0)


def draw_shares(panel, kind: str, shares: dict, styles: dict[str, dict]) -> None:
    ends = {}
    for name, (places, share) in shares.items():
        panel.plot(places, share, **styles[name], marker="o" if len(places) <= 60 else "", markersize=4)
        if np.isfinite(share).any():
            last = np.flatnonzero(np.isfinite(share))[-1]
            ends[name] = (places[last], share[last])
    panel.set_ylim(top=max(1.0, panel.get_ylim()[1]) + 0.01)
    panel.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set_xlabel(NAMES[kind])
    panel.set_title("Share of the samples that is kept", loc="left", fontsize=10)
    style.label_lines(panel, ends, styles)
