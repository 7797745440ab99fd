"""Which settings and which devices a command works with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kbevolve.configs.settings import Settings
from kbevolve.evaluators.device.devices import Device, find_device
from kbevolve.evolve.runs.evaluators import Hands, find_hands
from kbevolve.evolve.strategies import fitted

#: Preset by type of device, when none is named: on a CPU the sizes meant for a GPU would take hours.
PRESETS = {"cpu": "cpu", "cuda": "default"}


def settings_for(
    *, preset: str | None = None, config: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> tuple[Settings, Device]:
    """Settings and the device they name; without a preset, its type brings one.

    Args:
        preset: settings to start from.
        config: a YAML file over them.
        overrides: ``{"section.name": value}`` over both.

    Raises:
        SettingsError: an unknown preset or setting, an unreadable file, or a value that is not allowed.
        EvaluatorError: CUDA was asked for and there is none.
    """
    settings = Settings.load(preset=preset, file=config, overrides=overrides)
    device = find_device(settings.device)
    return _for_device(device, settings, preset, config, overrides), device


def settings_and_hands(
    *, preset: str | None = None, config: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> tuple[Settings, Hands]:
    """Settings of a run and the devices that judge for it, on this machine or in a cluster; else as `settings_for`.

    Raises:
        SettingsError: an unknown preset or setting, an unreadable file, or a value that is not allowed.
        EvaluatorError: a device is not there, no cluster answers, or the devices differ.
    """
    settings = Settings.load(preset=preset, file=config, overrides=overrides)
    hands = find_hands(settings)
    return fitted(_for_device(hands.device, settings, preset, config, overrides)), hands


def _for_device(
    device: Device, settings: Settings, preset: str | None, config: Path | None, overrides: Mapping[str, Any] | None
) -> Settings:
    if preset is None:
        return Settings.load(preset=PRESETS[device.type], file=config, overrides=overrides)
    return settings
