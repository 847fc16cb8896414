"""No function, and no cold part of a function, is empty in the libraries named on the command line. The unwind entry
of an empty function would have the address of the next function. Since lld keeps only one entry per address,
exceptions in the next function would find no handler."""

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
                # In members of an archive, addresses are relative to sections, so only their lengths are meaningful.
                ranges = ENTRY.findall(frames)
                self.assertGreater(len(ranges), 10)
                self.assertEqual([first for first, end in ranges if first == end], [])


if __name__ == "__main__":
    LIBRARIES = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
