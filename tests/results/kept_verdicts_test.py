"""Kept verdicts in results/paper follow from the runs that are kept beside them.

This independent implementation judges each claim from runs.csv: the seeds' effects, their mean and interval (Student's
t, by a table of quantiles), the sign-flip test by enumeration of all choices of signs, and the verdict. Claims that
runs.csv cannot decide are named and counted (times to an equal loss, which need evaluations).
"""

import csv
import json
import math
import os
import unittest
from collections import defaultdict
from pathlib import Path

KEPT = Path(os.environ.get("SYNCOPATE_KEPT", Path(__file__).resolve().parents[2] / "results/paper"))
# Quantiles of Student's t for 95 % and 90 % intervals, by degrees of freedom.
QUANTILES = {1: (12.7062, 6.31375), 2: (4.30265, 2.91999), 3: (3.18245, 2.35336), 4: (2.77645, 2.13185),
             5: (2.57058, 2.01505), 6: (2.44691, 1.94318), 7: (2.36462, 1.89458), 9: (2.26216, 1.83311),
             11: (2.20099, 1.79588), 19: (2.09302, 1.72913), 23: (2.06866, 1.71387),
             39: (2.02269, 1.68488)}
COLUMNS_OF_ALL = {"experiment", "method", "seed", "clock", "hash"}


def number(text):
    try:
        return float(text)
    except ValueError:
        return None


def is_same(a, b):
    x, y = number(a), number(b)
    return a == b or (x is not None and x == y) or f'"{a}"' == b


class Runs:
    def __init__(self, file):
        with open(file, newline="") as lines:
            rows = list(csv.DictReader(lines))
        columns = list(rows[0])
        self.keys = [key for key in columns[:columns.index("status")] if key not in COLUMNS_OF_ALL]
        self.measures = set(columns[columns.index("status") + 1:])
        self.rows = [row for row in rows if row["status"] == "finished" and row["clock"] == "virtual"]

    def column(self, key):
        """The column of a swept key; a method's own keys have columns of their own."""
        parts = key.split(".")
        own = "method." + ".".join(parts[2:])
        return key if key in self.keys else own if parts[0] == "methods" and own in self.keys else None

    def is_at(self, row, where):
        columns = {self.column(key): value for key, value in where.items()}
        return all(not column or row[column] == "" or is_same(row[column], value) for column, value in columns.items())

    def named(self, name, where=None):
        """The rows of a method, or of a row of the table, such as "DropCompute, threshold_s = 0.07"."""
        rows = [row for row in self.rows if row["method"] == name]
        if not rows:
            name, *values = name.split(", ")
            pairs = [value.split(" = ") if " = " in value else (None, value) for value in values]
            rows = [row for row in self.rows if row["method"] == name and
                    all(any(is_same(row[column], value) and (not key or column.split(".")[-1] == key)
                            for column in self.keys) for key, value in pairs)]
        return [row for row in rows if self.is_at(row, where or {})]

    def beside(self, row, name):
        """The run of another method with the same seed, at the same point."""
        others = [other for other in self.named(name) if other["seed"] == row["seed"]]
        varying = [key for key in self.keys
                   if not key.startswith("method.") and len({other[key] for other in others}) > 1]
        others = [other for other in others if all(other[key] == row[key] for key in varying)]
        assert len(others) == 1, (name, row["method"], row["seed"], len(others))
        return others[0]


def compared(own, other, claim):
    return own - other if claim["as"] == "difference" else own / other


def effect(runs, row, claim, against):
    own = number(row[claim["measure"]])
    return own if not against else compared(own, number(runs.beside(row, against)[claim["measure"]]), claim)


def is_direction(claim):
    none = 1 if claim["as"] == "ratio" else 0
    return "over" not in claim and none in (criterion_of(claim).get("above"), criterion_of(claim).get("below"))


def effects_of(runs, rows, claim, against):
    """Returns effects by seed. If a run missed the target, claims of a direction use restricted times: none is later
    than the first end of a run that missed it."""
    pairs = [(row, runs.beside(row, against)) for row in rows] if against else []
    missed = [number(row["end_time_s"]) for pair in pairs for row in pair if row[claim["measure"]] == ""]
    if claim["measure"] != "time_to_target_s" or not missed or not is_direction(claim):
        return [effect(runs, row, claim, against) for row in rows]
    horizon = min(missed)
    return [compared(*(min(number(row["time_to_target_s"]) or horizon, horizon) for row in pair), claim) for pair in pairs]


def by_point(runs, rows):
    points = defaultdict(list)
    for row in rows:
        points[tuple(row[key] for key in runs.keys)].append(row)
    return points.values()


