"""The page of an experiment of which summaries are kept without the runs (results/paper/): claims, the table and the
figures that lie there, and how to make the runs."""

import base64
import json
import re
from itertools import zip_longest
from pathlib import Path

from plots.report.claims import FILE as CLAIMS
from plots.report.claims import claims_table, read_claims
from plots.report.markup import escaped
from plots.runs import RUN_DIRECTORY, ResultsFault

TABLE, ROWS = "table.md", "runs.csv"  # either says that something is kept
MOST_FIGURES = 4_200_000  # bytes of a page's figures; in letters they are a third more
EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def is_kept(directory: Path) -> bool:
    """Whether summaries lie here, and no runs below."""
    if not any((directory / name).is_file() for name in (CLAIMS, TABLE, ROWS)):
        return False
    return not any(RUN_DIRECTORY.fullmatch(path.name) for path in directory.rglob("seed=*-*"))


def kept_sections(directory: Path) -> list[tuple[str, str, str]]:
    """Key, name and content."""
    claims = read_claims([directory])
    return [(key, name, content) for key, name, content in (
        ("claims", "Claims", claims_table(claims) if claims else ""), ("results", "Results", table_of(directory)),
        ("figures", "Figures", figures_of(directory)), ("about", "About this page", about(directory))) if content]


def table_of(directory: Path) -> str:
    """Its tables, and the lines between them."""
    try:
        text = (directory / TABLE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as fault:
        raise ResultsFault(f"{directory / TABLE}: {fault}; expected the table that `run` writes") from None
    parts = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        lines = block.split("\n")
        if len(lines) > 1 and lines[0].startswith("|") and set(lines[1]) <= set("|-: "):
            parts.append(table_markup(lines))
        else:
            parts.append(f'<p class="note">{"<br>".join(escaped(line) for line in lines)}</p>')
    return "".join(parts)


def table_markup(lines: list[str]) -> str:
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))] for line in lines]
    head = "".join(f'<th scope="col">{escaped(cell)}</th>' for cell in rows[0])
    heads = [escaped(cell) for cell in rows[0][1:]]
    body = "".join(f'<tr><th scope="row">{escaped(row[0])}</th>'
                   + "".join(f'<td data-name="{name}">{cell_markup(cell)}</td>' for name, cell in zip_longest(heads, row[1:], fillvalue=""))
                   + "</tr>" for row in rows[2:])
    return ('<div class="scroll" tabindex="0" role="region" aria-label="Table of results"><table class="results kept"><thead><tr>'
            f"{head}</tr></thead><tbody>{body}</tbody></table></div>")


def cell_markup(cell: str) -> str:
    """A deviation stays in one piece."""
    return escaped(cell).replace("+- ", "\u00b1\u00a0")


def figures_of(directory: Path) -> str:
    parts, room, left_out = [], MOST_FIGURES, []
    for path in sorted(directory.glob("*.png")):
        content = path.read_bytes()
        if len(content) > room:
            left_out.append(path.name)
            continue
        room -= len(content)
        parts.append(f'<figure><img alt="{escaped(path.stem)}" src="data:image/png;base64,{base64.b64encode(content).decode()}">'
                     f"<figcaption>{escaped(path.stem)}</figcaption></figure>")
    if left_out:
        parts.append(f'<p class="note">Left out, lest the page be too large: {escaped(", ".join(left_out))}.</p>')
    return "".join(parts)


def about(directory: Path) -> str:
    """How the runs were made, as far as claims.json says it, and how to make them."""
    command = f"<pre>./dev run {escaped(file)}\n./dev report results/runs/{escaped(directory.name)}</pre>" if (
        file := experiment_of(directory.name)) else ""
    return ('<p class="note">These are kept summaries of finished runs; the runs themselves are not here, and so there are no '
            f"curves, accounts or configurations.{' With the runs the page has them:' if command else ''}</p>{command}{made_with(directory)}")


def made_with(directory: Path) -> str:
    """Commit, processor, cores and time."""
    try:
        said = json.loads((directory / CLAIMS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    rows = "".join(f'<tr><th scope="row">{name}</th><td>{escaped(str(said[name]))}</td></tr>'
                   for name in ("commit", "processor", "cores", "time") if name in said)
    return ('<div class="scroll" tabindex="0" role="region" aria-label="How they were made"><table class="settings">'
            f"<tbody>{rows}</tbody></table></div>") if rows else ""


def experiment_of(name: str) -> str:
    """The file of the experiment with this name, from the repository's root."""
    for path in sorted(EXPERIMENTS.glob("*/*.toml")):
        if re.search(rf'^name = "{re.escape(name)}"', path.read_text(encoding="utf-8"), re.MULTILINE):
            return path.relative_to(EXPERIMENTS.parent).as_posix()
    return ""
