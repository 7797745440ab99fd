"""Where settings come from: layers of a tree, each above the one before.

Defaults < preset < ``kbevolve.toml`` < ``--config`` < environment < ``--set`` and short options. The project's file is
the ``kbevolve.toml`` in the working directory, or in the nearest directory above it that has one. The variable of
``search.islands`` is ``KBEVOLVE_SEARCH_ISLANDS``; its value is read as YAML.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kbevolve.configs.errors import SettingsError
from kbevolve.configs.settings import Settings, nested, read_settings
from kbevolve.configs.text_file import read_text

PROJECT_FILE = "kbevolve.toml"


@dataclass(frozen=True, slots=True)
class Layer:
    """Some settings, and what gives them."""

    #: e.g. "preset cpu", "kbevolve.toml", "KBEVOLVE_DEVICE", "command line".
    source: str
    #: Nested dictionaries.
    tree: Mapping[str, Any]

    def gives(self, name: str) -> bool:
        """Whether it has a value for a setting (dotted)."""
        found: Any = self.tree
        for part in name.split("."):
            if not isinstance(found, Mapping) or part not in found:
                return False
            found = found[part]
        return True


def layers(*, preset: str | None, config: Path | None, overrides: Mapping[str, Any]) -> list[Layer]:
    """The layers above the defaults, the lowest first.

    Args:
        preset: its name; None for no preset.
        config: a YAML file; None for no file.
        overrides: dotted names and values of the command line.

    Raises:
        SettingsError: an unknown preset, or a file that cannot be read.
    """
    found = [Layer(f"preset {preset}", Settings.preset(preset))] if preset else []
    if (file := project_file()) is not None:
        found.append(Layer(str(file), _read_toml(file)))
    if config is not None:
        found.append(Layer(str(config), read_settings(config)))
    found += _environment(os.environ)
    found += [Layer("command line", nested(name, value)) for name, value in overrides.items()]
    return found


def project_file() -> Path | None:
    """The nearest `kbevolve.toml`, in the working directory or above; None without one."""
    here = Path.cwd()
    return next((file for folder in (here, *here.parents) if (file := folder / PROJECT_FILE).is_file()), None)


def variable_of(name: str) -> str:
    """The environment variable of a setting: ``KBEVOLVE_SEARCH_ISLANDS``."""
    return f"KBEVOLVE_{name.upper().replace('.', '_')}"


def _environment(environ: Mapping[str, str]) -> Iterator[Layer]:
    for name in Settings.names():
        if (text := environ.get(variable_of(name))) is not None:
            yield Layer(variable_of(name), nested(name, yaml.safe_load(text)))


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(file, option=PROJECT_FILE, wants="TOML file of settings", error=SettingsError))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file}: not TOML: {error}") from None
