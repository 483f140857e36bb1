"""The list of commands: where each is, and what the list says of it."""

from dataclasses import dataclass

from harness.extensions import is_there


@dataclass(frozen=True, slots=True)
class Command:
    """A command, as the list of commands knows it.

    Args:
        place: its module below harness.cli and its function there, 'run:run'.
        summary: what the list of commands says of it. Its own help is the docstring of the function.
    """

    place: str
    summary: str
    example: str


# In the order in which they are listed: those to begin with, which `harness list` shows, come first.
_ALL = {
    "run": Command(
        "run:run",
        "Train the trials of a suite that have no record yet, and write its table.",
        "run quickstart --set train.epochs=1 --only head=mos,seed=1",
    ),
    "plan": Command("plan:plan", "Show what would run, and what it costs.", "plan ptb_mixtures --time"),
    "table": Command("views:table", "Write the table of a suite again.", "table quickstart"),
    "report": Command("views:report", "Write the plots and the web page of a suite.", "report quickstart"),
    "new": Command(
        "starting:new",
        "Write a commented suite, head or backbone to start from.",
        "new head cosine, or harness new suite mine --text book.txt --minutes 20",
    ),
    "list": Command(
        "write:list_components", "List heads, backbones, corpora or suites.", "list, or harness list heads mos"
    ),
    "check": Command("starting:check", "Check a head or a backbone.", "check mos, or harness check --all"),
    "docs": Command("write:docs", "Print a page of the documentation.", "docs tables"),
    "doctor": Command("machine:doctor", "Check whether this machine can run trials, and describe it.", "doctor"),
    "export": Command(
        "records:export", "Write records into a file.", "export records.zip --suite ptb_mixtures --no-token-nll"
    ),
    "import": Command("records:import_records", "Copy the records of such a file.", "import records.zip"),
    "ui": Command("tracking:ui", "Start the MLflow UI.", "ui quickstart --port 5000"),
    # The others
    "reproduce": Command(
        "reproducing:reproduce",
        "Train published numbers again, and say which are reproduced.",
        "reproduce --cpus-per-trial 1, or harness reproduce --no-run",
    ),
    "diff": Command(
        "board:diff",
        "Show how two heads or two trials differ.",
        "diff softmax mos --suite quickstart, or harness diff 9b8ba74e 3f2c01aa",
    ),
    "schema": Command("write:schema", "Print the JSON schema of suites, for editors.", "schema > suites/schema.json"),
    "leaderboard": Command("board:leaderboard", "Rank the finished trials of all suites.", "leaderboard --corpus ptb"),
    "site": Command(
        "board:site",
        "Write all results as web pages.",
        "site --out site, or harness site --records results/showcase/records",
    ),
    "verify": Command(
        "records:verify",
        "Compare records with their weights, or with a new training.",
        "verify records.zip --retrain --only seed=1",
    ),
    "runs": Command("runs:runs", "List what was run, and how long it took.", "runs, or harness runs quickstart --json"),
    "inspect": Command(
        "models:inspect",
        "Show the most probable next words of a trained model.",
        'inspect 0d0e73a0d5b8 --text "it is a truth"',
    ),
    "sample": Command(
        "models:sample",
        "Write text with a trained model.",
        'sample 0d0e73a0d5b8 --prompt "it is a truth" --tokens 50 --top-p 0.9',
    ),
    "diagnose": Command(
        "models:diagnose",
        "Compute what the trained heads of a suite can express.",
        "diagnose quickstart --contexts 2000 --only head=mos",
    ),
    "experiment": Command(
        "models:experiment", "Repeat an experiment on untrained layers.", "experiment degeneracy --seeds 5"
    ),
    "submit": Command(
        "submitting:submit",
        "Write the results of a head into one file for others to check.",
        "submit quickstart --head mine --card card.yaml",
    ),
    "check-submission": Command(
        "submitting:check_submission",
        "Check such a file, and train one of its trials again.",
        "check-submission submissions/quickstart/mine-2026-03-31.zip --minutes 20",
    ),
    "sync": Command("tracking:sync", "Write all records to MLflow.", "sync --results results"),
}
# Those of extensions that are not there are not listed.
COMMANDS = {name: each for name, each in _ALL.items() if is_there(f"harness.cli.{each.place.partition(':')[0]}")}
FIRST = tuple(name for name in tuple(_ALL)[:12] if name in COMMANDS)
