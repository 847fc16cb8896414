"""Tables of claims in results/paper/README.md equal the output of `syncopate claims` for the kept claims, and the
project's README.md has the same numbers of verdicts."""

import json
import os
import re
import subprocess
import unittest
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "results/paper"
MARK = "<!-- written by"
CLASSES = ("headline", "theory", "check", "question")


def printed(folders):
    command = [os.environ["SYNCOPATE_PROGRAM"], "claims", *folders, "--markdown"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def sections():
    """The text below each heading of the part that `./dev paper --keep` writes."""
    written = (KEPT / "README.md").read_text().split(MARK, 1)[1].split("-->", 1)[1]
    parts = re.split(r"^### (.*)$", written, flags=re.MULTILINE)
    return {heading: text.strip() for heading, text in zip(parts[1::2], parts[2::2])}


def experiments_in(table):
    return list(dict.fromkeys(re.findall(r"^\| (paper-\S+) \|", table, flags=re.MULTILINE)))


def claims_of(experiments):
    return [claim for name in experiments for claim in json.loads((KEPT / name / "claims.json").read_text())["claims"]]


def reproduced(claims):
    return sum(claim["verdict"] == "reproduced" for claim in claims)


def counts_of(verdicts):
    counts = Counter(verdicts)
    return "-" if not counts else f"{counts['reproduced']}, {counts['not reproduced']}, {counts['inconclusive']}"


def tests_the_number(claim):
    bounds, value = claim["criterion"].get("within"), claim["paper"].get("value")
    return bounds is not None and value is not None and bounds[0] <= value <= bounds[1]


class KeptTables(unittest.TestCase):
    def setUp(self):
        self.sections = sections()
        self.of_all = self.sections.pop("All")

    def test_each_table_is_what_claims_prints(self):
        for heading, text in self.sections.items():
            table, notes = printed([KEPT / name for name in experiments_in(text)]).split("\n\n", 1)
            with self.subTest(heading):
                self.assertEqual(text.splitlines(), [*table.splitlines(), "", notes.splitlines()[0]])

    def test_what_was_made_before_a_change_says_so_in_its_table_and_here(self):
        text = (KEPT / "README.md").read_text()
        section = text.split("\n## Made before a change of the program\n", 1)[1].split("\n## ", 1)[0]
        named = set(re.findall(r"^- `(paper-\S+)`: ", section, flags=re.MULTILINE))
        marked = {file.parent.name for file in KEPT.glob("*/table.md")
                  if file.read_text().startswith("**Not yet run again.**")}
        self.assertEqual(named, marked, "a result that was made again is named no more; one that was not says so")

    def test_all_experiments_stand_in_one_table(self):
        shown = [name for text in self.sections.values() for name in experiments_in(text)]
        self.assertEqual(sorted(shown), sorted(file.parent.name for file in KEPT.glob("*/claims.json")))

    def test_the_sum_is_that_of_all(self):
        self.assertEqual(self.of_all, printed([KEPT]).split("\n\n", 1)[1].strip())

    def test_the_readme_has_the_same_numbers_by_class(self):
        said = re.findall(r"^\| ([^|]+) \| ([^|]*\d, [^|]*|-) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$",
                          (ROOT / "README.md").read_text(), flags=re.MULTILINE)
        expected = []
        for heading, table in self.sections.items():
            claims = claims_of(experiments_in(table))
            of_classes = [[claim["verdict"] for claim in claims if claim["class"] == name] for name in CLASSES]
            expected.append((heading.lower(), *(counts_of(verdicts) for verdicts in of_classes)))
        self.assertEqual([(name.lower(), *numbers) for name, *numbers in said], expected)

    def test_the_readme_tells_how_many_are_of_a_papers_figures(self):
        claims = claims_of(name for table in self.sections.values() for name in experiments_in(table))
        for page in (ROOT / "README.md", KEPT / "README.md"):
            self.assertRegex(page.read_text(), rf"\b{len(claims)}\s+claims\b")
        stated = [claim for claim in claims if claim.get("paper", {}).get("certainty") == "stated"]
        numbers = [claim for claim in stated if tests_the_number(claim)]
        said = re.search(r"(\d+) of them quote a paper's text; (\d+) of the \d+ hold. "
                         r"(\d+) of the \d+ test a number that a paper prints; (\d+) of the \d+ hold",
                         re.sub(r"\s+", " ", (ROOT / "README.md").read_text()))
        self.assertEqual(tuple(map(int, said.groups())),
                         (len(stated), reproduced(stated), len(numbers), reproduced(numbers)))

    def test_the_readme_counts_comparisons_of_qsr_with_data_parallel_training(self):
        claims = claims_of(name for table in self.sections.values() for name in experiments_in(table))
        compared = [claim for claim in claims if claim["class"] == "headline" and re.search(
            r"QSR( \(.*\))? is more accurate than (synchronous SGD|data parallel training)$", claim["sentence"])]
        said = re.search(r"Of (\d+) headline claims that QSR is more accurate than data parallel training, (\d+) hold, "
                         r"(\d+) do not, (\d+) are inconclusive",
                         re.sub(r"\s+", " ", (ROOT / "README.md").read_text()))
        verdicts = Counter(claim["verdict"] for claim in compared)
        self.assertEqual(tuple(map(int, said.groups())), (
            len(compared), verdicts["reproduced"], verdicts["not reproduced"], verdicts["inconclusive"]))

    def test_the_page_counts_comparisons_that_are_questions_too(self):
        claims = claims_of(name for table in self.sections.values() for name in experiments_in(table))
        compared = {name: Counter(claim["verdict"] for claim in claims if claim["class"] == name and re.search(
            r"QSR( \(.*\))? is more accurate than (synchronous SGD|data parallel training)$", claim["sentence"]))
            for name in ("headline", "question")}
        both = compared["headline"] + compared["question"]
        headlines = Counter(claim["verdict"] for claim in claims if claim["class"] == "headline")
        counted = headlines + compared["question"]
        said = re.search(r"a headline (\d+) times.* a question, (\d+) times, .* Of all (\d+) claims (\d+) are "
                         r"reproduced, (\d+) are not, and (\d+) are inconclusive. A headline has a verdict in (\d+) of "
                         r"(\d+) cases; if the (\d+) questions are counted as headlines, in (\d+) of (\d+).",
                         re.sub(r"\s+", " ", (KEPT / "README.md").read_text()))
        questions = compared["question"].total()
        self.assertEqual(tuple(map(int, said.groups())), (
            compared["headline"].total(), questions, both.total(), both["reproduced"], both["not reproduced"],
            both["inconclusive"], headlines.total() - headlines["inconclusive"], headlines.total(), questions,
            counted.total() - counted["inconclusive"], counted.total()))

    def test_the_page_counts_quotations_by_certainty(self):
        claims = claims_of(name for table in self.sections.values() for name in experiments_in(table))
        said = re.search(r"Of (\d+) claims (\d+) quote a number or statement of a paper: "
                         r"(\d+) quotations are from its text, (\d+) are from its code or derived, and (\d+) are "
                         r"from a review",
                         re.sub(r"\s+", " ", (KEPT / "README.md").read_text()))
        certainty = Counter(claim["paper"]["certainty"] for claim in claims if claim.get("paper"))
        self.assertEqual(tuple(map(int, said.groups())), (
            len(claims), certainty.total(), certainty["stated"], certainty["code"] + certainty["derived"],
            certainty["review"]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
