"""The command line before any command: help, and errors of one line."""

from typing import Any

import pytest


@pytest.mark.parametrize("group", [(), ("archive",), ("problems",)])
def test_a_group_without_a_command_shows_its_help_alone(kbevolve: Any, group: tuple[str, ...]) -> None:
    outcome = kbevolve(*group)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith(f"Usage: {' '.join(('kbevolve', *group))} ")
    assert "See: " not in outcome.err


def test_an_unknown_option_is_one_line_and_where_to_look(kbevolve: Any) -> None:
    outcome = kbevolve("archive", "ls", "--nothing")
    assert outcome.code == 2
    complaint, see = outcome.err.splitlines()
    assert complaint.startswith("kbevolve: No such option")
    assert see == "See: kbevolve archive ls --help"
