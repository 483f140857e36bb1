"""What MLflow shows of a suite as a whole: its outcome, forest plots and files, and the names of its rows."""

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from harness.report import outputs
from harness.report.table_forms import escaped
from harness.tracking.database import ARTIFACTS

if TYPE_CHECKING:
    from harness.report.study import Study

SUMMARY = "suite.json"  # in the folder of a suite's artifacts: what is known when its table is written, for `sync`
SERVED = "ajax-api/2.0/mlflow-artifacts/artifacts"  # where the server of `harness ui` has the artifacts
MAX_CHARACTERS = 20_000  # of the description of an experiment: MLflow refuses more
GUIDE = """\
A run is one trial and shows its record. The menu *Views* has the trials by test perplexity, and charts of
means over seeds. Filter by tags, `tags.head = 'softmax'` or `tags.status != 'ok'`, or by any setting,
`params.train.lr = '7.0'`. `tags.stage = 'table'` leaves out tuning trials, as both views do. Metrics are of the
best epoch by validation, `..._last` of the last one, `curves/...` are learning curves. `time/...` was measured
by the trial itself; `tags.times` says whether other trials ran at the same time. Tables show times that were
measured afterwards, one trial at a time."""


def keep(found: "Study") -> None:
    """Write the outcome of a suite, its forest plots and the names of its rows below results/artifacts/<suite>."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it warns when the home folder cannot be written
    from harness.report.figures import plots  # here: matplotlib takes a second to import
    from harness.report.suite_table import stem

    folder, drawn = found.results / ARTIFACTS / found.suite.name / stem(found.suite), ()
    if found.suite.table.baseline is not None:
        drawn = plots.draw(found.findings, found.suite.name, kind=plots.FOREST)
    made = {f"{plot.name}.png": plot for plot in drawn if isinstance(plot, plots.Plot)}
    several = len({row.group for row in found.rows}) > 1
    names = {
        trial.id: ", ".join([row.head, *(filter(None, row.group) if several else ())])
        for row in found.rows
        for trial in row.trials
    }
    summary = {"found": found.found(), "plots": {name: plot.caption for name, plot in made.items()}, "names": names}
    files = {folder / name: plot.png() for name, plot in made.items()}
    gone = set(folder.glob("*.png")) - files.keys()
    outputs.write({**files, folder / SUMMARY: json.dumps(summary, indent=1).encode()}, gone=gone)


def row_names(suite: str, results: Path) -> dict[str, str]:
    """Trial id -> the name of its row, for trials whose suite's table was written."""
    kept = (_summary(place) for place in sorted((results / ARTIFACTS / suite).glob(f"*/{SUMMARY}")))
    return {trial: name for summary in kept for trial, name in summary.get("names", {}).items()}


def description(suite: str, results: Path) -> str:
    """The description of a suite's experiment: its outcome and files, its plots, and how runs are found.

    The first line is complete in itself, because MLflow hides the lines after it at first. Files are named by their
    path relative to the results folder: a browser opens no local file from a page of a server. Plots are shown by the
    server of `harness ui`.

    Returns: markdown of at most MAX_CHARACTERS, which depends on the files of the results folder only.
    """
    files = (f"tables/{suite}.md", f"reports/{suite}.html", f"plots/{suite}")
    shown = ", ".join(f"`{place}`" for place in files if (results / place).exists()) or "no table yet"
    summary = _summary(results / ARTIFACTS / suite / suite / SUMMARY)
    outcome = f"{escaped(summary['found'])}. " if summary else ""
    place = quote(f"{SERVED}/{suite}/{suite}")
    plots = [
        f"![{name}]({place}/{quote(name)})\n\n{escaped(caption)}" for name, caption in summary.get("plots", {}).items()
    ]
    first = f"Suite {escaped(suite)}. {outcome}Files of the results folder: {shown}."
    return "\n\n".join([first, *plots, GUIDE])[:MAX_CHARACTERS]


def _summary(place: Path) -> dict[str, Any]:
    try:
        return json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
