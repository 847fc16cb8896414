"""What a finished run comes to, as figures show it: from its summary, and by its method's formulas."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite, nan

from plots.runs import Run


@dataclass(frozen=True)
class Quantity:
    """nan or None: the run, or the formula, does not say."""

    title: str
    measure: str  # as `syncopate table --measure` and claims name it
    value: Callable[[Run], float]
    formula: Callable[[Run, dict], float | None] = lambda run, by_formula: None
    linear: Callable[[float, float], float] | None = None  # from N and one worker's share: linear scaling's value
    best: Callable | None = None  # max or min
    times: float = 1.0  # the measure's own unit, to get what is shown
    against_baseline: bool = False  # divided by synchronous SGD's, seed by seed


def predicted_samples_per_s(run: Run, by_formula: dict) -> float | None:
    summary, cluster = run.summary, run.config["cluster"]
    if not summary["kept_micro_batches"]:
        return None
    samples = summary["samples"] / summary["kept_micro_batches"]  # of a micro-batch
    planned = cluster["workers"] * cluster.get("micro_batches", 1) * samples
    return by_formula["kept"] * planned / by_formula["step_time_s"]


def per_worker(value: Callable[..., float | None]) -> Callable[..., float | None]:
    def divided(run: Run, *arguments) -> float | None:
        whole = value(run, *arguments)
        return None if whole is None else whole / run.config["cluster"]["workers"]
    return divided


def percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def number(value) -> float:
    """nan for what is not there."""
    return float(value) if value is not None and isfinite(value) else nan


def samples_per_s(run: Run) -> float:
    return run.summary["samples_per_virtual_s"]


SPEED = Quantity("Samples per second", "samples_per_s", samples_per_s, predicted_samples_per_s,
                 lambda workers, one: workers * one, best=max)
SPEED_OF_ONE = Quantity("Samples per second and worker", "", per_worker(samples_per_s),
                        per_worker(predicted_samples_per_s), lambda workers, one: one)
SPEED_UP = Quantity("S_eff: samples per second, against synchronous SGD", "micro_batches_per_s", samples_per_s,
                    lambda run, by_formula: by_formula.get("effective_speedup"), best=max, against_baseline=True)
STEP_TIME = Quantity("Time per optimizer step (s)", "step_time_s",
                     lambda run: run.summary["end_time_s"] / max(run.summary["steps"], 1),
                     lambda run, by_formula: by_formula["step_time_s"])
DROPPED = Quantity("Dropped micro-batches (%)", "drop_rate", lambda run: 100 * run.summary["drop_rate"],
                   lambda run, by_formula: percent(by_formula.get("drop_rate")), times=100)
ACCURACY = Quantity("Final test accuracy (%)", "final_test_accuracy",
                    lambda run: 100 * number(run.summary.get("final_test_accuracy")), best=max, times=100)
LOSS = Quantity("Final test loss", "final_test_loss", lambda run: number(run.summary.get("final_test_loss")), best=min)
TIME_TO_TARGET = Quantity("Time to target (s)", "time_to_target_s",
                          lambda run: number((run.summary.get("time_to_target") or {}).get("time_s")), best=min)
BYTES = Quantity("Sent by all (bytes)", "communicated_bytes", lambda run: number(run.summary.get("communicated_bytes")))
END_TIME = Quantity("Time of the run (s)", "end_time_s", lambda run: number(run.summary.get("end_time_s")), best=min)


def claimed_quantity(claim: dict) -> Quantity:
    """What a claim is about, as far as summaries hold it."""
    measure, times = claim["measure"], float((claim.get("shown") or {}).get("times", 1))
    of_target = {"steps_to_target": "step", "samples_to_target": "samples"}.get(measure)

    def value(run: Run) -> float:
        return times * number((run.summary.get("time_to_target") or {}).get(of_target) if of_target else run.summary.get(measure))

    title = measure.removesuffix("_s").replace("_", " ").capitalize()
    return Quantity(title + (" (%)" if times == 100 else ""), measure, value, times=times)


def best_of(points: dict[float, float], quantity: Quantity) -> float | None:
    """Where the quantity is best; None where it has no best, fewer than two points, or the same value everywhere."""
    there = {x: y for x, y in points.items() if isfinite(y)}
    if quantity.best is None or len(there) < 2 or max(there.values()) == min(there.values()):
        return None
    return quantity.best(there, key=lambda x: (there[x], -x if quantity.best is max else x) if isfinite(x) else inf)
