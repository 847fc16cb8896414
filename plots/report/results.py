"""Results on the page: reads the numbers of `syncopate table`; writes tables, and a summary of sentences and bars."""

import csv
import io
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import floor, log10, sqrt
from pathlib import Path

import numpy as np

from plots.comparison import BASELINE, MPI, Method
from plots.final_results import beyond_the_axis
from plots.numbers import MOST_DECIMALS, SamePlace, is_plain, quantile, shown_number, typeset, typeset_number
from plots.report import escaped, table_markup
from plots.report.charts import page_look
from plots.runs import ResultsFault, in_words
from plots.style import byte_unit, time_unit

ROUNDING = 1e-9
FLIPS_CAN_TELL = 6  # fewest seeds with which a sign-flip test can reach 5 %

UNDER_MPI = ", under MPI"  # at the end of a row's label if there are also simulated rows
TOO_FAR = 1e4  # if values differ by this factor, no unit makes all of them at least 1
PLUS_MINUS = "\u00b1"

ACCURACY, LOSS, SPEED, BYTES = "final_test_accuracy", "final_test_loss", "samples_per_s", "communicated_bytes"
TIME_TO_TARGET, TIME_OF_RUN, STEP_TIME, DROP_RATE = "time_to_target_s", "end_time_s", "step_time_s", "drop_rate"
RISING = {ACCURACY, SPEED}  # measures of which more is better
MOST_NAMED, MOST_BARS = 4, 40
CLOSE = 1.001  # bars are left out if they differ by no more than this factor
WIDE = 1e3  # a bar that is this many times longer than others would make these invisible


@dataclass
class Measured:
    """A measure of one row over its seeds, and its difference from another row, paired by seed."""

    n: int
    mean: float
    std: float
    against: str = ""  # the label of the other row
    pairs: int = 0
    difference: float | None = None
    low: float | None = None  # 95 % interval of the mean difference, by Student's t
    high: float | None = None
    sign_flip_p: float | None = None

    @property
    def is_exact(self) -> bool:
        """Whether all seeds have the same difference up to rounding, so that an interval means nothing."""
        return (self.low is not None and self.high is not None
                and self.high - self.low <= ROUNDING * max(abs(self.difference), abs(self.mean)))

    @property
    def is_significant(self) -> bool:
        """Whether the interval excludes zero and, with enough seeds for it, a sign-flip test does, too."""
        if self.low is None or self.high is None or self.low <= 0 <= self.high or self.is_exact:
            return False
        return self.pairs < FLIPS_CAN_TELL or self.sign_flip_p is None or self.sign_flip_p <= 0.05


@dataclass
class Row:
    label: str  # method and swept values
    method: str
    measures: dict[str, Measured]

    @property
    def missed(self) -> Measured | None:
        """The seeds that missed the target: `n` is their number, and `mean` the time when the first of them ended."""
        return self.measures.get("target_missed_until_s")


class ProgramFault(Exception):
    """A fault that the program reports; the message is the program's."""


def table_csv(program: str, directory: Path, against: str | None) -> str:
    """The output of `syncopate table`. Raises ProgramFault."""
    command = [program, "table", str(directory), "--format", "csv", *(["--against", against] if against else [])]
    try:
        result = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace")
    except OSError as fault:
        raise ProgramFault(f"{program}: {fault.strerror}; ./dev build makes the program") from None
    if result.returncode != 0:
        raise ProgramFault(" ".join(result.stderr.split()) or f"ended with status {result.returncode}")
    return result.stdout


def rows_of(text: str, experiment: str) -> list[Row]:
    """The rows of an experiment. Raises ResultsFault."""
    rows: dict[str, Row] = {}
    try:
        for line in csv.DictReader(io.StringIO(text)):
            if line["experiment"] != experiment:
                continue
            row = rows.setdefault(line["row"], Row(line["row"], line["method"], {}))
            row.measures[line["measure"]] = measured(line)
    except (KeyError, TypeError, ValueError) as fault:
        raise ResultsFault(f"syncopate table: {in_words(fault)}; expected the CSV of this version of the "
                           "program: ./dev build makes it") from None
    return list(rows.values())


def measured(line: dict[str, str]) -> Measured:
    def number(name: str) -> float | None:
        return float(line[name]) if line.get(name) else None

    return Measured(n=int(line["n"]), mean=float(line["mean"]), std=float(line["std"]), against=line.get("against") or "",
                    pairs=int(line.get("pairs") or 0), difference=number("difference"), low=number("low"),
                    high=number("high"), sign_flip_p=number("sign_flip_p"))


