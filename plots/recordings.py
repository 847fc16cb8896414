"""Figures of optional recordings: measurements, arrivals of gradients, kept samples, and losses by length of text."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator, NullFormatter, NullLocator, PercentFormatter

from plots import style
from plots.comparison import Method
from plots.curves import ACROSS, Curve, draw_curves, mean_curve
from plots.runs import ARRIVALS, read_table
from plots.sheet import Place, Sheet, shared_out

PANEL = 5.2  # width of a panel in inches

MEASUREMENTS = {"gradient_norm": "norm of the gradient", "step_gradient_norm": "norm of a step's gradient",
                "largest_eigenvalue": "largest eigenvalue of the Hessian", "hessian_trace": "trace of the Hessian",
                "gradient_variance": "variance of single samples' gradients", "noise_scale": "noise scale of gradients, in samples",
                "parameter_norm": "norm of the parameters", "consensus_distance": "distance of models from their mean",
                "evaluated_consensus_distance": "distance of evaluated models"}

COLUMNS = ["step", "k", "worker", "arrival_s"]
FEW = 20  # up to this many gradients of a round have room on the axis
ALIKE = 0.03  # if methods wait for the same workers, their mean arrivals differ by less than this share

SPLITS = ("by_length", "by_class")
LENGTHS = "length in tokens, by eighths of the training samples"
LEARNED = {"test_loss": "Test loss of the last model", "test_accuracy": "Test accuracy of the last model"}


def measurements_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str):
    """A panel for each measured quantity, against steps; None if nothing was measured. `looks`: by label."""
    styles = {method.name: looks[method.label] for method in methods}
    panels = [(quantity, lines) for quantity in measured_quantities(methods) if (lines := curves_of(methods, quantity))]
    if not panels:
        return None
    rows = shared_out(panels, ACROSS)
    sheet = Sheet([[Place(list(panel[1]) if panel is row[-1] else [], height=2.8) for panel in row] for row in rows],
                  heading, subtitle)
    ends_row = {id(row[-1]) for row in rows}
    for panel, drawn in zip(sheet.panels, panels):
        quantity, lines = drawn
        draw_curves(panel, lines, styles, 1, "optimizer steps")
        limit_measurements(panel, lines)
        sheet.entitle(panel, MEASUREMENTS.get(quantity, quantity))
        if id(drawn) in ends_row:
            sheet.name_lines(panel, {name: (curve.x[-1], curve.mean[-1]) for name, curve in lines.items()}, styles)
    return sheet.finish()


def measured_quantities(methods: list[Method]) -> list[str]:
    """The quantities that at least one run measured: first those in MEASUREMENTS, in its order."""
    found = {quantity for method in methods for run in method.runs if run.measurements is not None
             for quantity in run.measurements["quantity"]}
    return [quantity for quantity in MEASUREMENTS if quantity in found] + sorted(found - set(MEASUREMENTS))


def curves_of(methods: list[Method], quantity: str) -> dict[str, Curve]:
    lines = {}
    for method in methods:
        tables = [run.measurements[run.measurements["quantity"] == quantity] for run in method.runs
                  if run.measurements is not None]
        tables = [table for table in tables if len(table)]
        curve = mean_curve([table["step"].to_numpy(float) for table in tables],
                           [table["value"].to_numpy(float) for table in tables])
        if curve is not None:
            lines[method.name] = curve
    return lines


def limit_measurements(panel, lines: dict[str, Curve]) -> None:
    """Sets a range that begins at 0, or a logarithmic axis if values differ by more than a factor of 20."""
    values = np.concatenate([np.concatenate([curve.low, curve.high]) for curve in lines.values()])
    if values.min() > 0 and values.max() > 20 * values.min():
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter(style.DECADES)
        panel.yaxis.set_minor_formatter(NullFormatter())
    elif values.min() >= 0:
        panel.set_ylim(0, 1.06 * values.max() or 1)


def arrivals_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str):
    """The time at which the k-th gradient of a round arrives (Chen et al. 2016, Figures 3 and 4): its mean against k
    and, for the method with the most gradients per round, the share of rounds in which it has arrived by a given time.
    None if no run recorded arrivals. `looks`: by label."""
    tables = {method.name: table for method in methods if len(table := arrivals_of(method))}
    if not tables:
        return None
    styles = {method.name: looks[method.label] for method in methods}
    widest = max(tables, key=lambda name: last_of(tables[name]))
    beside = list(shown_ks(tables[widest]).values())
    sheet = Sheet([[Place(list(tables), width=PANEL), Place(beside, width=PANEL)]], heading,
                  subtitle.replace(", band: lowest to highest", ""))
    scale, unit = style.time_unit(max(quantiles(table).loc[:, 0.9].max() for table in tables.values()))
    draw_means(sheet, sheet.panels[0], tables, styles, widest, scale, unit)
    draw_shares(sheet, sheet.panels[1], widest, tables[widest], scale, unit)
    return sheet.finish()


def arrivals_of(method: Method) -> pd.DataFrame:
    """The arrivals of all seeds, with the columns COLUMNS."""
    tables = [read_table(path, COLUMNS) for run in method.runs if (path := run.directory / ARRIVALS).exists()]
    return pd.concat(tables) if tables else pd.DataFrame(columns=COLUMNS)


def quantiles(table: pd.DataFrame) -> pd.DataFrame:
    """A table with a row for each k: the mean arrival, and its 0.1 and 0.9 quantiles in columns of these names."""
    by_k = table.groupby("k")["arrival_s"]
    return pd.DataFrame({"mean": by_k.mean(), 0.1: by_k.quantile(0.1), 0.9: by_k.quantile(0.9)})


def last_of(table: pd.DataFrame) -> tuple[int, float]:
    """The largest number of gradients in a round, and the mean arrival of the last of these gradients."""
    most = int(table["k"].max())
    return most, float(table.loc[table["k"] == most, "arrival_s"].mean())


def draw_means(sheet: Sheet, panel, tables: dict[str, pd.DataFrame], styles: dict[str, dict], widest: str, scale: float,
               unit: str) -> None:
    """Draws the mean arrival against k. With many gradients the axis is logarithmic in the number of gradients still to
    arrive, so that the last few have room. `widest`: the method with the most gradients. A method whose gradients
    arrive at nearly the same times as those of `widest` gets only a mark at its end, since its line would hide the
    other line."""
    most, ends = int(tables[widest]["k"].max()), {}
    of_methods = {name: quantiles(table) / scale for name, table in tables.items()}
    for name, of_k in sorted(of_methods.items(), key=lambda entry: entry[0] != widest):
        x, look = most + 1 - of_k.index.to_numpy(), styles[name]
        if name == widest or not comes_alike(of_k, of_methods[widest]):
            panel.plot(x, of_k["mean"], **style.without_marker(look), gid="mean")
        if name == widest:  # a single band, because several would hide each other and the lines
            panel.fill_between(x, of_k[0.1], of_k[0.9], color=look["color"], alpha=0.16, linewidth=0)
        panel.plot(x[-1], of_k["mean"].iloc[-1], **{**look, "linestyle": "none"},
                   markersize=1.5 * style.page.marker, zorder=4, gid="end")
        ends[name] = (x[-1], of_k["mean"].iloc[-1])
    if most > FEW:
        panel.set_xscale("log")
        panel.xaxis.set_minor_locator(NullLocator())
    ticks = ticks_of(most)
    panel.set_xticks([most + 1 - k for k in ticks], [str(k) for k in ticks])
    panel.set_xlim(most * 1.1 if most > FEW else most + 0.3, 0.9 if most > FEW else 0.7)  # the last at the right
    panel.set_xlabel("k-th gradient of a round" + (", by the number still to arrive" if most > FEW else ""))
    panel.set_ylabel(f"time since the round began ({unit})")
    of_widest = f" of {widest}" if len(tables) > 1 else ""
    sheet.entitle(panel, f"Arrival: mean, and 10 to 90 % of the rounds{of_widest}; marks: the last gradient")
    sheet.name_lines(panel, ends, {name: look if name == widest or not comes_alike(of_methods[name], of_methods[widest])
                                   else {**look, "linestyle": "none"} for name, look in styles.items() if name in ends})


def comes_alike(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Whether all mean arrivals of `one` nearly equal those of `other` for the same k."""
    there = one.index.intersection(other.index)
    means, others = one["mean"], other["mean"][there]
    return len(there) == len(one) and bool(np.all(np.abs(means - others) <= ALIKE * others))


