"""The table of results: a row per method and swept value, its numbers over seeds and how they differ from one row's."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor, log10
from pathlib import Path

import numpy as np

from plots.methods import BASELINE, MPI, Method
from plots.numbers import MOST_DECIMALS, SamePlace, is_plain, shown_number, typeset, typeset_number
from plots.report.markup import escaped
from plots.report.measures import ROUNDING, Measured, ProgramFault, Row, rows_of, table_csv
from plots.runs import ResultsFault
from plots.style import byte_unit, time_unit

UNDER_MPI = ", under MPI"  # ends a row's label where others are on the simulated cluster
TOO_FAR = 1e4  # apart for one unit that leaves no value below 1
PLUS_MINUS = "\u00b1"


@dataclass
class Column:
    measure: str
    heading: str
    kind: str = "number"  # or percent, time, bytes, count


TIME_TO_TARGET, TIME_OF_RUN = "time_to_target_s", "end_time_s"
OUTCOME = [Column("final_test_accuracy", "test accuracy", "percent"), Column("final_test_loss", "test loss"),
           Column("final_validation_accuracy", "validation accuracy", "percent"), Column("final_train_loss", "training loss"),
           Column(TIME_TO_TARGET, "time to target", "time")]
COST = [Column(TIME_OF_RUN, "time of the run", "time"), Column("step_time_s", "time per step", "time"),
        Column("samples_per_s", "samples per second", "count"), Column("drop_rate", "dropped", "percent"),
        Column("rounds", "synchronisations", "count"), Column("communicated_bytes", "sent by all", "bytes")]
COLUMNS = [*OUTCOME, *COST]


def baseline(methods: list[Method]) -> str:
    """The label of what the others are compared with."""
    return next((method for method in methods if method.algorithm == BASELINE), methods[0]).label


def read_results(program: str, directory: Path, experiment: str, against: str, asked: bool) -> tuple[list[Row], str, str]:
    """The rows, their CSV, and why there are no differences, if so. `asked`: the user has named `against`, so that it
    must be there."""
    why = ""
    try:
        text = table_csv(program, directory, against)
    except ProgramFault as fault:
        why = str(fault)
        if asked:
            raise ResultsFault(why) from None
    if why:
        try:
            text = table_csv(program, directory, None)
        except ProgramFault as fault:
            raise ResultsFault(str(fault)) from None
    rows = rows_of(text, experiment)
    if not rows:
        raise ResultsFault(f"{directory}: no run of {experiment} has finished; expected at least one that has")
    return rows, text, why.removeprefix("--against: ")


@dataclass
class Scale:
    """How the numbers of a column are written."""

    times: float
    unit: str
    decimals: int

    def __call__(self, value: float, sign: bool = False) -> str:
        return set_in_page(f"{value * self.times:{'+' if sign else ''},.{self.decimals}f}")

    def mean(self, value: float) -> str:
        """Scientific where the column's decimals would not show it."""
        value *= self.times
        return self(value / self.times) if is_plain(value, self.decimals) else typeset_number(value)

    def place(self, uncertainty: float, *values: float) -> SamePlace:
        """Of numbers that are read together, once they are scaled."""
        return SamePlace.of(self.times * max(values, key=abs), self.times * uncertainty)

    def together(self, uncertainty: float, *values: float) -> SamePlace | None:
        """That, where decimals do not suit them."""
        place = self.place(uncertainty, *values)
        return place if uncertainty > 0 and (not place.is_plain or place.last_place < -MOST_DECIMALS) else None


def set_in_page(number: str) -> str:
    """With narrow spaces between thousands, and without a sign of zero."""
    if number.strip("+-0.,") == "":
        number = number.lstrip("+-")
    return typeset(number).replace(",", "\u202f")


