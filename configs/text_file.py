"""A file that the user named: read whole, or refused in one line."""

from pathlib import Path
from typing import Any

import yaml

from kbevolve.configs.errors import SettingsError, UsageError


def read_text(path: Path, *, option: str, wants: str, error: type[UsageError] = UsageError) -> str:
    """The text of a file in UTF-8.

    Args:
        path: the file.
        option: what named it, e.g. ``"--start"``.
        wants: what that option wants, e.g. ``"file with class ModelNew"``.
        error: the class of the exception.

    Raises:
        UsageError: the file is missing, is a directory, is not readable, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as failure:
        raise error(f"{path}: {failure.strerror}; {option} wants a {wants}") from None
    except UnicodeDecodeError as failure:
        byte = failure.object[failure.start]
        raise error(
            f"{path}: byte 0x{byte:02x} at position {failure.start} is not UTF-8; {option} wants a UTF-8 {wants}"
        ) from None


def read_yaml(path: Path, *, option: str, wants: str) -> Any:
    """What a YAML file holds; the arguments are those of `read_text`.

    Raises:
        SettingsError: the file cannot be read, or is not YAML.
    """
    try:
        return yaml.safe_load(read_text(path, option=option, wants=wants, error=SettingsError))
    except yaml.YAMLError as error:
        raise SettingsError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
