"""Text of files on its way to a figure or a terminal: as workers/process/printable.cpp writes it."""

import re

# C0, DEL and C1; what turns the direction of writing; half characters, which stand for bytes that are no UTF-8.
COMMANDS = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Control characters as escapes: \\n, \\t, \\u001B. Everything else stays, and so does what is escaped already."""
    return COMMANDS.sub(lambda found: escape(found[0]), text)


def escape(character: str) -> str:
    code = ord(character)
    if 0xdc80 <= code <= 0xdcff:
        return f"\\x{code - 0xdc00:02X}"
    return {"\n": "\\n", "\t": "\\t"}.get(character, f"\\u{code:04X}")