def best_values(runs, claim):
    column = runs.column(claim["over"])
    less = not any(claim["measure"].endswith(end) for end in ("accuracy", "per_s"))
    worst = math.inf if less else -math.inf
    of_seeds = defaultdict(dict)
    for row in runs.named(claim["method"], claim.get("where")):
        value = number(row[claim["measure"]])
        of_seeds[row["seed"]][number(row[column])] = worst if value is None else value
    best = min if less else max
    return [best(sorted(values), key=values.get) for values in of_seeds.values()]


def slopes(runs, claim):
    column = runs.column(claim["over"])
    of_seeds = defaultdict(list)
    for row in runs.named(claim["method"], claim.get("where")):
        at = number(row[column])
        if claim["per_doubling"]:
            at = math.log2(at)
        elif claim.get("over_sqrt_log"):
            at = math.sqrt(2 * math.log(at))
        of_seeds[row["seed"]].append((at, effect(runs, row, claim, claim.get("against"))))
    found = []
    for points in of_seeds.values():
        x, y = (sum(values) / len(points) for values in zip(*points))
        found.append(sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points))
    return found


def effects(runs, claim):
    """The numbers of all seeds for each point."""
    if "order" in claim:
        difference = dict(claim, **{"as": "difference"})
        return [effects_of(runs, rows, difference, lower)
                for lower, upper in zip(claim["order"], claim["order"][1:])
                for rows in by_point(runs, runs.named(upper, claim.get("where")))]
    if claim["as"] == "best":
        return [best_values(runs, claim)]
    if "over" in claim:
        return [slopes(runs, claim)]
    return [effects_of(runs, rows, claim, claim.get("against"))
            for rows in by_point(runs, runs.named(claim["method"], claim.get("where")))]


def scales(effect_of):
    """Returns the functions to the scale of averages and back. Ratios are averaged as logarithms."""
    return (math.log, math.exp) if effect_of == "ratio" else (float, float)


def mean_and_interval(values, criterion, effect_of):
    """The mean over seeds and its interval, on the scale on which they are computed."""
    there, _ = scales(effect_of)
    numbers = [there(value) for value in values]
    mean = sum(numbers) / len(numbers)
    deviation = math.sqrt(sum((number - mean) ** 2 for number in numbers) / (len(numbers) - 1))
    half = QUANTILES[len(numbers) - 1]["margin" in criterion] * deviation / math.sqrt(len(numbers))
    return mean, mean - half, mean + half


def sign_flip_p(numbers, bound):
    differences = [number - bound for number in numbers]
    observed, rounding = abs(sum(differences)), 1e-12 * sum(map(abs, differences))
    signed = [0.0]
    for difference in differences:
        signed = [number + sign * difference for number in signed for sign in (1, -1)]
    return sum(abs(number) >= observed - rounding for number in signed) / 2 ** len(numbers)


def verdict(values, criterion, effect_of):
    """The verdict, and p of the sign-flip test if it applies."""
    there, back = scales(effect_of)
    none = 1 if effect_of == "ratio" else 0
    mean, low, high = (back(number) for number in mean_and_interval(values, criterion, effect_of))
    if "above" in criterion:
        bounds = [criterion["above"]]
        by_t = "reproduced" if low > bounds[0] else "not reproduced" if high <= bounds[0] else "inconclusive"
    elif "below" in criterion:
        bounds = [criterion["below"]]
        by_t = "reproduced" if high < bounds[0] else "not reproduced" if low >= bounds[0] else "inconclusive"
    else:
        margin = criterion.get("margin")
        first, last = criterion["within"] if margin is None else (none - margin, none + margin)
        by_t = ("reproduced" if first <= low and high <= last
                else "not reproduced" if high < first or last < low else "inconclusive")
        bounds = [first, last] if by_t == "reproduced" else [first] if high < first else [last]
    if by_t == "inconclusive" or "margin" in criterion or not 6 <= len(values) <= 20 or high - low <= 1e-12 * abs(mean):
        return by_t, None
    tested = [bound for bound in bounds if effect_of != "ratio" or bound > 0]
    if not tested:
        return by_t, None
    p = max(sign_flip_p([there(value) for value in values], there(bound)) for bound in tested)
    return (by_t if p <= 0.05 else "inconclusive"), p


def losses_of(file, claim):
    """By method and seed: step or time, and the logarithm of the training loss smoothed over five evaluations."""
    column = "time_s" if claim["measure"] == "time_to_equal_loss_s" else "step"
    curves = defaultdict(list)
    with open(file.with_name("evaluations.csv"), newline="") as lines:
        for row in csv.DictReader(lines):
            curves[row["method"], row["seed"]].append((float(row[column]), math.log(float(row["train_loss"]))))
    return {run: [(curve[i + 2][0], sum(loss for _, loss in curve[i:i + 5]) / 5) for i in range(len(curve) - 4)]
            for run, curve in curves.items()}


