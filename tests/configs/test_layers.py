"""Where settings come from, which source wins, and that all of them are explained."""

from pathlib import Path

import pytest

from docs.write_settings import PAGE, page
from kbevolve.configs.errors import SettingsError
from kbevolve.configs.layers import layers, project_file, variable_of
from kbevolve.configs.setting_facts import sentence, setting_facts
from kbevolve.configs.settings import Settings


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a `kbevolve.toml`; the working directory is two levels below."""
    (tmp_path / "kbevolve.toml").write_text("[search]\nislands = 5\ngenerations = 5\nseed = 5\n")
    below = tmp_path / "one" / "two"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    return tmp_path


def search_of(**given: object) -> tuple[int, int, int, int]:
    chosen = {"preset": "smoke", "config": None, "overrides": {}, **given}
    search = Settings.merged(layer.tree for layer in layers(**chosen)).search  # type: ignore[arg-type]
    return search.migration_every, search.islands, search.generations, search.seed


def test_each_source_wins_over_those_before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert search_of() == (2, 5, 5, 5), "the preset has 2, 2, 3"
    (folder / "more.yaml").write_text("search: {islands: 6, generations: 6, migration_every: 6}")
    assert search_of(config=folder / "more.yaml") == (6, 6, 6, 5)
    monkeypatch.setenv("KBEVOLVE_SEARCH_GENERATIONS", "7")
    assert search_of(config=folder / "more.yaml") == (6, 6, 7, 5)
    assert search_of(config=folder / "more.yaml", overrides={"search.generations": 8}) == (6, 6, 8, 5)


def test_the_nearest_project_file_counts(folder: Path) -> None:
    assert project_file() == folder / "kbevolve.toml"
    (folder / "one" / "kbevolve.toml").write_text("device = 'cpu'\n")
    assert project_file() == folder / "one" / "kbevolve.toml"
    assert search_of()[1] == 2


@pytest.mark.parametrize(
    ("text", "words"), [("search = {", "not TOML"), ("[serch]\nislands = 2", "no setting 'serch'")]
)
def test_a_wrong_project_file_is_named(folder: Path, text: str, words: str) -> None:
    (folder / "kbevolve.toml").write_text(text)
    with pytest.raises(SettingsError, match=words):
        search_of()


def test_every_setting_has_a_variable_of_its_own_and_a_meaning() -> None:
    facts = setting_facts()
    assert [one.name for one in facts] == Settings.names()
    assert len({variable_of(one.name) for one in facts}) == len(facts)
    assert not {variable_of(one.name) for one in facts} & {"KBEVOLVE_ARCHIVE", "KBEVOLVE_CACHE"}
    for one in facts:
        assert len(sentence(one.meaning)) > 10, one.name


def test_facts_are_those_of_the_definition() -> None:
    facts = {one.name: one for one in setting_facts()}
    islands, precision = facts["search.islands"], facts["evaluation.precision"]
    assert (islands.type, islands.default, sentence(islands.meaning)) == ("integer 1 to 64", 4, "Number of islands")
    assert precision.type == "`fp32`, `tf32`, `fp16` or `bf16`"
    assert facts["budget.roofline_share"].type == "number > 0, ≤ 1 or null"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run: python -m docs.write_settings"
