"""Runs whose files are not as the program wrote them: named, and not plotted."""

import json
import os

from synthetic_results import write_run
from with_results import WithDirectory, change

from plots.runs import read_run, size_and_digest


def list_files(run):
    """As the program does since schema version 2."""
    change(run / "summary.json", schema_version=2)
    found = {path.name: size_and_digest(path) for path in run.iterdir()}
    files = {name: {"bytes": size, "crc32": f"{digest:08x}"} for name, (size, digest) in found.items()}
    (run / "files.json").write_text(json.dumps({"schema_version": 2, "files": files}), encoding="utf-8")


class DamagedFiles(WithDirectory):
    def setUp(self):
        super().setUp()
        self.run_directory = write_run(self.directory / "m", "m", 1)
        list_files(self.run_directory)

    def assert_damaged(self, name):
        status, message = self.status_and_message(self.directory)
        self.assertEqual(status, 2, message)
        self.assertIn(f"{self.run_directory / name}: ", message)
        self.assertEqual(message.count("\n"), 1, message)
        self.assertEqual(list(self.directory.rglob("plots")), [])

    def test_digest_is_crc32(self):
        path = self.directory / "digits"
        path.write_text("123456789")
        self.assertEqual(size_and_digest(path), (9, 0xcbf43926))  # the check value of CRC-32's definition

    def test_whole_run_is_read(self):
        self.assertEqual(read_run(self.run_directory).seed, 1)

    def test_file_with_another_digit_is_damaged(self):
        path = self.run_directory / "metrics.csv"
        text = path.read_bytes()
        at = text.rindex(b"1")
        path.write_bytes(text[:at] + b"2" + text[at + 1:])
        self.assert_damaged("metrics.csv")

    def test_shorter_table_is_damaged(self):
        path = self.run_directory / "steps.csv"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
        self.assert_damaged("steps.csv")

    def test_pipes_and_what_is_too_large_are_not_read(self):
        for name in ("summary.json", "config.toml", "metadata.json", "files.json", "metrics.csv"):
            path = self.run_directory / name
            content = path.read_bytes()
            path.unlink()
            os.mkfifo(path)
            self.assert_damaged(name)
            path.unlink()
            with path.open("wb") as file:
                file.truncate(3_000_000_000)  # takes no room on the disk
            self.assert_damaged(name)
            path.write_bytes(content)

    def test_figures_are_not_written_through_links(self):
        elsewhere = self.directory.parent / f"{self.directory.name}-elsewhere"
        elsewhere.mkdir()
        self.addCleanup(elsewhere.rmdir)
        (self.directory / "plots").symlink_to(elsewhere)
        status, message = self.status_and_message(self.directory)
        self.assertEqual(status, 2, message)
        self.assertIn(f"{self.directory / 'plots'}: is a link to {elsewhere}", message)
        self.assertEqual(list(elsewhere.iterdir()), [])

    def test_damaged_common_phases_are_not_needed(self):
        phase = write_run(self.directory / "common-phase", "common phase", 1)
        (phase / "summary.json").write_text("{", encoding="utf-8")
        status, message = self.status_and_message(self.directory)
        self.assertEqual(status, 2, "there is no run that starts from it")
        self.assertIn(str(phase), message)
        config = self.run_directory / "config.toml"
        config.write_text(config.read_text(encoding="utf-8").replace("[training]", "[training]\ncommon.steps = 4", 1),
                          encoding="utf-8")
        (self.run_directory / "files.json").unlink()
        list_files(self.run_directory)
        self.assertEqual(self.status_and_message(self.directory)[0], 0)

    def test_damaged_list_is_named(self):
        for text in ("", "{}", '{"files": {"metrics.csv": {"bytes": 3}}}', '{"files": [1]}'):
            (self.run_directory / "files.json").write_text(text)
            self.assert_damaged("files.json")

    def test_file_of_another_program_is_named(self):
        text = json.dumps({**json.loads((self.run_directory / "files.json").read_text()), "schema_version": 9})
        (self.run_directory / "files.json").write_text(text)
        self.assert_damaged("files.json")
        change(self.run_directory / "summary.json", schema_version=9)
        self.assert_damaged("summary.json")
        self.assertIn("is of schema version 9, and this program knows 2", self.status_and_message(self.directory)[1])

    def test_missing_list_is_named(self):
        (self.run_directory / "files.json").unlink()
        self.assert_damaged("files.json")

    def test_older_run_without_a_list_is_read(self):
        (self.run_directory / "files.json").unlink()
        change(self.run_directory / "summary.json", schema_version=1)
        self.assertEqual(read_run(self.run_directory).seed, 1)

    def test_file_that_was_not_copied_along_is_no_fault(self):
        (self.run_directory / "metadata.json").unlink()
        self.assertEqual(read_run(self.run_directory).seed, 1)
