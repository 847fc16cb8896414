"""Figures on their way to files."""

from pathlib import Path

from plots import page

NO_DATE = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}  # equal figures are equal files
DESCRIPTION = {"pdf": "Subject", "svg": "Description", "png": "Description"}


def save(figure, directory: Path, name: str, formats: tuple[str, ...]) -> list[Path]:
    """The figure as `name` in each format, in several files where it is longer than a page; it is closed. What has no heading is described in the file."""
    from matplotlib.pyplot import close

    written = []
    pages = getattr(figure, "page_count", 1)
    for number in range(pages):
        if pages > 1:
            figure.turn_to(number)
        for suffix in formats:
            written.append(directory / f"{name}{f'-page-{number + 1}' if pages > 1 else ''}.{suffix}")
            told = {DESCRIPTION[suffix]: figure.get_label()} if figure.get_label() else {}
            figure.savefig(written[-1], dpi=page.current.dpi, metadata={**NO_DATE[suffix], **told})
    close(figure)
    return written
