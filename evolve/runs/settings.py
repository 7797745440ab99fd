"""The settings and the devices of a command."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kbevolve.configs.settings import Settings
from kbevolve.evolve.runs.evaluators import JudgeDevices, find_judge_devices
from kbevolve.evolve.strategies import fitted

#: The preset for each type of device when the user names none: on a CPU, sizes for a GPU would take hours.
PRESETS = {"cpu": "cpu", "cuda": "default"}


def settings_and_devices(
    *, preset: str | None = None, config: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> tuple[Settings, JudgeDevices]:
    """Settings of a new run, and the devices of its judges.

    A YAML file overrides a preset, and ``{"section.name": value}`` overrides both. Without a preset, the type of the
    devices names it.

    Raises:
        SettingsError: an unknown preset or setting, an unreadable file, or a value that is not allowed.
        EvaluatorError: a device is missing, no cluster answers, or the devices differ.
    """
    settings = Settings.load(preset=preset, file=config, overrides=overrides)
    devices = find_judge_devices(settings)
    if preset is None:
        settings = Settings.load(preset=PRESETS[devices.device.type], file=config, overrides=overrides)
    return fitted(settings), devices
