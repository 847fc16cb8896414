"""What curves can stand against."""

from dataclasses import dataclass

import numpy as np
from matplotlib.ticker import MaxNLocator

from plots import page, style
from plots.methods import Method


@dataclass(frozen=True)
class Horizontal:
    column: str  # of metrics.csv
    label: str

    def scale(self, longest: float) -> tuple[float, str]:
        """By what to divide, and the axis's label, where it goes so far."""
        unit = {"time_s": style.time_unit, "communicated_bytes": style.byte_unit}.get(self.column)
        if unit is None:
            return 1, self.label
        size, name = unit(longest)
        return size, f"{self.label} ({name})"


HORIZONTALS = {"steps": Horizontal("step", "optimizer steps"), "samples": Horizontal("samples", "samples in the model"),
               "time": Horizontal("time_s", "time"), "bytes": Horizontal("communicated_bytes", "sent by all")}


def present(methods: list[Method], names: tuple[str, ...]) -> list[Horizontal]:
    """Those of the axes along which anything happens: a worker alone sends nothing."""
    return [HORIZONTALS[name] for name in names
            if any((run.metrics[HORIZONTALS[name].column] > 0).any() for method in methods for run in method.runs)
            or name == "steps"]


def at_target(method: Method, column: str) -> float | None:
    """Mean over seeds of a column of METRICS at the first evaluation that reached the target, as the table of results
    has it; None if a seed never did, for then no mean is known."""
    reached = [at_target_of(run, column) for run in method.runs]
    return None if None in reached else float(np.mean(reached))


def at_target_of(run, column: str) -> float | None:
    target = run.summary.get("time_to_target") or {}
    if column in target or target.get("step") is None:
        return target.get(column)
    there = run.metrics.loc[run.metrics["step"] == target["step"], column]
    return float(there.iloc[0]) if len(there) else None


def set_axis(panel, longest: float, label: str) -> None:
    """From 0 on."""
    panel.set_xlim(0, 1.02 * longest or 1)
    panel.xaxis.set_major_formatter(style.SHORT)
    panel.xaxis.set_major_locator(MaxNLocator(page.current.ticks - 1))
    panel.set_xlabel(label)
