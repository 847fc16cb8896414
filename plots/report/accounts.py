"""Where the worker-seconds of each method went: a bar and the shares."""

import numpy as np

from plots.comparison import Comparison
from plots.methods import Method
from plots.numbers import is_plain, typeset_number
from plots.report.looks import dark
from plots.report.markup import escaped
from plots.timeline_figure import ACTIVITIES, share_text

WORDS = {"compute": "computing", "discarded": "dropped work", "wait": "waiting",
         "communicate": "communicating", "down": "down"}


def seconds_of(method: Method) -> dict[str, float]:
    """Means over the seeds; empty where no run has accounts."""
    accounts = [summed for run in method.runs
                if (summed := (run.summary.get("worker_seconds") or {}).get("summed") or {}).get("total")]
    return {name: float(np.mean([summed.get(name) or 0 for summed in accounts])) for name in (*ACTIVITIES, "total")
            } if accounts else {}


def seconds_text(seconds: float) -> str:
    decimals = 0 if seconds >= 1000 else 1
    if not is_plain(seconds, decimals):
        return typeset_number(seconds)
    return f"{seconds:,.{decimals}f}".replace(",", "\u202f")


def account_colours() -> str:
    """Of the activities, for the page's style."""
    def rules(colours: dict[str, str]) -> str:
        return "".join(f".{name}{{background:{colour}}}" for name, colour in colours.items())

    return (rules(ACTIVITIES) + "@media (prefers-color-scheme: dark){"
            + rules({name: dark(colour) for name, colour in ACTIVITIES.items()}) + "}")


def accounts_table(comparison: Comparison, swatches: dict[str, str]) -> str:
    """Empty where no run has accounts."""
    seconds = {method.name: (method, found) for method in comparison.methods if (found := seconds_of(method))}
    if not seconds:
        return ""
    longest = max(found["total"] for _, found in seconds.values())
    shown = [name for name in ACTIVITIES if any(found[name] for _, found in seconds.values())]
    heads = "".join(f'<th scope="col"><i class="key {name}"></i>{WORDS[name]} <small>%</small></th>' for name in shown)
    lines = []
    for name, (method, found) in seconds.items():
        pieces = "".join(f'<i class="{activity}" style="width:{100 * found[activity] / longest:.3f}%" '
                         f'title="{WORDS[activity]}: {share_text(found[activity] / found["total"])}"></i>'
                         for activity in shown if found[activity])
        cells = "".join(f'<td data-name="{WORDS[activity]}, %"><i class="key {activity}"></i>'
                        f"{100 * found[activity] / found['total']:.1f}</td>" for activity in shown)
        total = seconds_text(found["total"])
        lines.append(f'<tr><th scope="row">{swatches.get(method.label, "")}{escaped(name)}</th>'
                     f'<td class="bar"><div>{pieces}</div></td>{cells}<td data-name="worker-seconds">{total}</td></tr>')
    return ('<div class="scroll" tabindex="0" role="region" aria-label="Accounts"><table class="accounts"><thead><tr>'
            f'<th scope="col">method</th><th scope="col" class="bar"></th>{heads}'
            f'<th scope="col">worker-seconds</th></tr></thead><tbody>{"".join(lines)}</tbody></table></div>')