@dataclass
class Column:
    """A column of the tables."""

    measure: str
    heading: str
    kind: str = "number"  # "number", "percent", "time", "bytes" or "count"


OUTCOME = [Column(ACCURACY, "test accuracy", "percent"), Column(LOSS, "test loss"),
           Column("final_validation_accuracy", "validation accuracy", "percent"), Column("final_train_loss", "training loss"),
           Column(TIME_TO_TARGET, "time to target", "time")]
COST = [Column(TIME_OF_RUN, "time of the run", "time"), Column(STEP_TIME, "time per step", "time"),
        Column(SPEED, "samples per second", "count"), Column(DROP_RATE, "dropped", "percent"),
        Column("rounds", "synchronisations", "count"), Column(BYTES, "sent by all", "bytes")]
COLUMNS = [*OUTCOME, *COST]


def baseline(methods: list[Method]) -> str:
    """The label of the method to compare with if the user names none: the first synchronous SGD, or else the first
    method."""
    return next((method for method in methods if method.algorithm == BASELINE), methods[0]).label


def read_results(program: str, directory: Path, experiment: str, against: str, asked: bool) -> tuple[list[Row], str, str]:
    """The rows, their CSV, and the reason why there are no differences, if that is so. `asked`: the user named
    `against`, so this method must exist. Raises ResultsFault."""
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
        raise ResultsFault(f"{directory}: no run of {experiment} has finished; expected at least one finished run")
    return rows, text, why.removeprefix("--against: ")


@dataclass
class Scale:
    """The unit and the decimals of a column."""

    times: float
    unit: str
    decimals: int

    def __call__(self, value: float, sign: bool = False) -> str:
        return set_in_page(f"{value * self.times:{'+' if sign else ''},.{self.decimals}f}")

    def mean(self, value: float) -> str:
        """The value, in scientific form if the column's decimals would show only its zeros."""
        value *= self.times
        return self(value / self.times) if is_plain(value, self.decimals) else typeset_number(value)

    def place(self, uncertainty: float, *values: float) -> SamePlace:
        """The common last decimal place of values that are read together."""
        return SamePlace.of(self.times * max(values, key=abs), self.times * uncertainty)

    def together(self, uncertainty: float, *values: float) -> SamePlace | None:
        """The common last decimal place, if the column's decimals do not suit the values; otherwise None."""
        place = self.place(uncertainty, *values)
        return place if uncertainty > 0 and (not place.is_plain or place.last_place < -MOST_DECIMALS) else None


def set_in_page(number: str) -> str:
    """The number with narrow spaces between thousands. Zero has no sign."""
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
    """Two tables, of the last models and of their costs, since one table would be too wide for a screen. `swatches`: a
    piece of each method's line, by label. `ends_by_time`: whether a budget in seconds ends all runs."""
    tables = []
    for name, columns in (("outcome", OUTCOME), ("cost", COST)):
        known = [(column, known_means(column, rows)) for column in columns]
        shown = [(column, scale_of(column, means)) for column, means in known if means]
        shown = [(column, scale) for column, scale in shown if column.measure != DROP_RATE or is_anything_dropped(rows)]
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
    return table_markup(f"Table of results: {name}", f"results {name}",
                        f'<th scope="col">method</th><th scope="col">seeds</th>{heads}', "".join(lines))


def known_means(column: Column, rows: list[Row]) -> list[float]:
    shown = [row.measures[column.measure].mean for row in rows if column.measure in row.measures]
    return shown or [row.missed.mean for row in rows if row.missed and column.measure == TIME_TO_TARGET]


def swatch_of(row: Row, swatches: dict[str, str]) -> str:
    label = label_of_row(row, swatches)
    return "" if label is None else swatches[label]


def label_of_row(row: Row, labels: Iterable[str]) -> str | None:
    """The label of the row's method: the longest label whose parts are all in the row's label. If there are both
    simulated runs and runs under MPI, the latter have their own label."""
    parts = set(row.label.removesuffix(UNDER_MPI).split(", "))
    own = [label for label in labels if set(label.removesuffix(MPI).split(", ")) <= parts]
    clocked = [label for label in own if label.endswith(MPI) == row.label.endswith(UNDER_MPI)]
    return max(clocked or own, key=len) if own else None


