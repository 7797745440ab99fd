"""NO_COLOR leaves no style at all, in every command."""

from pathlib import Path
from typing import Any

import pytest

CLI = Path(__file__).parents[4] / "evolve" / "cli"


@pytest.mark.parametrize("words", [("archive", "ls"), ("archive", "show", "latest"), ("ideas",), ("settings",)])
def test_no_color_leaves_no_style(
    kbevolve: Any, small_archive: Any, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("KBEVOLVE_ARCHIVE", str(small_archive.path))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[2m" in kbevolve(*words).out
    monkeypatch.setenv("NO_COLOR", "1")
    outcome = kbevolve(*words)
    assert outcome.code == 0
    assert outcome.out
    assert "\x1b[" not in outcome.out


def test_commands_print_on_our_console() -> None:
    theirs = {file.name for file in CLI.rglob("*.py") if "rich.console import Console" in file.read_text()}
    assert theirs == {"tables.py"}, "it takes a console as an argument, and makes none"
