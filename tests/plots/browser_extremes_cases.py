"""A report in a browser of what is unusual: a single method and seed, many methods with long labels, losses far from 1, no
target, no model."""

import tempfile
import unittest
from pathlib import Path

from browser_cases import PROGRAM, ROOT, Page, ran, report
from chromium import Chromium, executable

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


del Page  # its own tests are run by browser_cases

if __name__ == "__main__":
    unittest.main()
