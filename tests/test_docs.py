"""The documents say what the program does: every command line parses, every command is named and has an example."""

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from docs.write_commands import PAGE, page
from kbevolve.configs.settings import Settings
from kbevolve.evolve.cli.main import COMMANDS, cli

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


def command_lines() -> Iterator[tuple[str, str]]:
    for document in DOCUMENTS:
        for block in BLOCK.findall(document.read_text()):
            for line in block.split("\n"):
                if line.strip().startswith("kbevolve "):
                    yield document.name, line.strip()


def parse(words: list[str]) -> None:
    """Parse as far as click does without running the command."""
    command: click.Command = cli
    context = click.Context(command, info_name="kbevolve")
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, f"no command {words[0]}"
        command, words = found, words[1:]
        context = click.Context(command, info_name=command.name, parent=context)
    command.make_context(command.name, words, parent=context.parent)


@pytest.mark.parametrize(("document", "line"), sorted(set(command_lines())))
def test_documented_commands_parse(document: str, line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    words = list(itertools.takewhile(lambda word: word not in ("|", ">"), words))
    parse(words)
    for setting in (word.partition("=")[0] for before, word in itertools.pairwise(words) if before == "--set"):
        assert setting in Settings.names()


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them of its headings."""
    found = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in found}


@pytest.mark.parametrize("document", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(document: Path) -> None:
    """Links, files and settings; pages of results speak of their day."""
    text = document.read_text()
    missing = []
    for link in re.findall(r"\]\(([^):]+)\)", text):
        file, _, heading = link.partition("#")
        page = document.parent / file if file else document
        if not page.exists() or (heading and heading not in headings(page)):
            missing.append(link)
    named = re.findall(r"`([^`\n]+)`", text)
    packages = "configs|archive|islands|evaluators|evolve|benchmarks|tests|docs"
    missing += [word for word in named if re.fullmatch(rf"({packages})/[\w./-]*", word) and not (ROOT / word).exists()]
    sections = {setting.partition(".")[0] for setting in Settings.names() if "." in setting}
    for word in named:
        setting = re.fullmatch(rf"(?:--set )?((?:{'|'.join(sections)})\.[a-z_]+)(=.*)?", word)
        missing += [word] if setting and setting[1] not in Settings.names() else []
    assert not missing


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, f"{path} {name}")
    yield path, command


@pytest.mark.parametrize(("path", "command"), [pair for pair in commands(cli, "kbevolve") if pair[0] != "kbevolve"])
def test_every_command_helps_with_an_example_that_parses(path: str, command: click.Command) -> None:
    assert command.help, f"{path} says nothing about itself"
    assert command.epilog is not None, f"{path} has no example"
    match = re.search(r"Example: kbevolve (.*)", command.epilog)
    assert match, f"{path} has no example"
    parse(shlex.split(match[1].partition(" > ")[0]))
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert parameter.help, f"{path} {parameter.opts[0]} is not explained"


def test_the_page_of_commands_is_current() -> None:
    CliRunner().invoke(cli, ["run", "--help"])  # click then keeps the option: the page must not depend on it
    assert PAGE.read_text() == page(), "run: python -m docs.write_commands"


def test_the_readme_names_every_command() -> None:
    text = (ROOT / "README.md").read_text()
    missing = [name for name in COMMANDS if f"kbevolve {name}" not in text]
    assert not missing
