"""Products by the name of their content, on disk: built once on this machine, by whichever process came first.

An entry is a folder that is renamed into place when it is complete, so a reader sees all of it or nothing, whenever a
writer was killed. A product's digest is kept beside it and looked at on every reading.
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

#: Bytes kept by default; what was not used for longest goes first. A library has 0.1 to 3 MB.
MOST_BYTES = 4 << 30
#: When it grew beyond that, this share is kept, so that not every entry starts a clearing.
_KEPT_SHARE = 0.8
#: Entries put between two looks at the size: looking takes a few milliseconds for thousands of entries.
_LOOK_EVERY = 32
#: Seconds after which an unfinished folder is taken for a dead writer's.
_STALE_SECONDS = 3600.0
_PRODUCT, _RECORD = "product", "record.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntry:
    """What is kept under one key."""

    #: None for a failure.
    product: bytes | None
    #: Plain values: the compiler's words, resources, seconds.
    record: dict[str, Any] = field(default_factory=dict)


class BuildCache:
    """Entries by kind and key; safe for several threads and processes."""

    def __init__(self, directory: Path, *, most_bytes: int = MOST_BYTES) -> None:
        """Nothing is created before something is put there."""
        self.directory = directory
        self._most_bytes = most_bytes
        self._puts = 0
        self._lock = threading.Lock()

    def get(self, kind: str, key: str) -> CacheEntry | None:
        """What was put there, None when there is nothing or nothing whole."""
        place = self._place(kind, key)
        try:
            record = json.loads((place / _RECORD).read_text())
            digest = record.pop("digest")
            product = None if digest is None else (place / _PRODUCT).read_bytes()
        except (OSError, ValueError, KeyError, AttributeError):
            return None
        if product is not None and hashlib.sha256(product).hexdigest() != digest:
            self._discard(place)
            return None
        with contextlib.suppress(OSError):
            os.utime(place)
        return CacheEntry(product=product, record=record)

    def put(self, kind: str, key: str, entry: CacheEntry) -> None:
        """Keep an entry; one that is there already stays. A directory that cannot be written to is no error."""
        place = self._place(kind, key)
        digest = None if entry.product is None else hashlib.sha256(entry.product).hexdigest()
        with contextlib.suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            unfinished = Path(tempfile.mkdtemp(prefix=".", dir=place.parent))
            try:
                if entry.product is not None:
                    (unfinished / _PRODUCT).write_bytes(entry.product)
                (unfinished / _RECORD).write_text(json.dumps({**entry.record, "digest": digest}))
                unfinished.rename(place)  # fails where there is one already
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
        with self._lock:
            self._puts += 1
            due = self._puts % _LOOK_EVERY == 1
        if due:
            self.clear()

    def clear(self) -> None:
        """Remove what was not used for longest until the rest fits, and what dead writers left."""
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
        """Out of sight at once, then piece by piece."""
        with contextlib.suppress(OSError):
            grave = place.with_name(f".{place.name}-{os.getpid()}-{threading.get_ident()}")
            place.rename(grave)
            shutil.rmtree(grave, ignore_errors=True)

    def _place(self, kind: str, key: str) -> Path:
        return self.directory / kind / key[:2] / key