def is_anything_dropped(rows: list[Row]) -> bool:
    return any(row.measures[DROP_RATE].mean for row in rows if DROP_RATE in row.measures)


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
    """The text of a difference without an interval: zero if it is tiny compared with the two numbers."""
    value = measured.difference
    is_rounding = abs(value) <= ROUNDING * abs(measured.mean)
    if is_rounding or is_plain(scale.times * value, scale.decimals):
        return scale(value, sign=True)
    return typeset(shown_number(scale.times * value, sign="+"))


def finer(scale: Scale, width: float, digits: int = 2) -> Scale:
    """The scale with decimals that suit the uncertainty `width`, a deviation or half an interval."""
    if not width > 0:
        return scale
    return Scale(scale.times, scale.unit, min(max(scale.decimals, digits - 1 - floor(log10(width * scale.times))), 7))


def results_notes(rows: list[Row], against: str, why: str, missed: bool = False) -> str:
    """The notes below the tables. `missed`: whether there is a target that no run reached."""
    several = any(measured.n > 1 for row in rows for measured in row.measures.values())
    notes = [f"First line: the mean over the seeds, {PLUS_MINUS} the standard deviation." if several else
             "One seed each, so there are no intervals."]
    if why:
        notes.append(f"There are no differences: {escaped(why)}.")
    elif several:
        notes.append(f"Second line: the mean difference from <b>{escaped(against)}</b> over the seeds that both have, seed by "
                     "seed, with the 95 % interval of that mean by Student’s t. A star marks a significant difference: the "
                     "interval excludes zero, and with six seeds or more so does the sign-flip test." +
                     (" Exact: the difference is the same for every seed, so there is no interval." if any(
                         measured.is_exact for row in rows for measured in row.measures.values()) else ""))
    else:
        notes.append(f"Second line: the difference from <b>{escaped(against)}</b>.")
    if any(TIME_TO_TARGET in row.measures for row in rows):
        notes.append("Times to the target are compared by restricted means: times after the end of the first run that missed "
                     "the target count as that end.")
    if missed:
        notes.append("No run reached the target, so there are no times to it.")
    if any(row.missed for row in rows):
        notes.append("&gt; T (k/n): k of n seeds reached the target; the others did not reach it by time T.")
    return f'<p class="note">{" ".join(notes)}</p>'


@dataclass
class Outcome:
    """The results that the sentences and bars show."""

    rows: list[Row]
    against: str
    target: str = ""  # "88 % test accuracy"; empty without a target
    clock: str = "time"
    ends_by_time: bool = False
    points: int = 1

    @property
    def base(self) -> Row | None:
        return next((row for row in self.rows if row.label == self.against), None)

    def having(self, measure: str) -> list[Row]:
        return [row for row in self.rows if measure in row.measures]

    @property
    def quality(self) -> str | None:
        """The measure by which the last models are compared."""
        return next((measure for measure in (ACCURACY, LOSS) if self.having(measure)), None)

    @property
    def cost(self) -> str | None:
        if not self.quality:
            return SPEED if self.having(SPEED) else None
        return None if self.ends_by_time or not self.having(TIME_OF_RUN) else TIME_OF_RUN


def target_text(evaluation: dict) -> str:
    """The target of a configuration's [evaluation] in words; empty without one."""
    of = evaluation.get("target_of", "test")
    parts = []
    if (accuracy := evaluation.get("target_accuracy")) is not None:
        parts.append(f"{typeset_number(100 * accuracy)} % {of} accuracy")
    if (loss := evaluation.get("target_loss")) is not None:
        parts.append(f"a {of} loss of {typeset_number(loss)}")
    return " and ".join(parts)


def sentences(outcome: Outcome) -> list[str]:
    """Sentences about the target, the costs and the last models, as markup."""
    if outcome.points > 1:
        return over_points(outcome)
    found = [about_target(outcome)] if outcome.target else []
    if outcome.cost and not any(found) and (len(outcome.rows) == 1 or not are_alike(outcome.cost, outcome.rows)):
        found.append(about_cost(outcome, outcome.cost))
    return [one for one in (*found, about_quality(outcome)) if one]


