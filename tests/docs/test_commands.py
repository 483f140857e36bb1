"""Every command that the documents show exists and has the options that are named; so have the targets of make."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from typer.main import get_command

from harness import plan
from harness.cli import app, loaded
from harness.plan.selection import chosen_trials, chosen_tuning

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / f"{page}.md" for page in ("README", "AGENTS", "CONTRIBUTING")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
IN_TEXT = re.compile(r"`((?:harness|make) [^`]+)`")
IN_BLOCK = re.compile(r"^(?:    |)\s*((?:harness|make) .+)$", flags=re.MULTILINE)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(text: str) -> list[str]:
    """The indented and the fenced blocks of a page, but for those in Python, YAML and TOML."""
    fenced = re.findall(r"```(?:bash|sh)?\n(.*?)```", text, flags=re.DOTALL)
    indented = re.findall(r"(?:^ {4}.*\n)+", re.sub(r"```.*?```", "", text, flags=re.DOTALL), flags=re.MULTILINE)
    return [*fenced, *indented]


def commands(page: Path) -> list[str]:
    """The commands of a page, without comments and line continuations."""
    text = page.read_text(encoding="utf-8")
    found = IN_TEXT.findall(text)
    for block in blocks(text):
        found += IN_BLOCK.findall(block.replace("\\\n", " "))
    return [command for line in found for command in line.partition(" #")[0].split("; ")]


def words(command: str) -> list[str]:
    """Its words; what stands for something else ('SUITE', '[--json]', 'head|step') is written in plain."""
    return shlex.split(re.sub(r"[\[\]]|\.\.\.", " ", command.replace("\\|", "|")))


def unknown(command: str) -> str | None:
    """What in a command there is not, or None."""
    given = words(re.sub(r'--slurm "[^"]*"', "--slurm OPTIONS", command))[1:]  # those are sbatch's
    level = top = get_command(app)
    while hasattr(level, "commands") and given and not given[0].startswith("-"):
        first, *given = given
        names = [each for each in first.split("|") if each not in level.commands]
        if names:
            return f"no command '{names[0]}'"
        name = first.split("|")[0]
        level = loaded(name) if level is top else level.commands[name]
    known = {option for parameter in level.params for option in (*parameter.opts, *parameter.secondary_opts)}
    options = [each.partition("=")[0] for word in given if word.startswith("--") for each in word.split("|")]
    wrong = [option for option in options if option not in {*known, "--help"}]
    return f"no option {wrong[0]}" if wrong else None


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_and_option_exists(page):
    shown = [command for command in commands(page) if command.startswith("harness ")]
    problems = {command: unknown(command) for command in shown}
    assert {command: problem for command, problem in problems.items() if problem} == {}


def changed_suites(page: Path) -> set[tuple[Path, tuple[str, ...], tuple[str, ...]]]:
    """(suite, --set, --only) of the commands that change or select trials of a suite of this repository."""
    found = set()
    for command in commands(page):
        given = words(command)
        suites = [path for word in given[2:3] if (path := ROOT / "suites" / f"{Path(word).stem}.yaml").exists()]
        pairs = list(pairwise(given))
        settings, only = (tuple(value for option, value in pairs if option == name) for name in ("--set", "--only"))
        if suites and (settings or only):
            found.add((suites[0], settings, only))
    return found


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_suite_is_accepted_with_the_settings_and_conditions_of_its_command(page):
    for suite, settings, only in sorted(changed_suites(page)):
        loaded_suite = plan.load(suite, settings)
        if only and "$" not in "".join(only):
            assert [*chosen_trials(loaded_suite, only), *chosen_tuning(loaded_suite, only)], (suite, settings, only)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_target_of_make_exists(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = {words(command)[1] for command in commands(page) if command.startswith("make ")}
    assert {each for each in named if "=" not in each} <= targets


def test_the_page_of_commands_lists_every_command():
    table = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8").partition("| command |")[2]
    named = {
        each for names in re.findall(r"`harness ([a-z|-]+)", table.replace("\\|", "|")) for each in names.split("|")
    }
    assert set(get_command(app).commands) <= named


def test_what_is_not_there_is_noticed():
    assert unknown("harness run SUITE --set a=1 --no-timing") is None
    assert unknown("harness walk SUITE") == "no command 'walk'"
    assert unknown("harness run SUITE --sett a=1") == "no option --sett"
