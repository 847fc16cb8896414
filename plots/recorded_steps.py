"""Plots step times of a recorded run and of its simulations. Usage: recorded_steps.py DIRECTORY LOG NOISE PICTURE

DIRECTORY contains the runs of experiments/examples/reference_run.toml; LOG (iteration, step_time_s) and NOISE (worker, step,
micro_batch, duration_s) are the files beside this experiment file. Exit status: as for plot.py.
"""

import sys
from pathlib import Path

import numpy as np

from plots.comparison import Method, group_methods
from plots.runs import ResultsFault, Run, read_table, read_tables, runs_below
from plots.sheet import write_png

TWO_CLOCKS = "two clocks"  # label of the method that simulates the recorded run
SHOWN_S = 6, 12  # seconds that are shown; longer steps, such as a first step that compiles, are cut off


def own_sleeps(noise: Path, run: Run) -> np.ndarray:
    """[step]: for how many seconds worker 0 sleeps after its last micro-batch."""
    sleeping, = [delay for delay in run.config["delays"] if delay.get("sleep")]
    rows = read_table(noise, ["worker", "step", "micro_batch", "duration_s"])
    last = rows[(rows["worker"] == 0) & (rows["micro_batch"] == rows["micro_batch"].max())]
    return sleeping["scale"] * last.sort_values("step")["duration_s"].to_numpy()


def as_logged(run: Run, sleeps: np.ndarray, threshold_from: int) -> np.ndarray:
    """Step times as worker 0 logs them, after its sleep. A threshold cuts that sleep from step `threshold_from` on."""
    shift = np.where(np.arange(len(sleeps)) < threshold_from, sleeps, 0.0)
    return run.steps["duration_s"].to_numpy() + np.diff(shift[:len(run.steps)], prepend=0.0)


def threshold_from(run: Run) -> int:
    """The first step that has a threshold."""
    rule = run.config["methods"][0]["threshold"]
    return rule["warmup_steps"] + rule["calibration_steps"]


def step_figure(methods: list[Method], log, noise: Path):
    """Draws the whole run in the upper panel, and the steps without a threshold, where all methods are equal, in the
    lower one."""
    import matplotlib.pyplot as plt

    from plots import style

    begin = min(threshold_from(method.runs[0]) for method in methods)
    names, looks = look_of(methods)
    width = 9.2 + style.label_inches(names.values())
    figure, (whole, zoom) = plt.subplots(2, 1, figsize=(width, 7.2))
    figure.subplots_adjust(left=0.65 / width, right=8.6 / width, top=0.855, bottom=0.075, hspace=0.33)
    ends, zoom_ends = {}, {}
    for method in methods:
        sleeps = own_sleeps(noise, method.runs[0])
        times = np.stack([as_logged(run, sleeps, begin) for run in method.runs])
        is_recorded = method.label == TWO_CLOCKS
        draw_times(whole, times, slice(1 if is_recorded else begin - 1, None), looks[names[method.name]])
        ends[names[method.name]] = (times.shape[1], times.mean(0)[-20:].mean())
        if is_recorded:
            draw_times(zoom, times, slice(1, begin), looks[names[method.name]])
            zoom_ends["simulated"] = (begin, times.mean(0)[begin - 1])
            looks["simulated"] = looks[names[method.name]]
    iterations, logged = log["iteration"].to_numpy(), log["step_time_s"].to_numpy()
    for panel, shown in ((whole, logged < SHOWN_S[1]), (zoom, (logged < SHOWN_S[1]) & (iterations <= begin))):
        panel.plot(iterations[shown], logged[shown], linewidth=1.0, **looks["log"])
        panel.set_ylabel("step time (s)")
    whole.set(xlim=(1, len(logged) + 1), ylim=SHOWN_S)
    whole.set_title(f"The whole run; the log's iteration {begin + 1} includes the search for the threshold", loc="left",
                    fontsize=10)
    zoom.set(xlim=(1, begin + 1), ylim=(SHOWN_S[0] + 1, SHOWN_S[1]), xlabel="iteration of the log")
    zoom.set_title("Before the threshold, where all methods are equal", loc="left", fontsize=10)
    style.label_lines(whole, ends | {"log": (iterations[-1], logged[-20:].mean())}, looks)
    style.label_lines(zoom, zoom_ends | {"log": (iterations[begin - 1], logged[begin - 1])}, looks)
    style.title(figure, "The reference code's run and its simulation",
                f"16 workers, 12 micro-batches; simulated: mean over {len(methods[0].runs)} seeds of the jitter, "
                "shaded: their range")
    return figure


def look_of(methods: list[Method]) -> tuple[dict[str, str], dict[str, dict]]:
    """Each method's name in the figure, and the colours of the methods and of the log."""
    from plots import style

    palette = iter([style.ALGORITHMS["backup-workers"], style.ALGORITHMS["local-sgd"], *style.OTHERS])
    names = {method.name: f"simulated, {method.name}" for method in methods}
    looks = {names[method.name]: {"color": style.ALGORITHMS["dropcompute"] if method.label == TWO_CLOCKS
                                  else next(palette)} for method in methods}
    return names, looks | {"log": {"color": "#000000"}}


def draw_times(panel, times: np.ndarray, shown: slice, look: dict) -> None:
    """Draws the mean of times[seed, step] over the seeds, and a band from the lowest to the highest seed."""
    iterations = np.arange(1, times.shape[1] + 1)[shown]
    panel.plot(iterations, times.mean(0)[shown], linewidth=1.5, **look)
    panel.fill_between(iterations, times.min(0)[shown], times.max(0)[shown], alpha=0.2, linewidth=0, **look)


def main(arguments: list[str]) -> int:
    if len(arguments) != 4 or arguments[0].startswith("-"):
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 0 if arguments in (["-h"], ["--help"]) else 2
    directory, log, noise, picture = map(Path, arguments)
    try:
        runs = runs_below(directory)
        for run in runs:
            read_tables(run)
        methods = group_methods(runs)
        figure = step_figure(methods, read_table(log, ["iteration", "step_time_s"]), noise)
        write_png(figure, picture, dpi=110)
    except ResultsFault as fault:
        print(f"plot: {fault}", file=sys.stderr)
        return 2
    except OSError as fault:
        print(f"plot: cannot write the figure: {fault}", file=sys.stderr)
        return 1
    print(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
