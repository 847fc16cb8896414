"""What the command line asks for: formats, axes, methods and the width of a page."""

from synthetic_results import write_experiment, write_run
from with_results import WithDirectory

PNG_DOTS_PER_INCH = 300


class Requests(WithDirectory):
    def setUp(self):
        super().setUp()
        write_experiment(self.directory, seeds=1)

    def written(self):
        return sorted(path.name for path in (self.directory / "plots").iterdir())

    def assert_refused(self, arguments, *parts):
        status, message = self.status_and_message(self.directory, *arguments)
        self.assertEqual((status, message.count("\n")), (2, 1), message)
        for part in parts:
            self.assertIn(part, message)
        self.assertFalse((self.directory / "plots").exists())

    def drawing(self, name):
        return (self.directory / "plots" / name).read_text()

    def test_only_the_formats_asked_for_are_written(self):
        self.assertEqual(self.status_and_message(self.directory, "--format", "pdf,svg", "--only", "curves"), (0, ""))
        self.assertEqual(self.written(), ["curves.pdf", "curves.svg"])
        self.assertEqual((self.directory / "plots" / "curves.pdf").read_bytes()[:5], b"%PDF-")

    def test_unknown_formats_and_axes_are_named_with_the_nearest(self):
        self.assert_refused(["--format", "png,pfd"], "--format", "found pfd", "pdf,svg,png", "did you mean pdf?")
        self.assert_refused(["--axis", "byte"], "--axis", "found byte", "steps,samples,time,bytes", "did you mean bytes?")
        self.assert_refused(["--axis", "time,"], "--axis", "found nothing")

    def test_curves_stand_against_the_axes_asked_for(self):
        self.assertEqual(self.status_and_message(self.directory, "--axis=bytes", "--only=curves"), (0, ""))
        drawing = self.drawing("curves.svg")
        self.assertIn(">sent by all (GB)<", drawing)
        self.assertNotIn(">optimizer steps<", drawing)

    def test_only_the_methods_asked_for_are_drawn(self):
        for given in (["--methods", "DropCompute, backup workers"], ["--methods", "DropCompute", "--methods", "backup workers"]):
            self.assertEqual(self.status_and_message(self.directory, *given), (0, ""))
            drawing = self.drawing("curves.svg")
            for text in (">DropCompute<", ">backup workers<"):
                self.assertIn(text, drawing)
            self.assertNotIn(">synchronous SGD<", drawing)

    def test_a_method_keeps_its_label_with_a_comma(self):
        write_run(self.directory / "synthetic" / "five", "Local SGD, H = 5", 1)
        self.assertEqual(self.status_and_message(self.directory, "--methods", "Local SGD\\, H = 5", "--only=curves"), (0, ""))
        self.assertIn(">Local SGD, H = 5<", self.drawing("curves.svg"))

    def test_unknown_methods_are_named_with_the_nearest_and_those_there_are(self):
        self.assert_refused(["--methods", "dropcomptue"], "--methods dropcomptue: no run has that method",
                            "did you mean DropCompute?", "synchronous SGD")
        self.assert_refused(["--methods", "DropCompute,,"], "--methods", "empty name")

    def test_unknown_columns_are_refused(self):
        self.assert_refused(["--column", "triple"], "--column", "single", "double")

    def test_figures_for_columns_have_their_width_and_no_heading(self):
        for column, inches in (("single", 3.4), ("double", 7.0)):
            self.assertEqual(self.status_and_message(self.directory, "--column", column, "--format", "png,svg"), (0, ""))
            for path in (self.directory / "plots").glob("*.png"):
                width = int.from_bytes(path.read_bytes()[16:20], "big")
                self.assertEqual(width, round(inches * PNG_DOTS_PER_INCH), path.name)
            drawing = self.drawing("curves.svg")
            self.assertNotIn(">Four methods under the same stragglers<", drawing)
            self.assertIn("Four methods under the same stragglers", drawing)  # in the file's description
            for label in ("synchronous SGD", "DropCompute", "backup workers", "Local SGD (QSR)"):
                self.assertEqual(drawing.count(f">{label}<"), 1)  # in the one legend

    def test_no_figure_for_a_column_is_longer_than_a_page(self):
        for axes in ("time", "steps,samples,time,bytes"):
            self.assertEqual(self.status_and_message(self.directory, "--column", "single", "--axis", axes), (0, ""))
            for path in (self.directory / "plots").glob("*.png"):
                height = int.from_bytes(path.read_bytes()[20:24], "big")
                self.assertLessEqual(height, 9 * PNG_DOTS_PER_INCH + 1, path.name)
