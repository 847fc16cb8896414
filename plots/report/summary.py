"""What came out, before all other numbers: sentences, and bars with intervals."""

from collections import defaultdict
from dataclasses import dataclass
from math import sqrt

from plots.intervals import quantile
from plots.numbers import typeset, typeset_number
from plots.pareto_figure import beyond_the_axis
from plots.report.looks import page_look
from plots.report.markup import escaped
from plots.report.measures import Measured, Row
from plots.report.results import (COLUMNS, PLUS_MINUS, TIME_OF_RUN, TIME_TO_TARGET, Column, Scale, is_anything_dropped, known_means,
                                  label_of_row, mean_and_std, scale_of)

ACCURACY, LOSS, SPEED, BYTES = "final_test_accuracy", "final_test_loss", "samples_per_s", "communicated_bytes"
RISING = {ACCURACY, SPEED}  # more is better
MOST_NAMED, MOST_BARS = 4, 40
CLOSE = 1.001  # times one another: such bars show nothing
WIDE = 1e3  # times the usual: such bars would leave nothing of the others


@dataclass
class Outcome:
    """What the sentences are about."""

    rows: list[Row]
    against: str
    target: str = ""  # "88 % test accuracy"; empty: there is none
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
        """By what the last models are compared."""
        return next((measure for measure in (ACCURACY, LOSS) if self.having(measure)), None)

    @property
    def cost(self) -> str | None:
        if not self.quality:
            return SPEED if self.having(SPEED) else None
        return None if self.ends_by_time or not self.having(TIME_OF_RUN) else TIME_OF_RUN


def target_text(evaluation: dict) -> str:
    """Of a configuration's [evaluation]."""
    of = evaluation.get("target_of", "test")
    parts = []
    if (accuracy := evaluation.get("target_accuracy")) is not None:
        parts.append(f"{typeset_number(100 * accuracy)} % {of} accuracy")
    if (loss := evaluation.get("target_loss")) is not None:
        parts.append(f"a {of} loss of {typeset_number(loss)}")
    return " and ".join(parts)


def sentences(outcome: Outcome) -> list[str]:
    """As markup."""
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
        one = " (one seed each: nothing says how certain that is)" * all(row.measures[measure].n == 1 for row in rows)
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
    """Of several points of what varies: how far the ratios to the method compared with go."""
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
    """By how much, with its interval, and whether that is told apart from nothing."""
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
    """−25.4 s, 95 % interval −73.7 to +22.9."""
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
    """A, B (remark) and C; of many how many more."""
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
    """Of the 95 % interval of the mean; 0 where there is none."""
    return quantile(measured.n - 1) * measured.std / sqrt(measured.n) if measured.n > 1 else 0.0


def bars_table(outcome: Outcome, looks: dict[str, dict], swatches: dict[str, str]) -> str:
    """Empty where there is nothing to compare, or too much."""
    measures = shown_measures(outcome)
    if outcome.points > 1 or not measures or not 1 < len(outcome.rows) <= MOST_BARS:
        return ""
    panels = [Panel(measure, outcome.rows) for measure in measures]
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
    return ('<div class="scroll" tabindex="0" role="region" aria-label="Bars of the outcome"><table class="bars"><thead><tr>'
            f'<th scope="col">method</th>{heads}</tr></thead><tbody>{"".join(lines)}</tbody>'
            f'<tfoot aria-hidden="true"><tr><th></th>{ends}</tr></tfoot></table></div>'
            + (f'<p class="note">{note}</p>' if note else ""))


def far_above(means: dict[str, float]) -> set[str]:
    """Labels of what would leave nothing of the other bars."""
    above_zero = sorted(mean for mean in means.values() if mean > 0)
    return {label for label, mean in means.items() if above_zero and mean > WIDE * above_zero[(len(above_zero) - 1) // 2]}


def are_alike(measure: str, rows: list[Row]) -> bool:
    means = [row.measures[measure].mean for row in rows if measure in row.measures]
    return not means or max(means) <= CLOSE * min(means)


def shown_measures(outcome: Outcome) -> list[str]:
    if not outcome.quality:
        return [measure for measure in (SPEED, "step_time_s", "drop_rate") if outcome.having(measure)
                and (measure != "drop_rate" or is_anything_dropped(outcome.rows))]
    reached = any(not row.missed for row in outcome.having(TIME_TO_TARGET))
    costs = [TIME_TO_TARGET if reached else outcome.cost, BYTES]
    return [outcome.quality, *(cost for cost in costs if cost and (cost == TIME_TO_TARGET or not are_alike(cost, outcome.rows)))]


class Panel:
    """A column of bars from zero, or of points where zero means little."""

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
        """Of points' scale, which does not begin at zero."""
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
