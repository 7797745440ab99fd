"""The settings and the devices of a command."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kbevolve.configs.settings import Settings
from kbevolve.evaluators.device.devices import Device, find_device
from kbevolve.evolve.runs.evaluators import JudgeDevices, find_judge_devices
from kbevolve.evolve.strategies import fitted

#: The preset for each type of device when the user names none: on a CPU, sizes for a GPU would take hours.
PRESETS = {"cpu": "cpu", "cuda": "default"}


def settings_for(
    *, preset: str | None = None, config: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> tuple[Settings, Device]:
    """Settings, and the device that they name. Without a preset, the type of the device decides.

    Args:
        preset: settings to start from.
        config: a YAML file over them.
        overrides: ``{"section.name": value}`` over both.

    Raises:
        SettingsError: an unknown preset or setting, an unreadable file, or a value that is not allowed.
        EvaluatorError: CUDA was requested and is missing.
    """
    settings = Settings.load(preset=preset, file=config, overrides=overrides)
    device = find_device(settings.device)
    return _for_device(device, settings, preset, config, overrides), device


def settings_and_devices(
    *, preset: str | None = None, config: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> tuple[Settings, JudgeDevices]:
    """Settings of a new run, and the devices of its judges; else like `settings_for`.

    Raises:
        SettingsError: an unknown preset or setting, an unreadable file, or a value that is not allowed.
        EvaluatorError: a device is missing, no cluster answers, or the devices differ.
    """
    settings = Settings.load(preset=preset, file=config, overrides=overrides)
    devices = find_judge_devices(settings)
    return fitted(_for_device(devices.device, settings, preset, config, overrides)), devices


def _for_device(
    device: Device, settings: Settings, preset: str | None, config: Path | None, overrides: Mapping[str, Any] | None
) -> Settings:
    if preset is None:
        return Settings.load(preset=PRESETS[device.type], file=config, overrides=overrides)
    return settings