def scale_of(column: Column, values: list[float]) -> Scale:
    largest = max((abs(value) for value in values), default=0)
    usual = float(np.median(np.abs(values))) or largest
    if column.kind == "percent":
        return Scale(100, "%", 2)
    times, unit = 1.0, ""
    if column.kind == "time":
        seconds, unit = time_unit(largest)
        times = 1 / seconds
    elif column.kind == "bytes":
        smallest = min((abs(value) for value in values if value), default=0)
        size, unit = byte_unit(smallest if largest <= TOO_FAR * smallest else usual)
        times = 1 / size
    digits = 3 if column.kind == "count" else 4
    decimals = digits - 1 - floor(log10(usual * times)) if usual > 0 else 0
    if column.kind == "count" and all(float(value).is_integer() for value in values):
        decimals = 0
    return Scale(times, unit, min(max(decimals, 0), 6))


def results_table(rows: list[Row], swatches: dict[str, str], ends_by_time: bool = False) -> str:
    """What the last models are like, and what they cost: in two tables, for one would be too wide for a screen. `swatches`:
    a piece of each method's line, by its label. `ends_by_time`: a budget in seconds ends all runs."""
    tables = []
    for name, columns in (("outcome", OUTCOME), ("cost", COST)):
        known = [(column, known_means(column, rows)) for column in columns]
        shown = [(column, scale_of(column, means)) for column, means in known if means]
        shown = [(column, scale) for column, scale in shown if column.measure != "drop_rate" or is_anything_dropped(rows)]
        if shown:
            tables.append(table_of(name, rows, shown, swatches, ends_by_time))
    return "".join(tables)


def table_of(name: str, rows: list[Row], columns: list[tuple[Column, Scale]], swatches: dict[str, str], ends_by_time: bool) -> str:
    heads = "".join(f'<th scope="col">{column.heading}{f" <small>{scale.unit}</small>" if scale.unit else ""}</th>'
                    for column, scale in columns)
    lines = []
    for row in rows:
        cells = "".join(cell(row, column, scale, ends_by_time) for column, scale in columns)
        lines.append(f'<tr><th scope="row">{swatch_of(row, swatches)}{escaped(row.label)}</th>'
                     f'<td class="seeds" data-name="seeds">{seeds_of(row)}</td>{cells}</tr>')
    return (f'<div class="scroll" tabindex="0" role="region" aria-label="Table of results: {name}"><table class="results {name}">'
            f'<thead><tr><th scope="col">method</th><th scope="col">seeds</th>{heads}</tr></thead>'
            f'<tbody>{"".join(lines)}</tbody></table></div>')


def known_means(column: Column, rows: list[Row]) -> list[float]:
    shown = [row.measures[column.measure].mean for row in rows if column.measure in row.measures]
    return shown or [row.missed.mean for row in rows if row.missed and column.measure == TIME_TO_TARGET]


def swatch_of(row: Row, swatches: dict[str, str]) -> str:
    label = label_of_row(row, swatches)
    return "" if label is None else swatches[label]


def label_of_row(row: Row, labels: Iterable[str]) -> str | None:
    """Of the method whose name has the most of what the row's label says; runs under MPI have a line of their own where
    there are both."""
    parts = set(row.label.removesuffix(UNDER_MPI).split(", "))
    own = [label for label in labels if set(label.removesuffix(MPI).split(", ")) <= parts]
    clocked = [label for label in own if label.endswith(MPI) == row.label.endswith(UNDER_MPI)]
    return max(clocked or own, key=len) if own else None


def is_anything_dropped(rows: list[Row]) -> bool:
    return any(row.measures["drop_rate"].mean for row in rows if "drop_rate" in row.measures)


def seeds_of(row: Row) -> int:
    return max(measured.n for measured in row.measures.values())


def cell(row: Row, column: Column, scale: Scale, ends_by_time: bool) -> str:
    measured = row.measures.get(column.measure)
    begin = f'<td data-name="{column.heading}{f", {scale.unit}" if scale.unit else ""}">'
    if column.measure == TIME_TO_TARGET and row.missed:
        reached = measured.n if measured else 0
        bound = f'&gt; {scale.mean(row.missed.mean)}<small class="std">({reached}/{reached + row.missed.n})</small>'
        return f'{begin}<span class="mean">{bound}</span>{difference(measured, scale) if measured else ""}</td>'
    if measured is None:
        return begin.replace("<td", '<td class="none"') + "–</td>"
    mean, std = mean_and_std(measured, scale)
    if measured.n > 1:
        mean += f'<small class="std">{PLUS_MINUS}{std}</small>'
    if measured.n < seeds_of(row):
        mean += f'<small class="std">of {measured.n}</small>'
    if column.measure == TIME_OF_RUN and ends_by_time:
        return f'{begin}<span class="mean">{mean}</span></td>'
    return f'{begin}<span class="mean">{mean}</span>{difference(measured, scale)}</td>'


