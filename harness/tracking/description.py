"""The description of a suite's experiment in MLflow: where its files are, how runs are filtered, and its tables."""

from pathlib import Path

from harness.report.markdown import escaped

MAX_CHARACTERS = 20_000  # of the description of an experiment: MLflow refuses more
MAX_NAMED = 8  # files of one kind that are named
RESERVED = 3_000  # characters that are kept free for the names of tables that are too long
KINDS = {"page": ("reports", "html"), "table": ("tables", "md"), "plots": ("plots", "png")}
GUIDE = """\
A run is one trial and shows its record. The menu *Views* has the trials by validation perplexity, and the curves
as means over seeds. Filter by tags, `tags.head = 'softmax'` or `tags.status != 'ok'`, or by any setting,
`params.train.lr = '7.0'`. `tags.stage = 'table'` leaves out tuning trials, as both views do. Metrics are of the
best epoch by validation, `..._last` of the last one, `curves/...` are learning curves. `time/...` was measured
by the trial itself; `tags.times` says whether other trials ran at the same time. Tables show times that were
measured afterwards, one trial at a time."""


def description(suite: str, results: Path) -> str:
    """The description of a suite's experiment.

    The first line is complete in itself, because MLflow hides the lines after it at first. It names files by their
    path relative to the results folder and does not link to them: a browser opens no local file from a page of a
    server.

    Args:
        suite: the name of the suite.
        results: the results folder. The text depends on its files only: the same files give the same text.

    Returns:
        Markdown of at most MAX_CHARACTERS.
    """
    found = {kind: _files(suite, results / folder, ending) for kind, (folder, ending) in KINDS.items()}
    named = {kind: _names(places, results) for kind, places in found.items() if places}
    files = "; ".join(f"{kind}: {names}" for kind, names in named.items()) or "no table yet"
    shown, too_long = [f"Suite {escaped(suite)}. Files of the results folder: {files}.", GUIDE], []
    for place in found["table"]:
        text = place.read_text(encoding="utf-8").replace("# ", "### ", 1)
        if sum(map(len, [*shown, text])) + RESERVED <= MAX_CHARACTERS:
            shown.append(text)
        else:
            too_long.append(place)
    if too_long:
        shown.append(f"Too long to be shown here: {_names(too_long, results)}.")
    return "\n\n".join(shown)


def _files(suite: str, folder: Path, ending: str) -> list[Path]:
    """The files of one kind, that of the suite itself first, then those of the suite with overrides, as in
    <suite>.lr=1.md. Plots lie in folders with such names; for them, the folders.
    """
    files = [*folder.glob(f"{suite}.{ending}"), *sorted(folder.glob(f"{suite}.*.{ending}"))]
    within = [*folder.glob(f"{suite}/*.{ending}"), *sorted(folder.glob(f"{suite}.*/*.{ending}"))]
    return files + list(dict.fromkeys(place.parent for place in within))


def _names(places: list[Path], results: Path) -> str:
    more = [f"and {len(places) - MAX_NAMED} more"] if len(places) > MAX_NAMED else []
    return ", ".join([f"`{place.relative_to(results)}`" for place in places[:MAX_NAMED]] + more)
