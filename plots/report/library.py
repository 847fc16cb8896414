"""plotly.js, as the distribution's package python3-plotly has it."""

import re
from importlib.util import find_spec
from pathlib import Path

PLACES = [Path("/usr/share/python3-plotly/plotly.js"), Path("/usr/share/python3-plotly/plotly.min.js")]
VERSION = re.compile(rb"plotly\.js v([\d.]+)")


class MissingLibrary(Exception):
    """What is not there, and how it comes there."""


def read_library() -> bytes:
    """Also that of a package of Python's own."""
    found = find_spec("plotly")
    own = [Path(found.origin).parent / "package_data" / "plotly.min.js"] if found and found.origin else []
    for path in [*PLACES, *own]:
        try:
            return path.read_bytes()
        except OSError:
            continue
    raise MissingLibrary("plotly.js is not there; the package python3-plotly has it")


def name_of(library: bytes) -> str:
    found = VERSION.search(library[:2000])
    return f"plotly.js{f' {found[1].decode()}' if found else ''} (MIT licence)"