def mean_and_std(measured: Measured, scale: Scale) -> tuple[str, str]:
    together = scale.together(measured.std, measured.mean)
    if together or not is_plain(measured.mean * scale.times, scale.decimals):
        if not measured.std > 0:
            return typeset_number(measured.mean * scale.times), "0"
        together = together or SamePlace.of(measured.mean * scale.times, measured.std * scale.times)
        return typeset(together(measured.mean * scale.times)), typeset(together(measured.std * scale.times))
    return scale(measured.mean), finer(scale, measured.std, digits=1)(measured.std)


def difference(measured: Measured, scale: Scale) -> str:
    if measured.difference is None:
        return ""
    if measured.low is None or measured.high is None:
        return f'<span class="difference">{one_difference(measured, scale)}</span>'
    if measured.is_exact:
        return f'<span class="difference">{one_difference(measured, scale)} <small>exact</small></span>'
    half = (measured.high - measured.low) / 2
    together, fine = scale.together(half, measured.difference, measured.low, measured.high), finer(scale, half)
    mean, low, high = (typeset(together(scale.times * end, "+")) if together else fine(end, sign=True)
                       for end in (measured.difference, measured.low, measured.high))
    interval = f"<small>[{low}, {high}]</small>"
    if measured.is_significant and any(digit in mean for digit in "123456789"):
        return f'<span class="difference significant">{mean}<abbr title="significant">*</abbr> {interval}</span>'
    return f'<span class="difference">{mean} {interval}</span>'


def one_difference(measured: Measured, scale: Scale) -> str:
    """Without an interval. What is nothing beside the numbers that it is between is zero."""
    value = measured.difference
    is_rounding = abs(value) <= ROUNDING * abs(measured.mean)
    if is_rounding or is_plain(scale.times * value, scale.decimals):
        return scale(value, sign=True)
    return typeset(shown_number(scale.times * value, sign="+"))


def finer(scale: Scale, width: float, digits: int = 2) -> Scale:
    """With decimals that show so many digits of a deviation, or of half an interval, lest its ends read as one number."""
    if not width > 0:
        return scale
    return Scale(scale.times, scale.unit, min(max(scale.decimals, digits - 1 - floor(log10(width * scale.times))), 7))


def results_notes(rows: list[Row], against: str, why: str, missed: bool = False) -> str:
    """What the table's numbers mean. `missed`: there is a target, which no run reached."""
    several = any(measured.n > 1 for row in rows for measured in row.measures.values())
    notes = [f"First line: the mean over the seeds, {PLUS_MINUS} the standard deviation." if several else
             "One seed each, so there are no intervals."]
    if why:
        notes.append(f"There are no differences: {escaped(why)}.")
    elif several:
        notes.append(f"Second line: the mean difference from <b>{escaped(against)}</b> over the seeds that both have, seed by "
                     "seed, with the 95 % interval of that mean by Student’s t. A star: the interval excludes no "
                     "difference, and where six seeds or more let a sign-flip test tell, so does that." +
                     (" Exact: it is the same for every seed, so there is no interval." if any(
                         measured.is_exact for row in rows for measured in row.measures.values()) else ""))
    else:
        notes.append(f"Second line: the difference from <b>{escaped(against)}</b>.")
    if any("time_to_target_s" in row.measures for row in rows):
        notes.append("Differences of times to the target are of means restricted to the time up to which all runs are known.")
    if missed:
        notes.append("No run reached the target: there are no times to it.")
    if any(row.missed for row in rows):
        notes.append("&gt; T (k/n): k of n seeds reached the target; the others had not by time T.")
    return f'<p class="note">{" ".join(notes)}</p>'
