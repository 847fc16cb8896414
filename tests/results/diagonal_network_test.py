"""Kept results of a diagonal linear network with label noise agree with an independent simulation in NumPy.

The simulation follows the description in workers/models/formulas.hpp and experiments/paper/qsr_label_noise.toml: eight
workers of one sample, four methods, and its rates. It has other random numbers and other inputs than the kept runs, so
means over seeds are compared: of the excess risk, and of the trace of the Hessian.
"""

import csv
import math
import tomllib
import unittest
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 100
LABEL_NOISE, START, ACTIVE = 0.5, 0.6, 2  # defaults of the model "diagonal-linear"


def simulated(rate, period, steps, workers, dimension, inputs, random):
    """Returns the excess risk and the trace of the Hessian of each seed's last model."""
    x = random.standard_normal((SEEDS, inputs, dimension)).astype(np.float32)
    truth = np.zeros(dimension, np.float32)
    truth[:ACTIVE] = [(-1) ** i for i in range(ACTIVE)]
    u = np.full((SEEDS, workers, dimension), START, np.float32)
    v = u.copy()
    every_seed = np.arange(SEEDS)[:, None]
    for step in range(steps):
        drawn = x[every_seed, random.integers(inputs, size=(SEEDS, workers))]
        noise = LABEL_NOISE * random.choice(np.array([-1, 1], np.float32), size=(SEEDS, workers))
        error = np.einsum("swd,swd->sw", drawn, u * u - v * v - truth) + noise
        slope = 2 * rate * error[:, :, None] * drawn
        u, v = u - slope * u, v + slope * v
        if (step + 1) % period == 0 or step + 1 == steps:
            u[:] = u.mean(axis=1, keepdims=True)
            v[:] = v.mean(axis=1, keepdims=True)
    u, v = u[:, 0].astype(float), v[:, 0].astype(float)
    # The second derivatives that contain the error have opposite signs in u and v, so the trace does not contain it.
    trace = 4 * np.einsum("snd,sd->s", x.astype(float) ** 2, u * u + v * v) / inputs
    return ((u * u - v * v - truth) ** 2).sum(axis=1), trace


class DiagonalNetwork(unittest.TestCase):
    def test_kept_means_are_those_of_the_simulation(self):
        with open(ROOT / "experiments/paper/qsr_label_noise.toml", "rb") as file:
            experiment = tomllib.load(file)
        model, workers = experiment["models"]["diagonal-linear"], experiment["cluster"]["workers"]
        sweep = experiment["sweep"]
        with open(ROOT / "results/paper/paper-qsr-label-noise/runs.csv", newline="") as lines:
            rows = list(csv.DictReader(lines))
        random = np.random.default_rng(1)
        for rate, steps in zip(sweep["training.learning_rate.peak"], sweep["budget.steps"], strict=True):
            for method in experiment["methods"]:
                rule = method.get("period", {"rule": "constant", "steps": 1})
                period = rule.get("steps") or int((rule["coefficient"] / rate) ** rule["power"] + 1e-9)
                measures = simulated(rate, period, steps, workers, model["dimension"], model["inputs"], random)
                for name, values in zip(("final_test_loss", "final_hessian_trace"), measures):
                    kept = np.array([float(row[name]) for row in rows if row["method"] == method["label"] and
                                     float(row["training.learning_rate.peak"]) == rate])
                    self.assertGreater(len(kept), 5)
                    deviation = math.hypot(kept.std(ddof=1) / math.sqrt(len(kept)),
                                           values.std(ddof=1) / math.sqrt(SEEDS))
                    print(f"{rate:5} {method['label']:13} H = {period:3} {name:19} kept {kept.mean():.3f}, simulated "
                          f"{values.mean():.3f}, standard error of the difference {deviation:.3f}")
                    self.assertLess(abs(kept.mean() - values.mean()), 3 * deviation)


if __name__ == "__main__":
    unittest.main()
