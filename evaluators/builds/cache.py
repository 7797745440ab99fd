"""Build products on disk by a digest of their request: built once on this machine, by the first process.

A record names its product by the digest of the bytes, and both files are renamed into place, so a reader sees all of an
entry or nothing, even if a writer is killed. Every `get` checks the product against its digest.
"""

import contextlib
import hashlib
import os
import threading
from dataclasses import asdict, replace
from pathlib import Path

from kbevolve.evaluators.builds.traits import traits_of
from kbevolve.evaluators.disk_cache import DiskCache, write_whole
from kbevolve.evaluators.sandbox.build_protocol import BuildResult, FailureReason, KernelResources

#: Bytes kept by default; the least recently used files are removed first. A library has 0.1 to 3 MB.
MOST_BYTES = 4 << 30
#: The share that is kept when it has grown larger, so that not every `put` removes files.
_KEPT_SHARE = 0.8
#: Number of `put` calls between two checks of the size, which takes a few milliseconds for thousands of files.
_CHECK_EVERY = 32


class BuildCache:
    """Results of builds by kind ("object", "library") and key, for several threads and processes."""

    def __init__(self, directory: Path, *, most_bytes: int = MOST_BYTES) -> None:
        """Nothing is created before the first `put`."""
        self.directory = directory
        self._records = DiskCache(directory)
        self._most_bytes = most_bytes
        self._puts = 0
        self._lock = threading.Lock()

    def get(self, kind: str, key: str) -> BuildResult | None:
        """The result, for which no compiler ran this time; None when there is none, or a damaged one."""
        record = self._records.get(kind, key)
        try:
            known = BuildResult(
                product=self._product(record["product"]),
                log=record["log"],
                resources=tuple(KernelResources(**kernel) for kernel in record["resources"]),
                traits=traits_of(record["traits"]),
                light=tuple(record["light"]),
            )
        except (OSError, KeyError, TypeError):
            return None
        _touch(self._records.path(kind, key))
        return known

    def put(self, kind: str, key: str, result: BuildResult) -> None:
        """Keep a result, but no failure of the machine. A directory that cannot be written to is no error."""
        if result.product is None and result.why is not FailureReason.ERROR:
            return
        record = asdict(replace(result, product=None))
        if result.product is not None:
            record["product"] = hashlib.sha256(result.product).hexdigest()
            with contextlib.suppress(OSError):
                write_whole(self._product_path(record["product"]), result.product)
        self._records.put(kind, key, record)
        with self._lock:
            self._puts += 1
            due = self._puts % _CHECK_EVERY == 1
        if due:
            self.clear()

    def clear(self) -> None:
        """Remove the least recently used files until the rest fits."""
        found = []
        for kind in ("object", "library", "product"):
            for path in (self.directory / kind).rglob("*"):
                with contextlib.suppress(OSError):
                    if path.is_file():
                        found.append((path.stat().st_mtime, path.stat().st_size, path))
        total = sum(size for _, size, _ in found)
        room = self._most_bytes if total <= self._most_bytes else self._most_bytes * _KEPT_SHARE
        for _, size, path in sorted(found):
            if total <= room:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size

    def _product(self, digest: str | None) -> bytes | None:
        """Raises OSError: it is gone or damaged."""
        if digest is None:
            return None
        path = self._product_path(digest)
        product = path.read_bytes()
        if hashlib.sha256(product).hexdigest() != digest:
            path.unlink(missing_ok=True)
            raise OSError("a damaged product")
        _touch(path)
        return product

    def _product_path(self, digest: str) -> Path:
        return self.directory / "product" / digest


def _touch(path: Path) -> None:
    """Mark a file as used now."""
    with contextlib.suppress(OSError):
        os.utime(path)