def about_target(outcome: Outcome) -> str:
    reached = [row for row in outcome.having(TIME_TO_TARGET) if not row.missed]
    missed = [row for row in outcome.rows if row.missed]
    if not reached:
        if not missed:
            return ""
        some = any(TIME_TO_TARGET in row.measures for row in missed)
        return f"No method reached {outcome.target}{' with every seed' * some}."
    scale = scale_for(TIME_TO_TARGET, outcome.rows)
    first = min(reached, key=lambda row: row.measures[TIME_TO_TARGET].mean)
    took = f"after {amount(first.measures[TIME_TO_TARGET], scale)} of {outcome.clock}"
    others = f"; {names(missed)} did not{' with every seed' * any(TIME_TO_TARGET in row.measures for row in missed)}" if missed else ""
    if len(outcome.rows) == 1:
        return f"The target of {outcome.target} was reached {took}."
    if first is outcome.base:
        return f"No method reached {outcome.target} sooner than {strong(first)}, which did {took}{others}."
    return (f"The first to reach {outcome.target} was {strong(first)}, {took}"
            f"{compared(first, outcome, TIME_TO_TARGET, scale, 'sooner than', 'later than')}{others}.")


def about_cost(outcome: Outcome, measure: str) -> str:
    rows, scale = outcome.having(measure), scale_for(measure, outcome.rows)
    order = max if measure in RISING else min
    best = order(rows, key=lambda row: row.measures[measure].mean)
    number = amount(best.measures[measure], scale)
    if len(rows) == 1:
        return (f"{number} samples were processed per second of {outcome.clock}." if measure == SPEED else
                f"The run took {number} of {outcome.clock}.")
    if measure == SPEED:
        return (f"The most samples per second of {outcome.clock} are those of {strong(best)}, {number}"
                f"{compared(best, outcome, measure, scale, 'fewer than with', 'more than with')}.")
    if best is outcome.base:
        return f"No method’s run took less time than that of {strong(best)}, {number} of {outcome.clock}."
    return (f"The shortest run is that of {strong(best)}, {number} of {outcome.clock}"
            f"{compared(best, outcome, measure, scale, 'less than that of', 'more than that of')}.")


def about_quality(outcome: Outcome) -> str:
    measure = outcome.quality
    if not measure:
        return ""
    rows, scale = outcome.having(measure), scale_for(measure, outcome.rows)
    word = "test accuracy" if measure == ACCURACY else "test loss"
    if len(rows) == 1:
        return f"It ended with a {word} of {amount(rows[0].measures[measure], scale)}."
    base = outcome.base
    compared_rows = [row for row in rows if row is not base and row.measures[measure].low is not None]
    if not base or measure not in base.measures or not compared_rows:
        order = max if measure in RISING else min
        best = order(rows, key=lambda row: row.measures[measure].mean)
        one = " (with one seed each, the uncertainty is unknown)" * all(row.measures[measure].n == 1 for row in rows)
        return (f"The last model of {strong(best)} has the {'highest' if measure in RISING else 'lowest'} {word}, "
                f"{amount(best.measures[measure], scale)}{one}.")
    apart = [row for row in compared_rows if row.measures[measure].is_significant]
    level = f"{escaped(base.label)} ({amount(base.measures[measure], scale)})"
    if not apart:
        return f"After the whole runs the 95 % intervals separate no method’s {word} from that of {level}."
    parts = []
    for is_higher, side in ((True, "higher"), (False, "lower")):
        if those := [row for row in apart if (row.measures[measure].difference > 0) == is_higher]:
            parts.append(f"{side} with {names(those, lambda row: difference_words(row.measures[measure], scale))}")
    return (f"After the whole runs the {word} is {' and '.join(parts)} than with {level}"
            + (f"; the 95 % intervals do not separate {names([row for row in compared_rows if row not in apart])} from "
               f"{escaped(base.label)}" if len(apart) < len(compared_rows) else "") + ".")


def over_points(outcome: Outcome) -> list[str]:
    """The sentence about several points: the range of the ratios to the method `outcome.against`."""
    found = []
    for measure, words in ((TIME_TO_TARGET, "Time to the target"), (outcome.cost, "Samples per second" if outcome.cost == SPEED else
                                                                    "Time of the run")):
        ratios = defaultdict(list)
        for row in outcome.having(measure) if measure else []:
            measured = row.measures[measure]
            if measured.difference is not None and measured.mean - measured.difference > 0 and not (measure == TIME_TO_TARGET and row.missed):
                ratios[row.method].append(measured.mean / (measured.mean - measured.difference))
        if ratios:
            own = [f"<b>{escaped(method)}</b> {range_text(values)}" for method, values in list(ratios.items())[:MOST_NAMED]]
            more = f", and {len(ratios) - MOST_NAMED} more methods below" if len(ratios) > MOST_NAMED else ""
            found.append(f"{words}, as a multiple of that of {escaped(outcome.against)} at the same point: {', '.join(own)}{more}.")
            break
    return found


