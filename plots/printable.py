"""Text of files on its way to a figure or a terminal: as workers/base/terminal_text.cpp writes it."""

import re

# C0, DEL and C1; what no terminal shows, or what turns the direction of writing; half characters, which stand for bytes
# that are no UTF-8.
COMMANDS = re.compile("[\0-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
                      "\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
                      "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]")


def printable(text: str) -> str:
    """Control and invisible characters as escapes: \\n, \\t, \\u001B. Everything else stays, and so does what is escaped already."""
    return COMMANDS.sub(lambda found: escape(found[0]), text)


def escape(character: str) -> str:
    code = ord(character)
    if 0xdc80 <= code <= 0xdcff:
        return f"\\x{code - 0xdc00:02X}"
    return {"\n": "\\n", "\t": "\\t"}.get(character, f"\\U{code:08X}" if code > 0xffff else f"\\u{code:04X}")
