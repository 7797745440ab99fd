"""`kbevolve settings`: every setting with its type, default, value now, and where the value comes from."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import click
from rich.text import Text

from kbevolve.configs.errors import UsageError, nearest
from kbevolve.configs.layers import Layer, variable_of
from kbevolve.configs.setting_facts import SettingFacts, sentence, setting_facts
from kbevolve.configs.settings import Settings
from kbevolve.evolve.cli.completion import complete_settings
from kbevolve.evolve.cli.options import json_option
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.json import print_json
from kbevolve.evolve.cli.render.tables import Column, print_fields, print_table
from kbevolve.evolve.cli.settings_options import SettingsChoice, settings_options
from kbevolve.evolve.runs.settings import layered_settings

#: A setting, its value now, and the source of the value.
_Shown = tuple[SettingFacts, Any, str]
_COLUMNS: tuple[Column[_Shown], ...] = (
    Column("setting", lambda one: one[0].name),
    Column(
        "value",
        lambda one: Text(value_words(one[1]), style="bold" if one[1] != one[0].default else ""),
        flexible=True,
    ),
    Column("default", lambda one: value_words(one[0].default) if one[1] != one[0].default else "", least_width=120),
    Column("from", lambda one: one[2], least_width=100),
    Column("what it is", lambda one: sentence(one[0].meaning), flexible=True),
)


@click.command(epilog="Example: kbevolve settings search evaluation.precision")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_settings)
@json_option
@settings_options
def settings(names: tuple[str, ...], choice: SettingsChoice, as_json: bool) -> None:
    """List the settings that a new run would have here, with the same options as `kbevolve run`.

    NAME is a setting (search.islands) or a section (search). One setting is explained in full.
    """
    found, _, layers = layered_settings(preset=choice.preset, config=choice.config, overrides=choice.overrides)
    shown = list(_chosen(names, found, layers))
    if as_json:
        print_json([_object(*one) for one in shown])
    elif len(shown) == 1:
        ((facts, value, source),) = shown
        fields = {**_object(facts, value, source), "default": value_words(facts.default), "value": value_words(value)}
        print_fields(Console(), {name: str(field) for name, field in fields.items()})
    else:
        print_table(Console(), _COLUMNS, shown)


def value_words(value: Any) -> str:
    """A value as ``--set`` takes it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _chosen(names: Sequence[str], settings: Settings, layers: Sequence[Layer]) -> Iterator[_Shown]:
    every, values = setting_facts(), settings.model_dump(mode="json")
    known = [facts.name for facts in every]
    for name in names:
        if name not in known and not any(one.startswith(f"{name}.") for one in known):
            raise UsageError(f"no setting {name!r}. {nearest(name, known)}")
    for facts in every:
        if not names or any(facts.name == name or facts.name.startswith(f"{name}.") for name in names):
            section, _, field = facts.name.rpartition(".")
            value = (values[section] if section else values)[field]
            yield facts, value, _source(facts, value, layers)


def _source(facts: SettingFacts, value: Any, layers: Sequence[Layer]) -> str:
    given = next((layer.source for layer in reversed(layers) if layer.gives(facts.name)), None)
    # The default of `search.islands` follows from the budget, and some strategies fix it.
    return given or ("default" if value == facts.default else "other settings")


def _object(facts: SettingFacts, value: Any, source: str) -> dict[str, Any]:
    return {
        "name": facts.name,
        "type": facts.type.replace("`", ""),
        "default": facts.default,
        "value": value,
        "source": source,
        "variable": variable_of(facts.name),
        "meaning": facts.meaning,
    }
