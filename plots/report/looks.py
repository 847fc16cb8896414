"""The look of a method in a page: that of the figures, for a screen that may be dark."""

from plots import style

DARK = {"#000000": "#e8e8e4", "#0072B2": "#4aa3df", "#333333": "#8d949e", "#E2E2E2": "#4a5058",
        "#882255": "#c7609a", "#332288": "#8f83dd", "#8C510A": "#c98b48"}
SYMBOLS = {"o": "circle", "s": "square", "^": "triangle-up", "v": "triangle-down", "D": "diamond", "d": "diamond-tall",
           "P": "cross", "X": "x", "x": "x", "*": "star", "<": "triangle-left", ">": "triangle-right", "p": "pentagon",
           "h": "hexagon"}
WIDTH = 2  # pixels of a line


def dark(colour: str) -> str:
    return DARK.get(colour, colour)


def pixels(linestyle) -> list[float]:
    """Dashes and gaps; empty of a solid line."""
    named = {"solid": [], "-": [], "dashed": [5, 2], "--": [5, 2], "dotted": [1.5, 1.5], ":": [1.5, 1.5],
             "dashdot": [5, 1.5, 1.5, 1.5], "-.": [5, 1.5, 1.5, 1.5]}
    lengths = named.get(linestyle, []) if isinstance(linestyle, str) else linestyle[1] or []
    return [round(WIDTH * length, 1) for length in lengths]


def page_look(look: dict) -> dict:
    """Of what style.line_styles gives."""
    colour = look.get("color", style.INK)
    found = {"light": colour, "dark": dark(colour), "dash": pixels(look.get("linestyle", "solid"))}
    if look.get("marker") in SYMBOLS:
        found["symbol"] = SYMBOLS[look["marker"]]
    return found


def swatch(look: dict) -> str:
    """A piece of the line."""
    shown = page_look(look)
    dashes = f' stroke-dasharray="{" ".join(map(str, shown["dash"]))}"' if shown["dash"] else ""
    return (f'<svg class="swatch" width="26" height="10" aria-hidden="true" style="--light:{shown["light"]};'
            f'--dark:{shown["dark"]}"><line x1="1" y1="5" x2="25" y2="5"{dashes}/></svg>')
