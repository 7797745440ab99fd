"""A directory of small JSON files: measurements that this machine needs only once.

A file that cannot be read is a miss, and a value that cannot be written is measured again. Workers cannot reach it.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from kbevolve.configs.cache_directory import default_directory

#: Hexadecimal digits of a file's name. 96 bits keep keys apart, and the key in the file is compared, too.
_NAME_DIGITS = 24


class DiskCache:
    """Plain values on disk by kind and key, for several processes at once."""

    def __init__(self, directory: Path | None = None) -> None:
        """The default is `default_directory()`. Nothing is created before the first `put`."""
        self.directory = default_directory() if directory is None else directory

    def get(self, kind: str, key: str) -> Any:
        """The value of this kind and key; None when there is none, or none readable."""
        try:
            entry = json.loads(self.path(kind, key).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(entry, dict) or entry.get("key") != key:
            return None
        return entry.get("value")

    def put(self, kind: str, key: str, tree: Any) -> None:
        """Keep a value, instead of an earlier one. A directory that cannot be written to is no error."""
        text = json.dumps({"key": key, "value": tree}, indent=1)
        with contextlib.suppress(OSError):
            write_whole(self.path(kind, key), text.encode())

    def path(self, kind: str, key: str) -> Path:
        """The file of this kind and key."""
        return self.directory / kind / f"{hashlib.sha256(key.encode()).hexdigest()[:_NAME_DIGITS]}.json"


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is renamed into place, so that a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=path.suffix)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
