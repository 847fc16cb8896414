"""The figure of what a command has written as JSON: what it holds tells which command it was."""

import json
from pathlib import Path

from plots.page import use_page
from plots.predictions_figure import predictions_figure
from plots.runs import ResultsFault, in_words
from plots.saving import save
from plots.thresholds_figure import checked_thresholds, thresholds_figure


def write_json_figure(path: Path, formats: tuple[str, ...] = ("png", "svg"), on: str = "screen") -> list[Path]:
    """Beside it."""
    use_page(on)
    report = read_json(path)
    is_prediction = isinstance(report, dict) and "predictions" in report
    figure = predictions_figure(report, path) if is_prediction else thresholds_figure(checked_thresholds(report, path))
    return save(figure, path.parent, path.stem, formats)


def read_json(path: Path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as fault:
        raise ResultsFault(f"{path}: {in_words(fault)}; expected what `syncopate thresholds SOURCE --json "
                           f"{path}` writes, or `syncopate predict FILE --json` prints") from None
