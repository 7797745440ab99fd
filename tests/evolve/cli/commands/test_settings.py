"""`kbevolve settings` shows every value and where it comes from."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbevolve.configs.settings import Settings


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_settings_with_their_sources(
    kbevolve: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "kbevolve.toml").write_text("[search]\nseed = 3\n")
    monkeypatch.setenv("KBEVOLVE_EVALUATION_TRIALS", "9")
    done = kbevolve("settings", "--device", "cpu", "--set", "search.patience=0", "--json")
    found = {one["name"]: (one["value"], one["source"]) for one in json.loads(done.out)}
    assert list(found) == Settings.names()
    assert found["search.seed"] == (3, str(folder / "kbevolve.toml"))
    assert found["evaluation.trials"] == (9, "KBEVOLVE_EVALUATION_TRIALS")
    assert found["search.patience"] == (0.0, "command line")
    assert found["evaluation.interval"] == (0.03, "preset cpu")
    assert found["search.repair_turns"] == (1, "default")


def test_a_section_is_a_table_and_one_setting_is_explained(kbevolve: Callable[..., Any]) -> None:
    table = kbevolve("settings", "budget", "--device", "cpu").out.splitlines()
    assert len(table) == 1 + sum(name.startswith("budget.") for name in Settings.names())
    one = kbevolve("settings", "search.islands", "--device", "cpu").out
    assert "Number of islands" in one
    assert "KBEVOLVE_SEARCH_ISLANDS" in one


def test_what_a_strategy_fixes_is_not_called_a_default(kbevolve: Callable[..., Any]) -> None:
    done = kbevolve("settings", "search.repair_turns", "--device", "cpu", "--strategy", "openevolve", "--json")
    assert json.loads(done.out)[0]["source"] == "other settings"


def test_an_unknown_name_is_an_error_with_the_nearest(kbevolve: Callable[..., Any]) -> None:
    done = kbevolve("settings", "search.iland")
    assert done.code == 2
    assert "search.islands" in done.err


def test_at_80_columns_a_line_says_what_a_setting_is(
    kbevolve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", kbevolve("settings", "--device", "cpu").out).splitlines()
    assert all(len(line) <= 80 for line in lines)
    meanings = [line[lines[0].index("what it is") :] for line in lines[1:]]
    assert max(map(len, meanings)) > 25
