"""Reading trace.json.gz: what every worker did when."""

import gzip
import json
import zlib
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from plots.runs import ResultsFault, in_words

TRACE = "trace.json.gz"


@dataclass
class Trace:
    """The spans of one run, and who did them."""

    spans: pd.DataFrame  # thread, activity, begin_s, end_s; ascending in thread and begin_s
    names: dict[int, str]  # of the participants, by thread: workers first
    workers: int
    until_s: float  # it goes so far
    capped: bool  # and the run went on


def read_trace(path: Path) -> Trace:
    expected = "expected Chrome trace events as Syncopate writes them, compressed by gzip"
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            document = json.load(file)
        events, about = document["traceEvents"], document["otherData"]
        names = {event["tid"]: event["args"]["name"] for event in events
                 if event["ph"] == "M" and event["name"] == "thread_name"}
        rows = [(event["tid"], event["name"], event["ts"], event["ts"] + event["dur"])
                for event in events if event["ph"] == "X"]
        spans = pd.DataFrame(rows, columns=["thread", "activity", "begin_s", "end_s"])
        spans[["begin_s", "end_s"]] *= 1e-6
        return Trace(spans.sort_values(["thread", "begin_s"], kind="stable"), names, int(about["workers"]),
                     float(about["until_s"]), bool(about["capped"]))
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as fault:
        raise ResultsFault(f"{path}: {in_words(fault)}; {expected}") from None
