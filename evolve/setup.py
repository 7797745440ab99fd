"""Which settings and which device a command works with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kbevolve.configs.settings import Settings
from kbevolve.evaluators.devices import Device, find_device

#: Taken by itself on a CPU, where the defaults' sizes would take hours.
CPU_PRESET = "cpu"


def settings_for(
    *, preset: str | None = None, config: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> tuple[Settings, Device]:
    """Settings and the device they name; without a preset, a CPU brings its own.

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
    if preset is None and device.type == "cpu":
        settings = Settings.load(preset=CPU_PRESET, file=config, overrides=overrides)
    return settings, device
