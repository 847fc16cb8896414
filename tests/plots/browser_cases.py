"""A report in a browser: made from real runs, and opened from the disk by a headless Chromium."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from chromium import Chromium, executable

ROOT = Path(__file__).parents[2]
PROGRAM = os.environ.get("SYNCOPATE_PROGRAM") or str(ROOT / "build" / "bin" / "syncopate")
T_975_2 = 4.302652729911275  # the 97.5 % quantile of Student's t with 2 degrees of freedom, from tables
HOSTILE = '</script><script>window.hurt = 1</script><b class=\\"hurt\\">&lt;'
LABELS = ["synchronous SGD", "DropCompute", HOSTILE.replace('\\"', '"')]
EXPERIMENT = f"""
name = "small"
description = "Three methods <b class='hurt'>"
seeds = 3
[cluster]
workers = 4
micro_batch_s = 0.01
micro_batches = 2
[network]
kind = "free"
[[delays]]
kind = "exponential"
mean = 0.01
[training]
model = "linear"
dataset = "gaussian-mixture"
[training.optimizer]
name = "sgd"
[training.learning_rate]
schedule = "constant"
peak = 0.1
[budget]
steps = 60
[evaluation]
every_steps = 10
train_samples = 500
target_accuracy = 0.5
[recording]
trace = true
[[methods]]
label = "synchronous SGD"
algorithm = "sync-sgd"
[[methods]]
label = "DropCompute"
algorithm = "dropcompute"
threshold_s = 0.03
[[methods]]
label = "{HOSTILE}"
algorithm = "local-sgd"
period = {{ rule = "constant", steps = 4 }}
[[claim]]
sentence = "Steps get faster <i class='hurt'>."
measure = "step_time_s"
method = "DropCompute"
against = "synchronous SGD"
as = "ratio"
below = 1.0
paper = {{ figure = "10 %", source = "Table 1", certainty = "stated" }}
[[claim]]
sentence = "They take hours."
measure = "step_time_s"
method = "DropCompute"
above = 3600
"""


def ran(*command, **options):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=600, **options)
    if result.returncode != 0:
        raise RuntimeError(f"{command}: status {result.returncode}: {result.stderr}{result.stdout}")
    return result.stdout


def report(directory, page):
    ran(sys.executable, "-B", "-m", "plots.report", directory, "-o", page, cwd=ROOT,
        env=os.environ | {"SYNCOPATE_PROGRAM": PROGRAM, "PYTHONPATH": str(ROOT)})


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not executable():
            raise unittest.SkipTest("chromium is not installed")
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.directory = Path(temporary.name).resolve()
        cls.runs = cls.directory / "small"
        file = cls.directory / "small.toml"
        file.write_text(EXPERIMENT)
        ran(PROGRAM, "run", file, "--quiet", "--results", cls.directory)
        cls.page = cls.directory / "page.html"
        report(cls.runs, cls.page)
        swept = EXPERIMENT.split("[[claim]]")[0]  # without claims
        file.write_text(swept.replace('name = "small"', 'name = "sweep"').replace("seeds = 3", "seeds = 1"))
        ran(PROGRAM, "run", file, "--quiet", "--results", cls.directory, "cluster.workers=2,4,16")
        cls.sweep = cls.directory / "sweep.html"
        report(cls.directory / "sweep", cls.sweep)

        cls.browser = Chromium()
        cls.addClassCleanup(cls.browser.close)

    def open(self, page=None, width=1400, dark=False):
        self.browser.show(width, dark)
        self.browser.open(page or self.page)
        return self.browser

    def summaries(self, label):
        documents = [json.loads(path.read_text()) for path in sorted(self.runs.rglob("summary.json"))]
        return sorted((document for document in documents if document["method"] == label), key=lambda run: run["seed"])

    def lines(self, browser, what="name", of=".curves"):
        """A property of the lines of means that are drawn."""
        return browser.value(f"document.querySelector('{of} .plot').data.filter(trace => trace.meta).map(trace => trace.{what})")

    def press(self, browser, key, code):
        for kind in ("rawKeyDown", "char", "keyUp"):
            browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=code, text=" " if key == " " else "",
                         windowsVirtualKeyCode={" ": 32, "ArrowRight": 39, "Tab": 9}[key])

    def test_it_opens_without_errors_and_asks_for_nothing(self):
        browser = self.open()
        self.assertEqual(browser.value("document.querySelectorAll('.plot .scatterlayer .trace').length > 0"), True)
        self.assertEqual((browser.errors, browser.requests), ([], []))
        self.assertEqual(browser.files, [self.page.as_uri()])

    def test_an_error_or_a_request_would_be_noticed(self):
        page = self.directory / "bad.html"
        page.write_text("<!DOCTYPE html><html data-ready=yes><link rel=icon href='data:,'><p class=fault hidden></p>"
                        "<script>setTimeout(() => { hurt(); })</script><img src='http://127.0.0.1:9/x'>")
        browser = self.open(page)
        browser.wait_for("document.images[0].complete")
        self.assertTrue(any("hurt is not defined" in error for error in browser.errors), browser.errors)
        self.assertEqual(browser.requests, ["http://127.0.0.1:9/x"])

    def test_texts_of_files_are_text(self):
        browser = self.open()
        self.assertIs(browser.value("window.hurt === undefined"), True)
        self.assertEqual(browser.value("document.querySelectorAll('.hurt').length"), 0)
        self.assertEqual(browser.value("document.querySelector('h1').textContent"), "Three methods <b class='hurt'>")
        for table in (".bars", ".outcome", ".cost", ".accounts"):
            labels = browser.value(f"[...document.querySelectorAll('{table} tbody th')].map(cell => cell.textContent)")
            self.assertEqual(labels, LABELS)
        self.assertEqual(browser.value("[...document.querySelectorAll('.methods label')].map(label => label.textContent)"), LABELS)

    def test_texts_of_files_are_text_where_the_mouse_is(self):
        browser = self.open()
        browser.value("document.querySelector('.plot').scrollIntoView()")
        x, y, width, height = browser.value("(() => { const box = document.querySelector('.plot .nsewdrag').getBoundingClientRect(); "
                                            "return [box.x, box.y, box.width, box.height]; })()")
        for step in range(3):
            browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + width / 2 + step, y=y + height / 2)
        browser.wait_for("document.querySelectorAll('.plot .hoverlayer text').length > 0")
        shown = browser.value("document.querySelector('.plot .hoverlayer').textContent")
        self.assertIn("DropCompute", shown)
        self.assertIn('<b class="hurt">', shown)
        self.assertEqual((browser.errors, browser.requests), ([], []))

    def test_the_table_has_means_and_differences_paired_by_seed(self):
        browser = self.open()
        heads = browser.value("[...document.querySelectorAll('.outcome thead th')].map(cell => cell.textContent)")
        cells = browser.value("[...document.querySelectorAll('.outcome tbody tr')].map(row => "
                              "[...row.cells].map(cell => cell.textContent))")
        at = next(place for place, head in enumerate(heads) if head.startswith("test loss"))
        base = [run["final_test_loss"] for run in self.summaries(LABELS[0])]
        for row, label in zip(cells, LABELS, strict=True):
            values = [run["final_test_loss"] for run in self.summaries(label)]
            self.assertEqual(row[1], "3")
            self.assertTrue(row[at].startswith(f"{sum(values) / 3:.4f}"), row[at])
            if label == LABELS[0]:
                continue
            differences = [own - other for own, other in zip(values, base)]
            mean = sum(differences) / 3
            half = T_975_2 * (sum((difference - mean) ** 2 for difference in differences) / 2 / 3) ** 0.5
            found = re.search(r"([+−][\d.]+)\*? \[([+−]\S+), ([+−]\S+)\]", row[at])
            for text, expected in zip(found.groups(), (mean, mean - half, mean + half)):
                self.assertAlmostEqual(float(text.replace("−", "-")), expected, delta=0.51 * 10.0 ** -len(text.split(".")[1]))

    def test_it_has_the_claims_with_verdicts(self):
        browser = self.open()
        cells = browser.value("[...document.querySelectorAll('.claims tbody tr')].map(row => [...row.cells].map(cell => "
                              "cell.textContent))")
        times = [[run["end_time_s"] for run in self.summaries(label)] for label in ("DropCompute", "synchronous SGD")]
        ratio = sum(own / other for own, other in zip(*times)) / 3
        self.assertTrue(cells[0][0].startswith("Steps get faster <i class='hurt'>."))
        self.assertEqual(cells[0][1], "10 %Table 1; stated")
        self.assertAlmostEqual(float(re.match(r"[\d.]+?(?=\[)", cells[0][2])[0]), ratio, places=2)
        self.assertIn("n = 3", cells[0][2])
        self.assertEqual([row[3] for row in cells], ["reproduced", "not reproduced"])

    def test_a_method_is_switched_off_and_on(self):
        browser = self.open()
        self.assertEqual(len(self.lines(browser)), 3)
        shown = browser.value("document.querySelectorAll('.plot .scatterlayer .trace').length")
        browser.value("document.querySelectorAll('.methods input')[1].click()")
        self.assertEqual(self.lines(browser)[0], "synchronous SGD")
        self.assertNotIn("DropCompute", self.lines(browser))
        # The method's band has disappeared, too.
        self.assertEqual(browser.value("document.querySelectorAll('.plot .scatterlayer .trace').length"), shown - 3)
        browser.value("document.querySelectorAll('.methods input')[1].click()")
        self.assertIn("DropCompute", self.lines(browser))

    def test_the_keyboard_does_it_too(self):
        browser = self.open()
        browser.value("document.querySelectorAll('.methods input')[1].focus()")
        self.press(browser, " ", "Space")
        self.assertNotIn("DropCompute", self.lines(browser))
        browser.value("document.querySelector('input[value=step]').focus()")
        self.press(browser, "ArrowRight", "ArrowRight")
        self.assertIn("samples", browser.value("document.querySelector('.plot .xtitle').textContent"))
        self.assertEqual(browser.value("[...document.querySelectorAll('.scroll, pre')].every(box => box.tabIndex === 0)"), True)

    def test_axes_and_values_are_switched(self):
        browser = self.open()
        ends = {"step": 60, "samples": None, "epoch": None, "communicated_bytes": None, "time_s": None}
        for axis in ends:
            browser.value(f"document.querySelector('input[value={axis}]').click()")
            title = browser.value("document.querySelector('.plot .xtitle').textContent")
            last = self.lines(browser, "x.slice(-1)[0]")
            run = self.summaries("synchronous SGD")
            expected = {"step": 60, "samples": run[0]["samples"], "communicated_bytes": run[0]["communicated_bytes"],
                        "time_s": min(other["end_time_s"] for other in run)}
            if axis in expected:
                times = 1000 if title.endswith("(ms)") else 1
                self.assertAlmostEqual(last[0] / (times * expected[axis] or 1), 1 if expected[axis] else 0, places=3)
        self.assertRegex(title, r"^virtual time \((ms|s)\)$")
        for value, times in (("test_loss", 1), ("train_loss", 1), ("test_accuracy", 100)):
            browser.value(f"document.querySelector('input[value={value}]').click()")
            mean = sum(run[f"final_{value}"] for run in self.summaries("synchronous SGD")) / 3
            browser.value("document.querySelector('input[value=step]').click()")
            self.assertAlmostEqual(self.lines(browser, "y.slice(-1)[0]")[0], times * mean, delta=1e-3 * times * mean)
        self.assertEqual((browser.errors, browser.requests), ([], []))

    def test_bands_go_from_the_lowest_seed_to_the_highest(self):
        browser = self.open()
        browser.value("document.querySelector('input[value=step]').click()")
        finals = [100 * run["final_test_accuracy"] for run in self.summaries("synchronous SGD")]
        low, high = browser.value("document.querySelector('.plot').data.slice(0, 2).map(trace => trace.y.slice(-1)[0])")
        self.assertAlmostEqual(low, min(finals), places=2)
        self.assertAlmostEqual(high, max(finals), places=2)
        self.assertEqual(browser.value("document.querySelector('.plot').data[1].fill"), "tonexty")

    def test_timelines_show_what_workers_did(self):
        browser = self.open()
        self.assertEqual(browser.value("document.querySelectorAll('.timeline h4').length"), 3)
        self.assertEqual(browser.value("document.querySelector('.timeline h4 + div').data[0].x.length > 3"), True)
        self.assertEqual(browser.value("[...document.querySelectorAll('.timeline .ytick')].slice(0, 4).map(t => t.textContent)"),
                         [f"worker {rank}" for rank in range(4)])

    def test_curves_open_on_accuracy_against_time(self):
        browser = self.open()
        self.assertEqual(browser.value("[...document.querySelectorAll('.curves input:checked')].map(input => input.value).slice(0, 2)"),
                         ["test_accuracy", "time_s"])
        self.assertRegex(browser.value("document.querySelector('.curves .xtitle').textContent"), r"^virtual time \((ms|s)\)$")

    def test_it_begins_with_what_came_out(self):
        browser = self.open()
        times = {label: [run["time_to_target"]["time_s"] for run in self.summaries(label)] for label in LABELS}
        self.assertFalse([time for of_label in times.values() for time in of_label if time is None], "all reach the target")
        means = {label: sum(of_label) / 3 for label, of_label in times.items()}
        first = min(means, key=means.get)
        lead = browser.value("document.querySelector('main .lead').textContent")
        self.assertTrue(lead.startswith("No method reached 50 % test accuracy sooner than" if first == LABELS[0] else
                                        "The first to reach 50 % test accuracy was"), lead)
        self.assertIn(first, lead)
        widths = browser.value("[...document.querySelectorAll('.bars td:nth-child(3) .fill')].map(bar => bar.getBoundingClientRect().width)")
        for width, label in zip(widths, LABELS, strict=True):
            self.assertAlmostEqual(width / widths[0], means[label] / means[LABELS[0]], delta=0.02)
        strokes = browser.value("[...document.querySelectorAll('.bars td:nth-child(3) .stroke')].map(bar => bar.getBoundingClientRect().width)")
        halves = {label: T_975_2 * (sum((time - means[label]) ** 2 for time in of_label) / 2 / 3) ** 0.5 for label, of_label in times.items()}
        for stroke, label in zip(strokes, [label for label in LABELS if halves[label]], strict=True):
            shown = min(2 * halves[label], means[label] + halves[label])  # bars begin at zero
            self.assertAlmostEqual(stroke / widths[0], shown / means[LABELS[0]], delta=0.03)

    def test_the_cost_of_the_target_is_time_against_bytes(self):
        browser = self.open()
        points = browser.value("document.querySelector('.costs .plot').data.map(trace => [trace.name, trace.x[0], trace.y[0]])")
        self.assertEqual(len(points), 3)
        sent = {}
        for label in LABELS[:2]:
            for path in sorted(self.runs.rglob("summary.json")):
                if (run := json.loads(path.read_text()))["method"] == label:
                    rows = [line.split(",") for line in (path.parent / "metrics.csv").read_text().splitlines()]
                    at = next(row for row in rows[1:] if int(row[0]) == run["time_to_target"]["step"])
                    sent.setdefault(label, []).append(int(at[rows[0].index("communicated_bytes")]))
        for (_, x, y), (_, other_x, other_y), label in zip(points[1:2], points[:1], LABELS[1:2]):
            times = [sum(run["time_to_target"]["time_s"] for run in self.summaries(one)) for one in (label, LABELS[0])]
            self.assertAlmostEqual(y / other_y, times[0] / times[1], places=3)
            self.assertAlmostEqual(x / other_x, sum(sent[label]) / sum(sent[LABELS[0]]), places=3)
        self.assertEqual(browser.value("[...document.querySelectorAll('.costs .keys > span')].map(key => key.textContent)"), LABELS)

    def cut(self, browser):
        """Cells that are partly invisible, and tables that scroll without a sign of it."""
        return browser.value("""[...document.querySelectorAll('.scroll')].filter(box => box.offsetParent).flatMap(box => {
            const ends = box.getBoundingClientRect(), goesOn = box.scrollWidth > box.clientWidth + 1;
            const said = goesOn && getComputedStyle(box, '::after').content.includes('scroll');
            const cells = [...box.querySelectorAll('th, td')].filter(cell => cell.offsetParent && (cell.scrollWidth > cell.clientWidth + 1 ||
              !said && cell.textContent && cell.getBoundingClientRect().right > ends.right + 1));
            return [...(goesOn && !said ? [box.getAttribute('aria-label')] : []), ...cells.map(cell => cell.textContent)];
        })""")

    def test_no_cell_is_cut_at_any_width(self):
        for width in (1400, 1000, 420):
            browser = self.open(width=width)
            self.assertEqual(self.cut(browser), [], width)
            scrolling = browser.value("[...document.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth + 1)"
                                      ".map(box => box.getAttribute('aria-label'))")
            self.assertEqual(scrolling, [], width)
            names = browser.value("[...document.querySelectorAll('.accounts tbody tr')][0].innerText + "
                                  "[...document.querySelectorAll('.accounts th, .accounts td')].filter(cell => cell.offsetParent)"
                                  ".map(cell => cell.innerText + getComputedStyle(cell, '::after').content).join()")
            for activity in ("computing", "waiting"):
                self.assertIn(activity, names, width)

    def test_in_the_dark_no_line_is_black(self):
        browser = self.open()
        self.assertEqual(self.lines(browser, "line.color")[0], "#000000")
        light = browser.value("getComputedStyle(document.body).backgroundColor")
        browser.set_dark(True)
        browser.wait_for("document.querySelector('.plot').data.filter(trace => trace.meta)[0].line.color !== '#000000'")
        self.assertNotEqual(browser.value("getComputedStyle(document.body).backgroundColor"), light)

    def test_at_any_width_only_tables_scroll_sideways(self):
        for page in (self.page, self.sweep):
            for width in (400, 1400):
                browser = self.open(page, width=width)
                self.assertLessEqual(browser.value("document.documentElement.scrollWidth"), width)
                self.assertGreater(browser.value("document.querySelector('.plot .plotly').getBoundingClientRect().width"), 0.7 * width
                                   if width == 400 else 900)

    def test_another_point_of_a_sweep_is_chosen(self):
        browser = self.open(self.sweep)
        options = browser.value("[...document.querySelectorAll('select.point option')].map(option => option.textContent)")
        self.assertEqual(options, [f"workers = {workers}" for workers in (2, 4, 16)])
        before = self.lines(browser, "y.slice(-1)[0]")
        browser.value("(() => { const choice = document.querySelector('select.point'); choice.value = 2; "
                      "choice.dispatchEvent(new Event('change')); })()")
        self.assertNotEqual(self.lines(browser, "y.slice(-1)[0]"), before)
        self.assertEqual(browser.value("[...document.querySelectorAll('[data-point]')].map(table => table.hidden)"),
                         [True, True, False])
        self.assertEqual(browser.value("document.querySelectorAll('.timeline .ytick').length"), 3 * 16)
        self.assertEqual(browser.errors, [])

    def test_a_swept_number_has_a_line_per_method(self):
        browser = self.open(self.sweep)
        self.assertEqual(self.lines(browser, "x.join()", of=".sweeps"), ["2,4,16"] * 3)
        before = self.lines(browser, "y.slice(-1)[0]", of=".sweeps")
        choices = browser.value("[...document.querySelectorAll('.sweeps .pill')].map(choice => choice.textContent)")
        self.assertEqual(choices[:2], ["Samples per second", "Samples per second and worker"])
        browser.value("document.querySelectorAll('.sweeps .pill input')[1].click()")
        after = self.lines(browser, "y.slice(-1)[0]", of=".sweeps")
        for whole, of_one in zip(before, after):
            self.assertAlmostEqual(of_one, whole / 16, delta=1e-3 * whole)
        self.assertEqual(browser.errors, [])

    def test_the_configuration_in_it_gives_the_same_runs(self):
        browser = self.open()
        saved = self.directory / "saved.toml"
        saved.write_text(browser.value("document.querySelector('details pre').textContent"))
        checked = ran(PROGRAM, "check", saved)
        hashes = {json.loads(path.read_text())["hash"] for path in self.runs.rglob("summary.json")}
        self.assertEqual(len(hashes), 9)
        for found in hashes:
            self.assertIn(found, checked)

    def test_a_page_that_cannot_be_unpacked_says_so(self):
        page = self.directory / "broken.html"
        text = self.page.read_text()
        begin = text.index('id="data">') + len('id="data">')
        page.write_text(text[:begin] + "AAAA" + text[begin + 400:])
        browser = self.open(page)
        self.assertIs(browser.value("document.querySelector('.fault').hidden"), False)
        self.assertIn("The curves cannot be shown", browser.value("document.querySelector('.fault').textContent"))
        self.assertEqual(browser.value("document.querySelectorAll('.outcome tbody tr').length"), 3)


LONG = "a method whose label says with which momentum, period and threshold it was run, number {number}"
HEAD = """
name = "{name}"
seeds = {seeds}
cluster = {{ workers = 4, micro_batch_s = 0.01 }}
delays = [{{ kind = "exponential", mean = 0.005 }}]
budget.steps = 400
network = {{ kind = "ring", latency_s = 1e-3, bandwidth_bytes_per_s = 1e9 }}
"""
QUADRATIC = """
evaluation.every_steps = 40
[training]
model = "quadratic"
optimizer = { name = "sgd" }
learning_rate = { schedule = "constant", peak = 0.3 }
[models.quadratic]
dimension = 4
condition = 4
noise = 0
"""
TIME_ONLY = """
[training]
model = "none"
parameters = 1000
micro_batch_size = 8
"""
METHODS = "".join(f'[[methods]]\nlabel = "{LONG.format(number=number)}"\nalgorithm = "dropcompute"\nthreshold_s = {0.02 + number / 100}\n'
                  for number in range(12))
ONE = '[[methods]]\nalgorithm = "sync-sgd"\n'
DIVERGING = '[[methods]]\nlabel = "diverging"\nalgorithm = "sync-sgd"\ntraining = { learning_rate.peak = 2.2 }\n'
FAR = '[[methods]]\nlabel = "far"\nalgorithm = "sync-sgd"\ntraining = { learning_rate.peak = 1.1e-6 }\n'


class Extremes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not executable():
            raise unittest.SkipTest("chromium is not installed")
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.directory = Path(temporary.name).resolve()
        cls.browser = Chromium()
        cls.addClassCleanup(cls.browser.close)

    open, cut = Page.open, Page.cut

    def page_of(self, name, text, seeds=1):
        file, self.page = self.directory / f"{name}.toml", self.directory / f"{name}.html"
        file.write_text(HEAD.format(name=name, seeds=seeds) + text)
        ran(PROGRAM, "run", file, "--quiet", "--results", self.directory)
        report(self.directory / name, self.page)
        return self.page

    def assert_whole(self):
        for width in (1400, 1000, 420):
            browser = self.open(width=width)
            self.assertEqual(self.cut(browser), [], width)
            self.assertLessEqual(browser.value("document.documentElement.scrollWidth"), width)
            self.assertEqual(browser.errors, [])
        return browser

    def lead(self, browser):
        return browser.value("document.querySelector('main .lead').textContent")

    def test_tiny_losses_are_numbers_in_tables_and_where_the_mouse_is(self):
        self.page_of("tiny", QUADRATIC + ONE + FAR + DIVERGING)
        browser = self.assert_whole()
        final = browser.value("document.querySelector('.outcome tbody td:nth-child(3) .mean').textContent")
        self.assertRegex(final, r"^(\d(\.\d+)?×)?10⁻[⁰¹²³⁴⁵⁶⁷⁸⁹]+$")
        texts = browser.value("document.querySelector('.curves .plot').data.filter(trace => trace.meta)[0].customdata")
        self.assertRegex(texts[-1], "×10⁻")
        self.assertNotIn("0.0000", texts)
        high = browser.value("document.querySelector('.curves .plot').layout.yaxis.range[1]")
        self.assertLess(high, 100, "the method that diverges leaves the panel")
        self.assertIn("diverging: up to ", browser.value("document.querySelector('.curves .plot').textContent"))

    def test_one_method_with_one_seed(self):
        self.page_of("one", QUADRATIC + ONE)
        browser = self.assert_whole()
        self.assertRegex(self.lead(browser), r"^The run took .* It ended with a test loss of .*\.$")
        self.assertIs(browser.value("document.querySelector('.bars') === null && document.querySelector('.costs') === null"), True)

    def test_twelve_methods_with_long_labels_and_no_model(self):
        self.page_of("many", TIME_ONLY + METHODS, seeds=2)
        browser = self.assert_whole()
        self.assertRegex(self.lead(browser), "^The most samples per second of virtual time are those of")
        self.assertEqual(browser.value("document.querySelectorAll('.bars tbody tr').length"), 12)

    def test_kept_summaries_of_a_paper(self):
        self.page = self.directory / "kept.html"
        report(ROOT / "results" / "paper" / "paper-families", self.page)
        for width in (1400, 420):
            browser = self.open(width=width)
            self.assertEqual(self.cut(browser), [], width)
            self.assertLessEqual(browser.value("document.documentElement.scrollWidth"), width)

    def test_a_target_that_nobody_reached(self):
        self.page_of("missed", "evaluation.target_loss = 1e-300\n" + QUADRATIC + ONE + FAR)
        browser = self.assert_whole()
        self.assertTrue(self.lead(browser).startswith("No method reached a test loss of 10⁻³⁰⁰."), self.lead(browser))
        self.assertIs(browser.value("document.querySelector('.costs') === null"), True)