def ticks_of(most: int) -> list[int]:
    """The k to label: all if there are few, otherwise those before the last 1, 2, 5, 10, 20, ... gradients."""
    if most <= FEW:
        return list(range(1, most + 1))
    left = [1, 2, 5]
    while 10 * left[-3] <= most / 2:
        left.append(10 * left[-3])
    return sorted({1, *(most + 1 - rest for rest in left)})


def shown_ks(table: pd.DataFrame) -> dict[int, str]:
    """At most seven k with their names: the first, the one at half, the one at nine tenths, and the last four."""
    most = int(table["k"].max())
    wanted = [1, most // 2, round(0.9 * most), most - 3, most - 2, most - 1, most]
    return {k: ordinal(k) for k in sorted({k for k in wanted if k >= 1})}


def ordinal(number: int) -> str:
    """The name of a gradient: 1st, 2nd, ... "k = 90" might be the name of a method."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"


def draw_shares(sheet: Sheet, panel, name: str, table: pd.DataFrame, scale: float, unit: str) -> None:
    """Draws, for some k, the share of rounds in which the k-th gradient has arrived by a given time."""
    ks = shown_ks(table)
    colours = plt.get_cmap("viridis")(np.linspace(0, 0.82, len(ks)))
    looks = {label: {"color": colour, "linestyle": dashes} for label, colour, dashes
             in zip(ks.values(), colours, [*style.DASHES, "solid"])}
    times = {label: np.sort(table.loc[table["k"] == k, "arrival_s"].to_numpy()) / scale for k, label in ks.items()}
    longest = max(np.quantile(values, 0.98) for values in times.values())
    for label, values in times.items():
        panel.step(np.append(values, max(longest, values[-1])), np.append(np.arange(1, len(values) + 1) / len(values), 1),
                   where="post", **looks[label], linewidth=0.8 * style.page.line)
    first = min(values[0] for values in times.values())
    panel.set_xlim(first - 0.04 * (longest - first) if first > longest / 8 else min(0.0, first), 1.02 * longest)
    panel.set_ylim(0, 1.02)
    panel.set_xlabel(f"time since the round began ({unit})")
    panel.set_ylabel("share of the rounds")
    sheet.entitle(panel, f"{name}: rounds in which the gradient has arrived")
    beside = {"loc": "lower right"} if style.page.is_column else {"loc": "upper left", "bbox_to_anchor": (1.01, 1)}
    panel.legend([plt.Line2D([], [], **looks[label]) for label in times], list(times), **beside, frameon=False,
                 labelcolor="linecolor", handlelength=2, title="gradient",
                 title_fontsize="small", alignment="left")


def kept_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str):
    """The share of samples that were kept, by length and by class; None if no run recorded it. `looks`: by label."""
    styles = {method.name: looks[method.label] for method in methods}
    kinds = {kind: shares for kind in SPLITS if (shares := {method.name: share for method in methods
                                                            if (share := shares_of(method, kind)) is not None})}
    if not kinds:
        return None
    sheet = Sheet([[Place(list(styles) if kind == list(kinds)[-1] else [], width=PANEL) for kind in kinds]], heading, subtitle)
    for panel, (kind, shares) in zip(sheet.panels, kinds.items()):
        shown = styles if kind == "by_length" else {name: {**look, "linestyle": "none"} for name, look in styles.items()}
        ends = draw_by_length(panel, shares, shown) if kind == "by_length" else draw_dots(panel, shares, shown)
        most = max(1.0, *(np.nanmax(share) for _, share in shares.values()))  # gradient coding computes parts several times
        bottom = min(panel.get_ylim()[0], most - 0.01)
        panel.set_ylim(bottom, most + 0.05 * (most - bottom))
        panel.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
        sheet.entitle(panel, "Share of kept samples")
    sheet.name_lines(panel, ends, shown)
    return sheet.finish()


def shares_of(method: Method, kind: str):
    """(places, shares) over all seeds; None if no run recorded kept samples, or if no samples were offered."""
    recorded = [kinds for run in method.runs if "offered" in (kinds := run.summary.get("samples_kept", {}).get(kind, {}))]
    if not recorded:
        return None
    kept, offered = (np.sum([one[name] for one in recorded], axis=0, dtype=float) for name in ("kept", "offered"))
    if not offered.any():
        return None
    places = recorded[0].get("longest", range(len(kept)))
    return np.array(places), np.divide(kept, offered, out=np.full(len(kept), np.nan), where=offered > 0)


def draw_dots(panel, shares: dict, styles: dict[str, dict]) -> dict[str, tuple[float, float]]:
    """Draws the methods' dots side by side for each class, without lines: classes have no order. Returns the last."""
    ends = {}
    for number, (name, (places, share)) in enumerate(shares.items()):
        beside = places + 0.6 * ((number + 0.5) / len(shares) - 0.5)
        panel.plot(beside, share, **styles[name], markersize=style.page.marker * (0.85 if len(places) <= 20 else 0.65))
        ends[name] = style.last_point(beside, share)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set_xlabel("class")
    return ends


def lengths_figure(methods: list[Method], looks: dict[str, dict], heading: str, subtitle: str):
    """The last models' test loss and accuracy by length of the text; None if no run has them. `looks`: by label."""
    styles = {method.name: looks[method.label] for method in methods}
    panels = {quantity: lines for quantity in LEARNED if (lines := {method.name: line for method in methods
                                                                   if (line := means_by_length(method, quantity)) is not None})}
    if not panels:
        return None
    sheet = Sheet([[Place(list(styles) if number == len(panels) - 1 else [], width=PANEL) for number in range(len(panels))]],
                  heading, subtitle.replace(", band: lowest to highest", ""))
    for panel, (quantity, lines) in zip(sheet.panels, panels.items()):
        ends = draw_by_length(panel, lines, styles)
        if quantity == "test_accuracy":
            panel.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
        sheet.entitle(panel, LEARNED[quantity])
    sheet.name_lines(panel, ends, styles)
    return sheet.finish()


def draw_by_length(panel, lines: dict, styles: dict[str, dict]) -> dict[str, tuple[float, float]]:
    """Draws lines of (largest length of each eighth, values), with equal distances. Returns the ends of the lines."""
    ends = {}
    for name, (longest, values) in lines.items():
        places = np.arange(len(longest))
        panel.plot(places, values, **styles[name])
        panel.set_xticks(places, ranges(longest), rotation=45 if style.page.is_column else 0)
        ends[name] = style.last_point(places, values)
    panel.set_xlabel(LENGTHS)
    return ends


def ranges(longest) -> list[str]:
    """Names of the eighths. The first has no lower end: test samples may be shorter than all training samples."""
    others = [(int(length) + 1, int(last)) for length, last in zip(longest[:-1], longest[1:])]
    return [f"≤{int(longest[0])}", *(f"{first}–{last}" if first < last else f"{last}" for first, last in others)]


def means_by_length(method: Method, quantity: str):
    """(largest length of each eighth, means over the seeds that have test samples of these lengths); None if no run has
    any."""
    recorded = [kinds for run in method.runs if (kinds := run.summary.get("samples_kept", {}).get("by_length", {})).get(quantity)]
    if not recorded or not any(np.isfinite(np.array(kinds[quantity], dtype=float)).any() for kinds in recorded):
        return None
    values = np.array([kinds[quantity] for kinds in recorded], dtype=float)
    counts = np.isfinite(values).sum(axis=0)
    sums = np.nansum(values, axis=0)
    return np.array(recorded[0]["longest"]), np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