def passage(curve, level):
    """Where the curve is first at or below the level, by a line between two evaluations."""
    later = next(i for i, (_, loss) in enumerate(curve) if loss <= level)
    (x, above), (y, below) = curve[later - 1], curve[later]
    return x + (y - x) * (above - level) / (above - below)


def equal_losses(file, claim):
    """The ratio of each seed: two methods' first passages through the same ten levels of the loss."""
    curves = losses_of(file, claim)
    ratios = []
    for seed in sorted({seed for _, seed in curves}, key=int):
        own, other = curves[claim["method"], seed], curves[claim["against"], seed]
        high = min(own[0][1], other[0][1])
        low = max(min(loss for _, loss in own), min(loss for _, loss in other))
        levels = [high - (high - low) * (i + 0.5) / 10 for i in range(10)]
        ratios.append(math.exp(sum(math.log(passage(own, level) / passage(other, level)) for level in levels) / 10))
    return [ratios]


def judged_anew(file):
    """Yields each claim with the values of its points, or None if runs.csv lacks them or the claim has no points."""
    runs = Runs(file.with_name("runs.csv"))
    for claim in json.loads(file.read_text())["claims"]:
        is_equal_loss = claim["measure"].endswith(("_to_equal_loss_s", "_to_equal_loss"))
        if not claim["points"] or claim["measure"] not in runs.measures and not is_equal_loss:
            yield claim, None
            continue
        series = equal_losses(file, claim) if is_equal_loss else effects(runs, claim)
        assert len(series) == len(claim["points"]), claim["sentence"]
        # The file's rows are in another order, so a point's values are found by their mean. Of points with equal means
        # the one with the nearest lower bound is taken.
        _, back = scales(effect_of(claim))
        found = [[back(number) for number in mean_and_interval(values, criterion_of(claim), effect_of(claim))[:2]]
                 for values in series]
        yield claim, [series[min(range(len(series)), key=lambda i, mean=point["mean"], low=point["interval"][0]: (
            round(abs(found[i][0] - mean), 12), abs(found[i][1] - low)))] for point in claim["points"]]


def criterion_of(claim):
    return {"above": 0} if "order" in claim else claim["criterion"]


def effect_of(claim):
    return "difference" if "over" in claim else claim.get("as")


def whole(verdicts):
    return ("not reproduced" if "not reproduced" in verdicts else
            "reproduced" if set(verdicts) == {"reproduced"} else "inconclusive")


class KeptVerdicts(unittest.TestCase):
    def test_verdicts_follow_from_the_runs(self):
        points, untold = 0, []
        for file in sorted(KEPT.glob("*/claims.json")):
            for claim, series in judged_anew(file):
                if not series:
                    untold.append(claim["sentence"])
                    continue
                for point, values in zip(claim["points"], series):
                    points += 1
                    with self.subTest(experiment=file.parent.name, claim=claim["sentence"], point=point["label"]):
                        self.check(claim, point, values)
        self.assertGreater(points, 200)
        # No run with 0.06 s reached the target, so this claim has no points.
        self.assertEqual(untold, ["Sums divided by the number computed: 0.14 s takes 0.832 of the time that 0.06 s "
                                  "takes, within 8 points"])

    def check(self, claim, point, values):
        criterion = criterion_of(claim)
        _, back = scales(effect_of(claim))
        mean, low, high = (back(number) for number in mean_and_interval(values, criterion, effect_of(claim)))
        self.assertEqual(len(values), point["n"])
        self.assertAlmostEqual(mean, point["mean"], delta=1e-9 * max(1, abs(mean)))
        for bound, kept in zip((low, high), point["interval"]):
            self.assertAlmostEqual(bound, kept, delta=1e-5 * (high - low) + 1e-9 * max(1, abs(mean)))
        self.assertEqual((point["verdict"], point.get("sign_flip_p")), verdict(values, criterion, effect_of(claim)))

    def test_a_claim_is_what_its_points_are(self):
        for file in sorted(KEPT.glob("*/claims.json")):
            for claim in json.loads(file.read_text())["claims"]:
                expected = whole([point["verdict"] for point in claim["points"]])
                with self.subTest(experiment=file.parent.name, claim=claim["sentence"]):
                    self.assertEqual(claim["verdict"], expected)
                    self.assertEqual(claim["reason"] == "", expected != "inconclusive")


if __name__ == "__main__":
    unittest.main(verbosity=2)
