"""Build products on disk by a digest of their request: built once on this machine, by the first process.

Only the judge writes here. A record holds a digest of itself, and names its product and the list of files that the
compilers read by theirs. All are renamed into place, so a reader sees all of an entry or nothing, even if a writer is
killed. Every `get` checks the digests, and that the files which were read are as they were; otherwise the entry is
removed, and its request built again.
"""

import contextlib
import hashlib
import json
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kbevolve.evaluators.builds.dependencies import DIGESTS, Reads
from kbevolve.evaluators.builds.traits import traits_of
from kbevolve.evaluators.disk_cache import DiskCache, write_whole
from kbevolve.evaluators.sandbox.build_protocol import BuildResult, FailureReason, KernelResources

#: Bytes kept by default; the least recently used files are removed first. A library has 0.1 to 3 MB.
MOST_BYTES = 4 << 30
#: The share that is kept when it has grown larger, so that not every `put` removes files.
_KEPT_SHARE = 0.8
#: Bytes of one file.
_MOST_FILE = 64 << 20
#: Failures in memory, and lists of files that were read; a list of torch's headers has some 2500.
_MOST_FAILURES = 64
_MOST_LISTS = 16
_DIGEST = re.compile("[0-9a-f]{64}")
EMPTY: Mapping[str, str] = MappingProxyType({})
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
        self._failures: dict[str, BuildResult] = {}
        self._lists: dict[str, Reads] = {}
        self._lock = threading.Lock()

    def get(self, kind: str, key: str, files: Mapping[str, str] = EMPTY) -> BuildResult | None:
        """The result, for which no compiler ran this time; None for none, or a damaged or outdated one.

        `files`: digests of the request's files, where they are not part of the key.
        """
        failed = self._failures.get(f"{kind} {key}")
        record = self._records.get(kind, key)
        if failed is not None or record is None:
            return failed
        try:
            if record["digest"] != _digest_of(kind, key, record):
                raise ValueError("a damaged record")
            reads = self._reads(record["reads"])
            if not DIGESTS.unchanged(reads, files):
                raise ValueError("an outdated record")
            known = BuildResult(
                product=self._file(record["product"]),
                log=record["log"],
                resources=tuple(KernelResources(**kernel) for kernel in record["resources"]),
                traits=traits_of(record["traits"]),
                light=tuple(record["light"]),
                reads=reads,
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            with contextlib.suppress(OSError):
                self._records.path(kind, key).unlink()
            return None
        for path in (self._records.path(kind, key), self._path(record["reads"])):
            _touch(path)
        return known

    def put(self, kind: str, key: str, result: BuildResult) -> None:
        """Keep a result: on disk, or an error of the request in memory. A directory that is not writable is no error.

        Not kept are failures of the machine, and products of which it is unknown what compilers read for them.
        """
        if result.product is None:
            if result.why is FailureReason.ERROR:
                with self._lock:
                    self._failures[f"{kind} {key}"] = replace(result, seconds=0.0)
                    while len(self._failures) > _MOST_FAILURES:
                        del self._failures[next(iter(self._failures))]
            return
        if result.reads is None:
            return
        record = asdict(replace(result, product=None, reads=None, seconds=0.0))
        reads = json.dumps(dict(sorted(result.reads.items()))).encode()
        for name, content in (("product", result.product), ("reads", reads)):
            record[name] = hashlib.sha256(content).hexdigest()
            with contextlib.suppress(OSError):
                if not self._is_whole(record[name]):
                    write_whole(self._path(record[name]), content)
        self._records.put(kind, key, record | {"digest": _digest_of(kind, key, record)})
        with self._lock:
            self._puts += 1
            due = self._puts % _CHECK_EVERY == 1
        if due:
            self.clear()

    def clear(self) -> None:
        """Remove the least recently used files until the rest fits."""
        found = []
        for kind in ("object", "library", "triton", "product"):
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

    def _reads(self, digest: str) -> Reads:
        """A list of files; most kernels have read the same headers."""
        known = self._lists.get(digest)
        if known is None:
            known = json.loads(self._file(digest))
            with self._lock:
                self._lists[digest] = known
                while len(self._lists) > _MOST_LISTS:
                    del self._lists[next(iter(self._lists))]
        return known

    def _file(self, digest: str) -> bytes:
        """Raises OSError: it is gone or damaged."""
        path = self._path(digest)
        if not path.is_file() or path.stat().st_size > _MOST_FILE:
            raise OSError("no file of the judge's")
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            path.unlink(missing_ok=True)
            raise OSError("a damaged file")
        _touch(path)
        return content

    def _is_whole(self, digest: str) -> bool:
        try:
            return bool(self._file(digest))
        except OSError:
            return False

    def _path(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise ValueError("a record that names another file")
        return self.directory / "product" / digest


def _digest_of(kind: str, key: str, record: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in record.items() if name != "digest"}
    return hashlib.sha256(json.dumps((kind, key, rest), sort_keys=True).encode(errors="surrogatepass")).hexdigest()


def _touch(path: Path) -> None:
    """Mark a file as used now."""
    with contextlib.suppress(OSError):
        os.utime(path)
