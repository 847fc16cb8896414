"""Ctrl-C at any time: status 130, one line, and nothing half-written, within about a second."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

from synthetic_results import write_run
from with_results import WithDirectory

SOON_S = 20  # on a machine that has much else to do

# One instruction that never ends: Python hears of no signal in it.
ENDLESS = "print('begun', flush=True)\nfrom itertools import repeat\nsum(repeat(0))\n"

DRAWS_WITHOUT_END = f"""
import sys
from pathlib import Path
from plots import plot
from plots.interruptible import run_interruptibly
def draw_figures(*_):
    exec({ENDLESS!r})
    yield
plot.draw_figures = draw_figures
sys.exit(run_interruptibly(lambda: plot.main(sys.argv[1:]), [Path(sys.argv[1])]))
"""


# As where a file is on a disk that does not answer.
READS_WITHOUT_END = f"""
import sys
from pathlib import Path
from plots import plot, runs
from plots.interruptible import run_interruptibly
def own_bytes(_):
    exec({ENDLESS!r})
runs.own_bytes = own_bytes
sys.exit(run_interruptibly(lambda: plot.main(sys.argv[1:]), [Path(sys.argv[1])]))
"""


class Interruption(WithDirectory):
    def start(self, *program, stderr=subprocess.PIPE, **options):
        def block():  # as `dev` does: what is signalled while Python begins is heard later
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])

        return subprocess.Popen([sys.executable, "-B", *program, self.directory], cwd=Path(__file__).parents[2],
                                stdout=subprocess.PIPE, stderr=stderr, text=True, preexec_fn=block,
                                start_new_session=True, **options)

    def assert_interrupted(self, process):
        self.addCleanup(process.kill)
        message = process.communicate(timeout=SOON_S)[1]
        self.assertEqual(message, "plot: interrupted\n")
        self.assertEqual(process.returncode, 130)
        self.assertEqual(list(self.directory.rglob("*plots*")), [])
        self.assert_nobody_is_left(process.pid)

    def assert_nobody_is_left(self, group):
        """What an import has started for a moment (a list of fonts) may end a moment later."""
        end = monotonic() + SOON_S
        with self.assertRaises(ProcessLookupError):
            while monotonic() < end:
                os.killpg(group, 0)
                sleep(0.02)

    def test_while_it_begins_and_imports(self):
        write_run(self.directory / "m", "m", 1)
        for delay_s in (0, 0.05, 0.1, 0.2, 0.4):
            process = self.start("-m", "plots")
            sleep(delay_s)
            process.send_signal(signal.SIGINT)
            self.assert_interrupted(process)

    def test_in_an_import_that_takes_long(self):
        (self.directory / "pandas.py").write_text(ENDLESS)
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.start("-m", "plots", env=os.environ | {"PYTHONPATH": str(self.directory)})
            self.assertEqual(process.stdout.readline(), "begun\n")
            process.send_signal(number)
            self.assert_interrupted(process)

    def test_in_a_drawing_that_takes_long(self):
        write_run(self.directory / "m", "m", 1)
        for send in (os.kill, os.killpg):  # to whom one started, and from a terminal
            process = self.start("-c", DRAWS_WITHOUT_END)
            self.assertEqual(process.stdout.readline(), "begun\n")
            self.assertEqual(len(list(self.directory.glob(".plots-*"))), 1)
            send(process.pid, signal.SIGINT)
            self.assert_interrupted(process)

    def test_on_a_terminal_in_place_of_the_line_of_progress(self):
        for workers in (1, 2):
            write_run(self.directory / f"{workers}", "m", 1, workers=workers)
        terminal, program_side = os.openpty()
        process = self.start("-c", READS_WITHOUT_END, stderr=program_side)
        os.close(program_side)
        self.assertEqual(process.stdout.readline(), "begun\n")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(SOON_S), 130)
        said = os.read(terminal, 10000).decode()
        os.close(terminal)
        process.stdout.close()
        self.assertEqual(said, "\r\x1b[Kplot: 0 of 2 summaries read\r\x1b[Kplot: interrupted\r\n")

    def test_while_results_are_read(self):
        write_run(self.directory / "m", "m", 1)
        process = self.start("-c", READS_WITHOUT_END)
        self.assertEqual(process.stdout.readline(), "begun\n")
        process.send_signal(signal.SIGINT)
        self.assert_interrupted(process)

    def test_other_signals_are_named(self):
        (self.directory / "pandas.py").write_text("import os\nos.abort()\n")
        process = self.start("-m", "plots", env=os.environ | {"PYTHONPATH": str(self.directory)})
        self.assertEqual(process.communicate(timeout=SOON_S)[1], "plot: ended by signal 6 (Aborted)\n")
        self.assertEqual(process.returncode, 1)
