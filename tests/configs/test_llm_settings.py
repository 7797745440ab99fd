"""Which models a run asks, as settings and as options; what is written down of their addresses."""

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from kbevolve.configs.errors import SettingsError
from kbevolve.configs.settings import LLMSettings, Settings
from kbevolve.evolve.cli.settings_options import model_option


def models_of(*words: str) -> dict[str, Any]:
    """The overrides that the words of a command line mean."""
    found: dict[str, Any] = {}

    @click.command()
    @model_option
    def command(models: dict[str, Any]) -> None:
        found.update(models)

    done = CliRunner().invoke(command, words)
    if done.exit_code:
        raise SettingsError(done.output)
    return found


def test_no_model_is_named() -> None:
    assert models_of() == {}


def test_one_model_is_the_short_way() -> None:
    settings = Settings.load(overrides=models_of("--model", "gpt-5"))
    assert (settings.llm.model, settings.llm.models) == ("gpt-5", ())
    assert Settings.load(overrides=models_of("--model", "gpt-5=3")) == settings


def test_several_models_have_weights() -> None:
    llm = Settings.load(overrides=models_of("--model", "org/large:70b=2.5", "--model", "small")).llm
    assert [(model.name, model.weight) for model in llm.models] == [("org/large:70b", 2.5), ("small", 1.0)]
    assert llm.model is None


@pytest.mark.parametrize("words", [("--model", "a"), ("--model", "a", "--model", "b")])
def test_the_option_replaces_what_a_file_names(words: tuple[str, ...], tmp_path: Path) -> None:
    for text in ("llm:\n  model: x\n", "llm:\n  models: [{name: x}, {name: y}]\n"):
        (tmp_path / "settings.yaml").write_text(text)
        llm = Settings.load(file=tmp_path / "settings.yaml", overrides=models_of(*words)).llm
        assert "x" not in [llm.model, *(model.name for model in llm.models)]


@pytest.mark.parametrize(
    ("words", "complaint"), [(("--model", "a=b"), "'b' is not a weight"), (("--model", "a="), "'' is not a weight")]
)
def test_a_weight_is_a_number(words: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        models_of(*words)


@pytest.mark.parametrize(
    ("llm", "complaint"),
    [
        ({"model": "a", "models": [{"name": "b"}]}, "set one"),
        ({"models": [{"name": "b"}, {"name": "b"}]}, "there twice"),
        ({"models": [{"name": "b", "weight": 0}]}, "llm.models.0.weight = 0"),
        ({"models": [{"name": "b", "weight": float("inf")}]}, "llm.models.0.weight"),
        ({"models": [{"name": ""}]}, "llm.models.0.name"),
        ({"requests_per_minute": 0}, "llm.requests_per_minute = 0"),
        ({"parallel": 0}, "llm.parallel = 0"),
    ],
)
def test_what_cannot_be_is_said(llm: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint) as caught:
        Settings.from_tree({"llm": llm})
    assert "\n" not in str(caught.value)


def test_each_model_has_settings_of_its_own() -> None:
    llm = LLMSettings.model_validate(
        {
            "api_base": "http://127.0.0.1:1/v1", "temperature": 0.5, "retries": 1,
            "models": [{"name": "a", "temperature": 0.0, "max_tokens": 512}, {"name": "b", "api_base": "http://127.0.0.1:2/v1"}],
        }
    )  # fmt: skip
    first, second = llm.each()
    assert (first.model, first.api_base, first.temperature, first.max_tokens) == (
        "a", "http://127.0.0.1:1/v1", 0.0, 512,
    )  # fmt: skip
    assert (second.model, second.api_base, second.temperature, second.max_tokens) == (
        "b", "http://127.0.0.1:2/v1", 0.5, 16000,
    )  # fmt: skip
    assert {one.retries for one in (first, second)} == {1}
    assert LLMSettings(model="c").each() == (LLMSettings(model="c"),)


@pytest.mark.parametrize(
    ("address", "written"),
    [
        ("http://me:secretword@127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
        ("https://secretword@host/v1//x", "https://host/v1//x"),
        ("https://me:p@secretword@host", "https://host"),
        ("me:secretword@host/v1", "host/v1"),
        ("https://host/v1?who=me@here", "https://host/v1?who=me@here"),
        ("https://host/v1", "https://host/v1"),
    ],
)
def test_what_is_written_down_of_an_address_has_no_password(address: str, written: str) -> None:
    settings = Settings.from_tree({"llm": {"api_base": address, "models": [{"name": "a", "api_base": address}]}})
    assert settings.llm.api_base == settings.llm.each()[0].api_base == address, "it is used as it was given"
    kept = settings.model_dump(mode="json")["llm"]
    assert kept["api_base"] == kept["models"][0]["api_base"] == written
    assert "secret" not in settings.model_dump_json()
