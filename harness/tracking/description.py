"""What a suite's experiment says of itself in MLflow: where its files are, how its runs are found, its tables."""

from pathlib import Path

from harness.report.markdown import escaped

MAX_CHARACTERS = 20_000  # of an experiment's description: MLflow refuses more
MAX_NAMED = 8  # files of a kind that are named
ROOM = 3_000  # characters kept for the names of tables that are too long
KINDS = {"table": ("tables", "md"), "page": ("reports", "html"), "plots": ("plots", "png")}
GUIDE = """\
A run is a trial and shows its record. The menu *Views* has the trials by test perplexity, and the curves as means over
seeds. Filter by tags, `tags.head = 'softmax'` or `tags.status != 'ok'`, or by any setting, `params.train.lr = '7.0'`.
Metrics are of the best epoch by validation, `..._last` of the last one, `..._by_epoch` are curves. `time/...` is as the
trial itself measured it, `tags.times` says whether others ran beside it; tables show times taken alone afterwards."""


def description(suite: str, results: Path) -> str:
    """Markdown of at most MAX_CHARACTERS. Its first line stands alone where MLflow folds the rest away: places are
    relative to the results folder, as text, since a browser opens no file from a page that it got over the network.

    Depends on the files below the results folder only: the same ones give the same text.
    """
    found = {kind: _places(suite, results / folder, ending) for kind, (folder, ending) in KINDS.items()}
    named = {kind: _named(places, results) for kind, places in found.items() if places}
    files = "; ".join(f"{kind}: {names}" for kind, names in named.items()) or "no table yet"
    shown, too_long = [f"Suite {escaped(suite)}. Files of the results folder: {files}.", GUIDE], []
    for place in found["table"]:
        text = place.read_text(encoding="utf-8").replace("# ", "### ", 1)
        if sum(map(len, [*shown, text])) + ROOM <= MAX_CHARACTERS:
            shown.append(text)
        else:
            too_long.append(place)
    if too_long:
        shown.append(f"Too long to be shown here: {_named(too_long, results)}.")
    return "\n\n".join(shown)


def _places(suite: str, folder: Path, ending: str) -> list[Path]:
    """A suite's files of a kind, the full one's first, then those of overridden suites: <suite>.md, <suite>.lr=1.md; of
    plots, which lie in folders of such names, the folders.
    """
    files = [*folder.glob(f"{suite}.{ending}"), *sorted(folder.glob(f"{suite}.*.{ending}"))]
    within = [*folder.glob(f"{suite}/*.{ending}"), *sorted(folder.glob(f"{suite}.*/*.{ending}"))]
    return files + list(dict.fromkeys(place.parent for place in within))


def _named(places: list[Path], results: Path) -> str:
    more = [f"and {len(places) - MAX_NAMED} more"] if len(places) > MAX_NAMED else []
    return ", ".join([f"`{place.relative_to(results)}`" for place in places[:MAX_NAMED]] + more)
