"""The numbers of a table of results, from `syncopate table --format csv`."""

import csv
import io
import subprocess
from dataclasses import dataclass
from pathlib import Path

from plots.runs import ResultsFault, in_words

ROUNDING = 1e-9
FLIPS_CAN_TELL = 6  # seeds with which a sign-flip test can reach 5 %


@dataclass
class Measured:
    """A number of one row over its seeds, and how it differs from that of the row compared with, seed by seed."""

    n: int
    mean: float
    std: float
    against: str = ""  # a row's label
    pairs: int = 0
    difference: float | None = None
    low: float | None = None  # the 95 % interval of the mean difference, by Student's t
    high: float | None = None
    sign_flip_p: float | None = None

    @property
    def is_exact(self) -> bool:
        """The difference is the same for every seed, but for rounding: an interval has nothing to say of it."""
        return (self.low is not None and self.high is not None
                and self.high - self.low <= ROUNDING * max(abs(self.difference), abs(self.mean)))

    @property
    def is_significant(self) -> bool:
        """The interval excludes no difference, and so does a sign-flip test that could."""
        if self.low is None or self.high is None or self.low <= 0 <= self.high or self.is_exact:
            return False
        return self.pairs < FLIPS_CAN_TELL or self.sign_flip_p is None or self.sign_flip_p <= 0.05


@dataclass
class Row:
    label: str  # of method and swept values
    method: str
    measures: dict[str, Measured]

    @property
    def missed(self) -> Measured | None:
        """Of seeds that missed the target: how many, and as a mean when the first of them ended."""
        return self.measures.get("target_missed_until_s")


class ProgramFault(Exception):
    """What the program said."""


def table_csv(program: str, directory: Path, against: str | None) -> str:
    """What the program prints. Throws ProgramFault."""
    command = [program, "table", str(directory), "--format", "csv", *(["--against", against] if against else [])]
    try:
        result = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace")
    except OSError as fault:
        raise ProgramFault(f"{program}: {fault.strerror}; ./dev build makes the program") from None
    if result.returncode != 0:
        raise ProgramFault(" ".join(result.stderr.split()) or f"ended with status {result.returncode}")
    return result.stdout


def rows_of(text: str, experiment: str) -> list[Row]:
    rows: dict[str, Row] = {}
    try:
        for line in csv.DictReader(io.StringIO(text)):
            if line["experiment"] != experiment:
                continue
            row = rows.setdefault(line["row"], Row(line["row"], line["method"], {}))
            row.measures[line["measure"]] = measured(line)
    except (KeyError, TypeError, ValueError) as fault:
        raise ResultsFault(f"syncopate table: {in_words(fault)}; expected the CSV of this version of the "
                           "program: ./dev build makes it") from None
    return list(rows.values())


def measured(line: dict[str, str]) -> Measured:
    def number(name: str) -> float | None:
        return float(line[name]) if line.get(name) else None

    return Measured(n=int(line["n"]), mean=float(line["mean"]), std=float(line["std"]), against=line.get("against") or "",
                    pairs=int(line.get("pairs") or 0), difference=number("difference"), low=number("low"),
                    high=number("high"), sign_flip_p=number("sign_flip_p"))