def range_text(values: list[float]) -> str:
    least, most = typeset_number(min(values), 3), typeset_number(max(values), 3)
    return least if least == most else f"{least} to {most}"


def compared(row: Row, outcome: Outcome, measure: str, scale: Scale, less: str, more: str) -> str:
    """The clause about a difference, its interval and its significance."""
    measured, base = row.measures[measure], outcome.base
    if measured.difference is None or row is base:
        return ""
    other = measured.mean - measured.difference
    share = abs(measured.difference) / other if other > 0 else 0
    how_much = f"{typeset_number(100 * share, 2)} % {less if measured.difference < 0 else more}" if share else "the same as"
    text = f", {how_much} {escaped(measured.against or outcome.against)}"
    if measured.low is None or measured.is_exact:
        return text + (" (one seed: no interval)" if measured.pairs == 1 else "")
    if measured.is_significant:
        return f"{text} (difference {difference_words(measured, scale)})"
    return f"{text} (difference {difference_words(measured, scale)}, so that {measured.pairs} seeds do not tell the two apart)"


def difference_words(measured: Measured, scale: Scale) -> str:
    """The difference in words, such as "−25.4 s, 95 % interval −73.7 to +22.9"."""
    place = scale.place((measured.high - measured.low) / 2, measured.difference, measured.low, measured.high)
    mean, low, high = (typeset(place(scale.times * end, "+")) for end in (measured.difference, measured.low, measured.high))
    unit = {"%": " points"}.get(scale.unit, f" {scale.unit}".rstrip())
    return f"{mean}{unit}, 95 % interval {low} to {high}"


def amount(measured: Measured, scale: Scale) -> str:
    place = scale.place(measured.std, measured.mean)
    text = typeset(place(scale.times * measured.mean))
    if measured.n > 1 and measured.std > 0:
        text += f" {PLUS_MINUS} {typeset(place(scale.times * measured.std))}"
    return f"{text} {scale.unit}".rstrip()


def strong(row: Row) -> str:
    return f"<b>{escaped(row.label)}</b>"


def names(rows: list[Row], remark=lambda row: "") -> str:
    """The names of rows, "A, B (remark) and C": at most MOST_NAMED, then the number of the others."""
    shown = [escaped(row.label) + (f" ({text})" if (text := remark(row)) else "") for row in rows[:MOST_NAMED]]
    if len(rows) > MOST_NAMED:
        shown.append(f"{len(rows) - MOST_NAMED} more")
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def scale_for(measure: str, rows: list[Row]) -> Scale:
    column = column_of(measure)
    return scale_of(column, known_means(column, rows))


def column_of(measure: str) -> Column:
    return next(column for column in COLUMNS if column.measure == measure)


def half_of(measured: Measured) -> float:
    """Half the 95 % interval of the mean; 0 for a single seed."""
    return quantile(measured.n - 1) * measured.std / sqrt(measured.n) if measured.n > 1 else 0.0


def bars_table(outcome: Outcome, looks: dict[str, dict], swatches: dict[str, str]) -> str:
    """A table with a row of bars per method, as markup. Empty if there are too few or too many methods for bars.
    `looks`, `swatches`: by label."""
    measures = shown_measures(outcome)
    if outcome.points > 1 or not measures or not 1 < len(outcome.rows) <= MOST_BARS:
        return ""
    panels = [BarColumn(measure, outcome.rows) for measure in measures]
    heads = "".join(f'<th scope="col">{panel.heading(outcome.target)}</th>' for panel in panels)
    lines = []
    for row in outcome.rows:
        colour = page_look(looks[label]) if (label := label_of_row(row, looks)) else {"light": "#626a73", "dark": "#a0a7af"}
        style = f'--light:{colour["light"]};--dark:{colour["dark"]}'
        cells = "".join(panel.cell(row, style, outcome.target) for panel in panels)
        lines.append(f'<tr><th scope="row">{swatches.get(label, "") if label else ""}{escaped(row.label)}</th>{cells}</tr>')
    several = any(measured.n > 1 for row in outcome.rows for measured in row.measures.values())
    note = "Strokes: 95 % intervals of the means over the seeds (Student’s t). " * several
    ends = "".join(f'<td data-name="{panel.name(outcome.target)}">{panel.ends()}</td>' for panel in panels)
    return (table_markup("Bars of the outcome", "bars", f'<th scope="col">method</th>{heads}', "".join(lines),
                         f'<tfoot aria-hidden="true"><tr><th></th>{ends}</tr></tfoot>')
            + (f'<p class="note">{note}</p>' if note else ""))


