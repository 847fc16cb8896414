"""When the k-th gradient of a round arrives (Chen et al. 2016, Figures 3 and 4): its time against k, and the share of the
rounds in which it has come by then."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from plots import style
from plots.methods import Method
from plots.plan import ARRIVALS
from plots.runs import read_table

COLUMNS = ["step", "k", "worker", "arrival_s"]
HEIGHT, PANEL = 4.9, 5.2  # inches: of the figure, and the width of a panel


def arrivals_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str):
    """The figure, or None where no run has arrivals. `looks`: by label."""
    tables = {method.name: table for method in methods if len(table := arrivals_of(method))}
    if not tables:
        return None
    styles = {method.name: looks[method.label] for method in methods}
    first = next(iter(tables))
    right, last = style.label_inches(tables) + 0.15, style.label_inches(shown_ks(tables[first]).values()) + 0.5
    width = 0.75 + PANEL + right + 0.75 + PANEL + last
    figure = plt.figure(figsize=(width, HEIGHT))
    tops = 1 - 1.2 / HEIGHT - 0.13
    scale, unit = style.time_unit(max(quantiles(table).loc[:, 0.9].max() for table in tables.values()))
    draw_means(figure.add_axes([0.75 / width, 0.13, PANEL / width, tops]), tables, styles, scale, unit)
    left = 0.75 + PANEL + right + 0.75
    draw_shares(figure.add_axes([left / width, 0.13, PANEL / width, tops]), first, tables[first], scale, unit)
    style.title(figure, heading, subtitle)
    return figure


def arrivals_of(method: Method) -> pd.DataFrame:
    """Of all seeds together, without a worker's place."""
    tables = [read_table(path, COLUMNS) for run in method.runs if (path := run.directory / ARRIVALS).exists()]
    return pd.concat(tables) if tables else pd.DataFrame(columns=COLUMNS)


def quantiles(table: pd.DataFrame) -> pd.DataFrame:
    """By k: the mean, and the columns 0.1 and 0.9."""
    by_k = table.groupby("k")["arrival_s"]
    return pd.DataFrame({"mean": by_k.mean(), 0.1: by_k.quantile(0.1), 0.9: by_k.quantile(0.9)})


def draw_means(panel, tables: dict[str, pd.DataFrame], styles: dict[str, dict], scale: float, unit: str) -> None:
    ends = {}
    for name, table in tables.items():
        of_k = quantiles(table) / scale
        panel.plot(of_k.index, of_k["mean"], **styles[name], marker="o" if len(of_k) <= 40 else "", markersize=3.5)
        panel.fill_between(of_k.index, of_k[0.1], of_k[0.9], color=styles[name]["color"], alpha=0.16, linewidth=0)
        ends[name] = (of_k.index[-1], of_k["mean"].iloc[-1])
    panel.set_xlabel("k-th gradient of a round")
    panel.set_ylabel(f"time since the round began ({unit})")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set_title("When it arrives: mean, and 10 to 90 % of the rounds", loc="left", fontsize=10)
    style.label_lines(panel, ends, styles)


def shown_ks(table: pd.DataFrame) -> dict[int, str]:
    """Of at most seven k: the first, half of them, nine tenths, and the last four."""
    most = int(table["k"].max())
    wanted = [1, most // 2, round(0.9 * most), most - 3, most - 2, most - 1, most]
    return {k: f"k = {k}" for k in sorted({k for k in wanted if k >= 1})}


def draw_shares(panel, name: str, table: pd.DataFrame, scale: float, unit: str) -> None:
    """Of the rounds that have so many arrivals."""
    ks = shown_ks(table)
    colours = plt.get_cmap("viridis")(np.linspace(0, 0.88, len(ks)))
    looks = {label: {"color": colour} for label, colour in zip(ks.values(), colours)}
    times = {label: np.sort(table.loc[table["k"] == k, "arrival_s"].to_numpy()) / scale for k, label in ks.items()}
    longest = max(np.quantile(values, 0.98) for values in times.values())
    for label, values in times.items():
        panel.step(np.append(values, max(longest, values[-1])), np.append(np.arange(1, len(values) + 1) / len(values), 1),
                   where="post", **looks[label], linewidth=1.5)
    panel.set_xlim(min(0.0, *(values[0] for values in times.values())), 1.02 * longest)
    panel.set_ylim(0, 1.02)
    panel.set_xlabel(f"time since the round began ({unit})")
    panel.set_ylabel("share of the rounds")
    panel.set_title(f"{name}: rounds whose k-th gradient has come", loc="left", fontsize=10)
    panel.legend([plt.Line2D([], [], **looks[label]) for label in times], list(times), loc="upper left",
                 bbox_to_anchor=(1.01, 1), frameon=False, labelcolor="linecolor", handlelength=1.2)
