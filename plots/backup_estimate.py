"""The best number of backups: as estimated by Chen et al. 2016 (Figure 6), and as measured.

The estimated time to the target is the number of steps to the target, interpolated between the measured N, times the
mean arrival of the N-th gradient. The data are the rows of two experiments in results/paper. Usage: python -m
plots.backup_estimate results/paper, which writes paper-backup-optimum/estimate.png there.
"""

import csv
import math
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from plots import style
from plots.numbers import mean_and_half
from plots.sheet import Place, Sheet, save

STEPS, OPTIMUM = "paper-backup-steps", "paper-backup-optimum"
STEPS_BACKUPS = 2  # number of backups in each run of STEPS, so that N gradients need N + 2 workers
EXPERIMENT = Path(__file__).resolve().parents[1] / "experiments" / "paper" / "backup_optimum.toml"
MEASURED, ESTIMATED = "measured", "estimated as in the paper"
LOOKS = {MEASURED: {"color": "#0072B2", "linestyle": "solid", "marker": "o"},
         ESTIMATED: {"color": "#D55E00", "linestyle": style.DASHES[1], "marker": "s"}}


def mean_arrival(k: int, workers: int, minimum: float, shape: float) -> float:
    """The mean arrival time of the k-th of `workers` gradients whose times follow a power law, by Gamma functions."""
    later = workers - k
    return minimum * math.exp(math.lgamma(workers + 1) - math.lgamma(workers + 1 - 1 / shape) +
                              math.lgamma(later + 1 - 1 / shape) - math.lgamma(later + 1))


def estimated_times(steps: dict[str, dict[int, float]], plan: dict) -> dict[int, list[float]]:
    """The estimated seconds to the target, a list over the seeds for each number b of backups. Only for b whose N, the
    number of workers minus b, is within the range of the measured N. `steps`: by seed, then by N."""
    workers, delay, = plan["cluster"]["workers"], plan["delays"][0]
    times = {}
    for b in plan["sweep"]["methods.backup workers.backups"]:
        n = workers - b
        step_s = mean_arrival(n, workers, delay["minimum"], delay["shape"]) + plan["cluster"]["micro_batch_s"]
        if all(min(of_seed) <= n <= max(of_seed) for of_seed in steps.values()):
            times[b] = [step_s * float(np.interp(n, sorted(of_seed), [of_seed[at] for at in sorted(of_seed)]))
                        for of_seed in steps.values()]
    return times


def measured_times(rows: list[dict[str, str]]) -> dict[int, list[float]]:
    """Measured seconds to the target, a list over seeds for each b. Leaves out b with a seed that missed the target."""
    times = defaultdict(list)
    for row in rows:
        times[int(row["method.backups"])].append(float(row["time_to_target_s"] or "nan"))
    return {b: of_seeds for b, of_seeds in sorted(times.items()) if np.isfinite(of_seeds).all()}


def steps_by_gradients(rows: list[dict[str, str]]) -> dict[str, dict[int, float]]:
    """The number of steps to the target, by seed, then by the number N of gradients per step."""
    steps = defaultdict(dict)
    for row in rows:
        if row["steps_to_target"]:
            steps[row["seed"]][int(row["cluster.workers"]) - STEPS_BACKUPS] = float(row["steps_to_target"])
    return steps


def estimate_figure(measured: dict[int, list[float]], estimated: dict[int, list[float]], plan: dict):
    workers, seeds = plan["cluster"]["workers"], len(next(iter(measured.values())))
    sheet = Sheet([[Place(list(LOOKS), width=6.4, height=3.7)]], plan["description"],
                  f"{OPTIMUM}  ·  {workers} workers  ·  {plan['training']['model']} on {plan['training']['dataset']}  ·  "
                  f"mean of {seeds} seeds, with its 95 % interval (for the estimate a band)", entitled=False)
    panel, ends = sheet.panels[0], {}
    for name, times in ((ESTIMATED, estimated), (MEASURED, measured)):
        look, bs = LOOKS[name], np.array(list(times))
        means, halves = np.array([mean_and_half(of_seeds) for of_seeds in times.values()], dtype=float).T
        if name == MEASURED:
            panel.errorbar(bs, means, yerr=halves, color=look["color"], linestyle="none", capsize=3,
                           linewidth=0.8 * style.page.line)
        else:
            panel.fill_between(bs, means - halves, means + halves, color=look["color"], alpha=0.12, linewidth=0)
        panel.plot(bs, means, **look, gid=name)
        best = int(np.argmin(means))
        panel.plot(bs[best], means[best], "o", color="none", markersize=2.4 * style.page.marker, markeredgewidth=1.5,
                   markeredgecolor=look["color"], gid="best", zorder=5)
        above = name == MEASURED
        panel.annotate(f"b = {bs[best]}", (bs[best], means[best] + above * halves[best]),
                       xytext=(0, 4 if above else -14), textcoords="offset points", ha="center", va="bottom" if above else "top",
                       color=look["color"], fontsize="small", fontweight="bold")
        ends[name] = (bs[-1], means[-1])
    panel.set_xlabel(f"backups b of {workers} workers: each step takes the first {workers} - b gradients")
    panel.set_ylabel("time to the target (s)")
    sheet.name_lines(panel, ends, LOOKS)
    sheet.entries = [plt.Line2D([], [], linestyle="none", marker="o", color="none", markeredgecolor=style.INK,
                                markeredgewidth=1.2, markersize=1.6 * style.page.marker, label="the best b"),
                     plt.Line2D([], [], **LOOKS[ESTIMATED], label="estimated: steps to the target with N gradients "
                                f"({STEPS}), interpolated, times the mean arrival of the N-th")]
    return sheet.finish()


def rows_of(kept: Path, experiment: str) -> list[dict[str, str]]:
    with open(kept / experiment / "runs.csv", newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def kept_times(kept: Path) -> tuple[dict, dict, dict]:
    """Measured and estimated times, and the contents of the experiment file."""
    plan = tomllib.loads(EXPERIMENT.read_text(encoding="utf-8"))
    return measured_times(rows_of(kept, OPTIMUM)), estimated_times(steps_by_gradients(rows_of(kept, STEPS)), plan), plan


def main(kept: Path) -> list[Path]:
    return save(estimate_figure(*kept_times(kept)), kept / OPTIMUM, "estimate", ("png",))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
