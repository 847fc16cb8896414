"""Step times of a recorded run beside its simulations."""

import contextlib
import io

import numpy as np
from synthetic_results import write_run
from with_results import WithDirectory

from plots.recorded_steps import as_logged, main, own_sleeps
from plots.runs import read_run

CONFIG = """
[[delays]]
kind = "normal"
[[delays]]
kind = "trace"
scale = 0.5
sleep = true
"""


class RecordedSteps(WithDirectory):
    def setUp(self):
        super().setUp()
        self.noise, self.log = self.directory / "noise.csv", self.directory / "log.csv"
        # Worker 0 draws 10 step + micro_batch, worker 1 what nobody asks for.
        self.noise.write_text("# a comment\nworker,step,micro_batch,duration_s\n" + "".join(
            f"{worker},{step},{micro_batch},{10 * step + micro_batch if worker == 0 else 99}\n"
            for worker in range(2) for step in range(1200) for micro_batch in range(2)))
        self.log.write_text("iteration,step_time_s\n" + "".join(f"{i},{330 if i == 1 else 8}\n" for i in range(1, 61)))
        for label in ("two clocks", "one clock"):
            for seed in (1, 2):
                config = write_run(self.directory / label, label, seed) / "config.toml"
                config.write_text(config.read_text() + "[methods.threshold]\nwarmup_steps = 6\ncalibration_steps = 44\n"
                                  + CONFIG)

    def test_times_are_those_of_worker_0_once_it_has_slept(self):
        run = read_run(next((self.directory / "one clock").glob("seed=1-*")))
        sleeps = own_sleeps(self.noise, run)
        np.testing.assert_allclose(sleeps[:3], [0.5, 5.5, 10.5])
        shift = as_logged(run, sleeps, 2) - run.steps["duration_s"].to_numpy()
        np.testing.assert_allclose(shift[:5], [0.5, 5, -5.5, 0, 0], atol=1e-9)  # none from step 2 on

    def test_the_picture_is_written_or_the_fault_is_told(self):
        picture = self.directory / "steps.png"
        arguments = [str(path) for path in (self.directory, self.log, self.noise, picture)]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as message:
            self.assertEqual(main(arguments), 0)
            self.assertGreater(picture.stat().st_size, 10_000)
            self.log.write_text("iteration,duration\n1,2\n")
            self.assertEqual(main(arguments), 2)
            self.assertEqual(main(arguments[:2]), 2)
        self.assertIn("has no column step_time_s", message.getvalue())