def far_above(means: dict[str, float]) -> set[str]:
    """The labels of bars that would make the others invisible, because they are so long."""
    above_zero = sorted(mean for mean in means.values() if mean > 0)
    return {label for label, mean in means.items() if above_zero and mean > WIDE * above_zero[(len(above_zero) - 1) // 2]}


def are_alike(measure: str, rows: list[Row]) -> bool:
    means = [row.measures[measure].mean for row in rows if measure in row.measures]
    return not means or max(means) <= CLOSE * min(means)


def shown_measures(outcome: Outcome) -> list[str]:
    if not outcome.quality:
        return [measure for measure in (SPEED, STEP_TIME, DROP_RATE) if outcome.having(measure)
                and (measure != DROP_RATE or is_anything_dropped(outcome.rows))]
    reached = any(not row.missed for row in outcome.having(TIME_TO_TARGET))
    costs = [TIME_TO_TARGET if reached else outcome.cost, BYTES]
    return [outcome.quality, *(cost for cost in costs if cost and (cost == TIME_TO_TARGET or not are_alike(cost, outcome.rows)))]


class BarColumn:
    """A column of bars that begin at zero, or of points if zero means little."""

    def __init__(self, measure: str, rows: list[Row]):
        self.column = column_of(measure)
        self.rows = [row for row in rows if measure in row.measures and not (measure == TIME_TO_TARGET and row.missed)]
        self.scale = scale_for(measure, rows)
        self.has_points = measure in (ACCURACY, LOSS)
        means = {row.label: row.measures[measure].mean for row in self.rows}
        halves = {row.label: half_of(row.measures[measure]) for row in self.rows}
        self.beyond = (beyond_the_axis(means, measure in RISING, halves) if self.has_points and means else
                       far_above(means))
        inside = [label for label in means if label not in self.beyond]
        self.low = min((means[label] - halves[label] for label in inside), default=0) if self.has_points else 0
        self.high = max((means[label] + halves[label] for label in inside), default=1)
        if self.has_points and self.high == self.low:
            self.low, self.high = self.low - (abs(self.low) or 1) / 20, self.high + (abs(self.high) or 1) / 20

    def name(self, target: str) -> str:
        words = f"time to {target}" if self.column.measure == TIME_TO_TARGET and target else self.column.heading
        return escaped(words)

    def heading(self, target: str) -> str:
        return self.name(target) + (f" <small>{self.scale.unit}</small>" if self.scale.unit else "")

    def share(self, value: float) -> float:
        return 100 * min(max((value - self.low) / (self.high - self.low or 1), 0), 1)

    def ends(self) -> str:
        """The ends of the scale of a column of points, which does not begin at zero."""
        return (f'<div class="ends"><span>{self.scale.mean(self.low)}</span><span>{self.scale.mean(self.high)}</span></div>'
                if self.has_points else "")

    def cell(self, row: Row, style: str, target: str) -> str:
        unit = f" {self.scale.unit}" if self.scale.unit else ""
        begin = f'<td data-name="{self.name(target)}" style="{style}"><div class="value"><div class="track">'
        measured = row.measures.get(self.column.measure)
        if self.column.measure == TIME_TO_TARGET and row.missed:
            reached = measured.n if measured else 0
            return f'{begin}</div><span>not by {"all" if reached else "any"} seeds</span></div></td>'
        if measured is None:
            return f"{begin}</div><span>–</span></div></td>"
        text = f"{mean_and_std(measured, self.scale)[0]}{unit}"
        if row.label in self.beyond:
            side = "right" if measured.mean > self.high else "left"
            return f'{begin}<i class="beyond {side}"></i></div><span>{text}</span></div></td>'
        mean, half = self.share(measured.mean), half_of(measured)
        mark = f'<i class="dot" style="left:{mean:.2f}%"></i>' if self.has_points else f'<i class="fill" style="width:{mean:.2f}%"></i>'
        low, high = self.share(measured.mean - half), self.share(measured.mean + half)
        stroke = f'<i class="stroke" style="left:{low:.2f}%;width:{high - low:.2f}%"></i>' if half else ""
        return f"{begin}{mark}{stroke}</div><span>{text}</span></div></td>"
