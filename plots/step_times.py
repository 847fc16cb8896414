"""How long optimizer steps take, from steps.csv: a round of several steps counts as often as it has steps."""

import numpy as np

from plots.methods import Method
from plots.runs import Run


def step_times_of(run: Run) -> np.ndarray:
    """In seconds, one for each step: those of a round share its duration alike, so that the mean is the run's time per step,
    as tables have it. A row that counts no step stands for one."""
    steps = run.steps["period_steps"].to_numpy(int).clip(min=1)
    return np.repeat(run.steps["duration_s"].to_numpy(float) / steps, steps)


def step_times(method: Method) -> np.ndarray:
    """Those of all seeds."""
    return np.concatenate([step_times_of(run) for run in method.runs])
