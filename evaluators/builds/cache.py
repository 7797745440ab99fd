"""Build products on disk by a digest of their request: built once on this machine, by the first process.

An entry is a folder that is renamed into place when it is complete, so a reader sees all of it or nothing, even if a
writer is killed. Every `get` checks the product against its digest.
"""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Bytes kept by default; the least recently used entries are removed first. A library has 0.1 to 3 MB.
MOST_BYTES = 4 << 30
#: The share that is kept when it has grown larger, so that not every `put` removes entries.
_KEPT_SHARE = 0.8
#: Number of `put` calls between two checks of the size, which takes a few milliseconds for thousands of entries.
_CHECK_EVERY = 32
#: Seconds after which an unfinished folder counts as a dead writer's.
_STALE_SECONDS = 3600.0
_PRODUCT, _RECORD = "product", "record.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntry:
    """The value of one key."""

    #: None for a failure.
    product: bytes | None
    #: Plain values: the compiler's output, resources, seconds.
    record: dict[str, Any] = field(default_factory=dict)


class BuildCache:
    """Entries by kind and key, for several threads and processes."""

    def __init__(self, directory: Path, *, most_bytes: int = MOST_BYTES) -> None:
        """Nothing is created before the first `put`."""
        self.directory = directory
        self._most_bytes = most_bytes
        self._puts = 0
        self._lock = threading.Lock()

    def get(self, kind: str, key: str) -> CacheEntry | None:
        """The entry; None when there is none, or a damaged one."""
        folder = self._folder(kind, key)
        try:
            record = json.loads((folder / _RECORD).read_text())
            digest = record.pop("digest")
            product = None if digest is None else (folder / _PRODUCT).read_bytes()
        except (OSError, ValueError, KeyError, AttributeError):
            return None
        if product is not None and hashlib.sha256(product).hexdigest() != digest:
            self._discard(folder)
            return None
        with contextlib.suppress(OSError):
            os.utime(folder)
        return CacheEntry(product=product, record=record)

    def put(self, kind: str, key: str, entry: CacheEntry) -> None:
        """Keep an entry, unless there is one. A directory that cannot be written to is no error."""
        folder = self._folder(kind, key)
        digest = None if entry.product is None else hashlib.sha256(entry.product).hexdigest()
        with contextlib.suppress(OSError):
            folder.parent.mkdir(parents=True, exist_ok=True)
            unfinished = Path(tempfile.mkdtemp(prefix=".", dir=folder.parent))
            try:
                if entry.product is not None:
                    (unfinished / _PRODUCT).write_bytes(entry.product)
                (unfinished / _RECORD).write_text(json.dumps({**entry.record, "digest": digest}))
                unfinished.rename(folder)  # fails when there is one
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
        with self._lock:
            self._puts += 1
            due = self._puts % _CHECK_EVERY == 1
        if due:
            self.clear()

    def clear(self) -> None:
        """Remove the least recently used entries until the rest fits, and what dead writers left."""
        found = []
        for place in self.directory.glob("*/??/*"):
            with contextlib.suppress(OSError):
                size = sum(file.stat().st_size for file in place.iterdir())
                found.append((place.stat().st_mtime, size, place))
        newest = max((used for used, _, _ in found), default=0.0)
        total = sum(size for _, size, _ in found)
        room = self._most_bytes if total <= self._most_bytes else int(self._most_bytes * _KEPT_SHARE)
        for used, size, place in sorted(found):
            unfinished = place.name.startswith(".") and used < newest - _STALE_SECONDS
            if unfinished or (total > room and not place.name.startswith(".")):
                self._discard(place)
                total -= size

    def _discard(self, place: Path) -> None:
        """Rename it, so that no reader finds a part of it, then remove it."""
        with contextlib.suppress(OSError):
            discarded = place.with_name(f".{place.name}-{os.getpid()}-{threading.get_ident()}")
            place.rename(discarded)
            shutil.rmtree(discarded, ignore_errors=True)

    def _folder(self, kind: str, key: str) -> Path:
        return self.directory / kind / key[:2] / key
