"""The settings and the devices of a command."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kbevolve.configs.layers import Layer, layers
from kbevolve.configs.settings import Settings
from kbevolve.evolve.runs.evaluators import JudgeDevices, find_judge_devices
from kbevolve.evolve.strategies import fitted

#: The preset for each type of device when the user names none: on a CPU, sizes for a GPU would take hours.
PRESETS = {"cpu": "cpu", "cuda": "default"}


def settings_and_devices(
    *, preset: str | None = None, config: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> tuple[Settings, JudgeDevices]:
    """Settings of a new run, and the devices of its judges, which the caller opens soon.

    `layered_settings` has the arguments and errors.
    """
    settings, devices, _ = layered_settings(preset=preset, config=config, overrides=overrides, judged=True)
    return settings, devices


def layered_settings(
    *,
    preset: str | None = None,
    config: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    judged: bool = False,
) -> tuple[Settings, JudgeDevices, list[Layer]]:
    """Settings of a new run, the devices of its judges, and the layers that the settings come from.

    `configs.layers` has the order. Without a preset, the type of the devices names it. `judged`: whether judges will be
    opened, whose first process is started at once.

    Raises:
        SettingsError: an unknown preset or setting, an unreadable file, or a value that is not allowed.
        EvaluatorError: a device is missing, no cluster answers, or the devices differ.
    """
    found = layers(preset=preset, config=config, overrides=overrides or {})
    settings = Settings.merged(layer.tree for layer in found)
    devices = find_judge_devices(settings, judged=judged)
    if preset is None:
        found = layers(preset=PRESETS[devices.device.type], config=config, overrides=overrides or {})
        settings = Settings.merged(layer.tree for layer in found)
    return fitted(settings), devices, found
