"""No function of the libraries named on the command line is empty, cold parts included: its unwind entry would have the
address of the next function, lld keeps one entry per address, and what that function throws would find no handler."""

import re
import subprocess
import sys
import unittest

ENTRY = re.compile(r"FDE cie=[0-9a-f]+ pc=([0-9a-f]+)\.\.([0-9a-f]+)")


class UnwindEntries(unittest.TestCase):
    def test_none_is_empty(self):
        for library in LIBRARIES:
            with self.subTest(library=library):
                frames = subprocess.run(["readelf", "--debug-dump=frames", library], check=True, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
                # In an archive's members only the length tells: addresses are relative to their sections.
                ranges = ENTRY.findall(frames)
                self.assertGreater(len(ranges), 10)
                self.assertEqual([first for first, end in ranges if first == end], [])


if __name__ == "__main__":
    LIBRARIES = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
