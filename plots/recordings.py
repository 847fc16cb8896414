"""When the k-th gradient of a round arrives (Chen et al. 2016, Figures 3 and 4): its time against k, and the share of the
rounds in which it has come by then, of the method whose rounds have the most gradients."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.ticker import NullLocator

from plots import page, style
from plots.methods import Method
from plots.plan import ARRIVALS
from plots.runs import read_table
from plots.sheet import Place, Sheet

COLUMNS = ["step", "k", "worker", "arrival_s"]
PANEL = 5.2  # inches of its width
FEW = 20  # gradients of a round: each has room
ALIKE = 0.03  # of a mean: what two methods that wait for the same workers differ by


def arrivals_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str):
    """The figure, or None where no run has arrivals. `looks`: by label."""
    tables = {method.name: table for method in methods if len(table := arrivals_of(method))}
    if not tables:
        return None
    styles = {method.name: looks[method.label] for method in methods}
    widest = max(tables, key=lambda name: last_of(tables[name]))
    beside = list(shown_ks(tables[widest]).values())
    sheet = Sheet([[Place(list(tables), width=PANEL), Place(beside, width=PANEL)]], heading, subtitle.replace(", band: lowest to highest", ""))
    scale, unit = style.time_unit(max(quantiles(table).loc[:, 0.9].max() for table in tables.values()))
    draw_means(sheet, sheet.panels[0], tables, styles, widest, scale, unit)
    draw_shares(sheet, sheet.panels[1], widest, tables[widest], scale, unit)
    return sheet.finish()


def arrivals_of(method: Method) -> pd.DataFrame:
    """Of all seeds together, without a worker's place."""
    tables = [read_table(path, COLUMNS) for run in method.runs if (path := run.directory / ARRIVALS).exists()]
    return pd.concat(tables) if tables else pd.DataFrame(columns=COLUMNS)


def quantiles(table: pd.DataFrame) -> pd.DataFrame:
    """By k: the mean, and the columns 0.1 and 0.9."""
    by_k = table.groupby("k")["arrival_s"]
    return pd.DataFrame({"mean": by_k.mean(), 0.1: by_k.quantile(0.1), 0.9: by_k.quantile(0.9)})


def last_of(table: pd.DataFrame) -> tuple[int, float]:
    """The most gradients of a round, and when the last of these arrives: of rounds that go on for those too late, too, the
    ones that wait for all."""
    most = int(table["k"].max())
    return most, float(table.loc[table["k"] == most, "arrival_s"].mean())


def draw_means(sheet: Sheet, panel, tables: dict[str, pd.DataFrame], styles: dict[str, dict], widest: str, scale: float,
               unit: str) -> None:
    """Along the gradients that are still to come, by factors, so that the last few have room. A method whose gradients
    come as those of the widest do has no line of its own, which would hide that one: it has a mark where it goes on."""
    most, ends = int(tables[widest]["k"].max()), {}
    of_methods = {name: quantiles(table) / scale for name, table in tables.items()}
    for name, of_k in sorted(of_methods.items(), key=lambda entry: entry[0] != widest):
        x, look = most + 1 - of_k.index.to_numpy(), styles[name]
        if name == widest or not comes_alike(of_k, of_methods[widest]):
            panel.plot(x, of_k["mean"], **style.without_marker(look), gid="mean")
        if name == widest:  # several would hide each other and the lines
            panel.fill_between(x, of_k[0.1], of_k[0.9], color=look["color"], alpha=0.16, linewidth=0)
        panel.plot(x[-1], of_k["mean"].iloc[-1], **{**look, "linestyle": "none"},
                   markersize=1.5 * page.current.marker, zorder=4, gid="end")
        ends[name] = (x[-1], of_k["mean"].iloc[-1])
    if most > FEW:
        panel.set_xscale("log")
        panel.xaxis.set_minor_locator(NullLocator())
    ticks = ticks_of(most)
    panel.set_xticks([most + 1 - k for k in ticks], [str(k) for k in ticks])
    panel.set_xlim(most * 1.1 if most > FEW else most + 0.3, 0.9 if most > FEW else 0.7)  # the last ones at the right
    panel.set_xlabel("k-th gradient of a round" + (", by how many are still to come" if most > FEW else ""))
    panel.set_ylabel(f"time since the round began ({unit})")
    of_widest = f" of {widest}" if len(tables) > 1 else ""
    sheet.entitle(panel, f"When it arrives: mean, and 10 to 90 % of the rounds{of_widest}; marks: the last one")
    sheet.name_lines(panel, ends, {name: look if name == widest or not comes_alike(of_methods[name], of_methods[widest])
                                   else {**look, "linestyle": "none"} for name, look in styles.items() if name in ends})


def comes_alike(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Up to the last gradient that the first has."""
    there = one.index.intersection(other.index)
    means, others = one["mean"], other["mean"][there]
    return len(there) == len(one) and bool(np.all(np.abs(means - others) <= ALIKE * others))


def ticks_of(most: int) -> list[int]:
    """Of many those before which 50, 20, 10, ... have come of a hundred."""
    if most <= FEW:
        return list(range(1, most + 1))
    left = [1, 2, 5]
    while 10 * left[-3] <= most / 2:
        left.append(10 * left[-3])
    return sorted({1, *(most + 1 - rest for rest in left)})


def shown_ks(table: pd.DataFrame) -> dict[int, str]:
    """Of at most seven k: the first, half of them, nine tenths, and the last four."""
    most = int(table["k"].max())
    wanted = [1, most // 2, round(0.9 * most), most - 3, most - 2, most - 1, most]
    return {k: ordinal(k) for k in sorted({k for k in wanted if k >= 1})}


def ordinal(number: int) -> str:
    """Of a gradient; a method may itself be called "k = 90"."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"


def draw_shares(sheet: Sheet, panel, name: str, table: pd.DataFrame, scale: float, unit: str) -> None:
    """Of the rounds that have so many arrivals."""
    ks = shown_ks(table)
    colours = plt.get_cmap("viridis")(np.linspace(0, 0.82, len(ks)))
    looks = {label: {"color": colour, "linestyle": dashes} for label, colour, dashes
             in zip(ks.values(), colours, [*style.DASHES, "solid"])}
    times = {label: np.sort(table.loc[table["k"] == k, "arrival_s"].to_numpy()) / scale for k, label in ks.items()}
    longest = max(np.quantile(values, 0.98) for values in times.values())
    for label, values in times.items():
        panel.step(np.append(values, max(longest, values[-1])), np.append(np.arange(1, len(values) + 1) / len(values), 1),
                   where="post", **looks[label], linewidth=0.8 * page.current.line)
    first = min(values[0] for values in times.values())
    panel.set_xlim(first - 0.04 * (longest - first) if first > longest / 8 else min(0.0, first), 1.02 * longest)
    panel.set_ylim(0, 1.02)
    panel.set_xlabel(f"time since the round began ({unit})")
    panel.set_ylabel("share of the rounds")
    sheet.entitle(panel, f"{name}: rounds in which the gradient has come")
    beside = {"loc": "lower right"} if page.current.is_column else {"loc": "upper left", "bbox_to_anchor": (1.01, 1)}
    panel.legend([plt.Line2D([], [], **looks[label]) for label in times], list(times), **beside, frameon=False,
                 labelcolor="linecolor", handlelength=2, title="gradient",
                 title_fontsize="small", alignment="left")
