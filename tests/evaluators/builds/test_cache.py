"""Entries of the build cache are complete, even if a writer is killed."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kbevolve.evaluators.builds.cache import BuildCache
from kbevolve.evaluators.builds.dependencies import FileDigests
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.sandbox.build_protocol import BuildResult, FailureReason, KernelResources

#: Puts entries of one megabyte until it is killed, and says when it begins.
WRITER = """
import sys
from pathlib import Path
from kbevolve.evaluators.builds.cache import BuildCache
from kbevolve.evaluators.sandbox.build_protocol import BuildResult
cache = BuildCache(Path(sys.argv[1]))
print("begun", flush=True)
for number in range(10**6):
    product = number.to_bytes(4, "big") * (1 << 18)
    cache.put("library", f"{number:08d}", BuildResult(reads={}, product=product, log=str(number)))
"""


def key(number: int) -> str:
    return f"{number:064d}"


def test_another_process_finds_an_entry(tmp_path: Path) -> None:
    BuildCache(tmp_path).put("library", key(1), BuildResult(reads={}, product=b"code", log="a warning"))
    code = (
        "import sys; from pathlib import Path; from kbevolve.evaluators.builds.cache import BuildCache\n"
        f"print(BuildCache(Path(sys.argv[1])).get('library', '{key(1)}'))"
    )
    output = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True).stdout
    assert "b'code'" in output
    assert "a warning" in output


def test_all_but_the_seconds_is_kept(tmp_path: Path) -> None:
    kernel = KernelResources(name="_Z4relu", registers=10, spill_stores=4)
    result = BuildResult(
        reads={}, product=b"code", log="a warning", resources=(kernel,), traits=(), light=("main.cpp",)
    )
    BuildCache(tmp_path).put("object", key(1), result)
    assert BuildCache(tmp_path).get("object", key(1)) == result


def test_failures_of_the_request_are_kept_in_memory_and_kinds_are_separate(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    cache.put("library", key(1), BuildResult(product=None, log="error"))
    cache.put("library", key(2), BuildResult(product=None, why=FailureReason.MEMORY))
    assert cache.get("library", key(1)) == BuildResult(product=None, log="error")
    assert cache.get("library", key(2)) is None
    assert cache.get("object", key(1)) is None
    assert BuildCache(tmp_path).get("library", key(1)) is None


def _edited(path: Path, **values: object) -> None:
    tree = json.loads(path.read_text())
    tree["value"] |= values
    path.write_text(json.dumps(tree))


@pytest.mark.parametrize(
    "damage",
    [
        lambda record, other, product: product.write_bytes(b"who"),
        lambda record, other, product: product.write_bytes(b"WHOLE"),
        lambda record, other, product: product.unlink(),
        lambda record, other, product: (product.unlink(), product.symlink_to("/dev/zero")),
        lambda record, other, product: (product.unlink(), os.mkfifo(product)),
        lambda record, other, product: record.write_text('{"key": "other"}'),
        lambda record, other, product: record.write_bytes(record.read_bytes()[:-20]),
        lambda record, other, product: record.write_bytes(other.read_bytes()),
        lambda record, other, product: record.write_text(other.read_text().replace(key(2), key(1))),
        lambda record, other, product: _edited(record, product=json.loads(other.read_text())["value"]["product"]),
        lambda record, other, product: _edited(record, log="another log"),
        lambda record, other, product: _edited(record, product="../library/kept.json"),
        lambda record, other, product: _edited(record, resources=[[1]], digest="0"),
        lambda record, other, product: record.write_text(json.dumps({"key": key(1), "value": [1]})),
        lambda record, other, product: record.write_text("[" * 100_000),
    ],
)
def test_a_changed_entry_is_a_miss_and_can_be_put_again(tmp_path: Path, damage: Callable[..., object]) -> None:
    cache = BuildCache(tmp_path)
    whole = BuildResult(product=b"whole", reads={})
    cache.put("library", key(1), whole)
    cache.put("library", key(2), BuildResult(product=b"other", reads={}))
    (tmp_path / "library" / "kept.json").write_text("another file")
    record, other = (DiskCache(tmp_path).path("library", key(number)) for number in (1, 2))
    product = tmp_path / "product" / hashlib.sha256(b"whole").hexdigest()
    damage(record, other, product)
    assert BuildCache(tmp_path).get("library", key(1)) is None
    assert (tmp_path / "library" / "kept.json").exists()
    cache.put("library", key(1), whole)
    for found in (cache, BuildCache(tmp_path)):
        assert found.get("library", key(1)) == whole


def test_an_entry_is_outdated_when_a_file_that_was_read_changes(tmp_path: Path) -> None:
    header, folder = tmp_path / "x.h", tmp_path / "include"
    header.write_text("#define X 1")
    folder.mkdir()
    digests = FileDigests()
    reads = {str(header): digests.of(str(header)), str(folder): digests.of(str(folder)), "own.h": "1"}
    whole = BuildResult(product=b"whole", reads=reads)
    cache = BuildCache(tmp_path / "cache")

    def known(own: str = "1") -> bool:
        cache.put("object", key(1), whole)
        return cache.get("object", key(1), {"own.h": own}) is not None

    assert known()
    assert not known("2")
    header.write_text("#define X 2")
    assert not known()
    header.write_text("#define X 1")
    assert known()
    (folder / "new.h").write_text("")
    assert not known()
    (folder / "new.h").unlink()
    assert known()
    header.unlink()
    assert not known()
    header.mkdir()
    assert not known()


def test_a_product_of_unknown_reads_is_not_kept(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    cache.put("library", key(1), BuildResult(product=b"code"))
    assert cache.get("library", key(1)) is None
    assert not list(tmp_path.iterdir())


def test_a_killed_writer_leaves_only_complete_entries(tmp_path: Path) -> None:
    for _ in range(3):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, tmp_path], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.1)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
    cache = BuildCache(tmp_path)
    records = [path for path in tmp_path.glob("library/*") if not path.name.startswith(".")]
    assert records
    for number in range(len(records)):
        found = cache.get("library", f"{number:08d}")
        assert found == BuildResult(reads={}, product=number.to_bytes(4, "big") * (1 << 18), log=str(number))


def test_the_least_recently_used_files_are_removed_first(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path, most_bytes=12_000)
    for number in range(8):
        cache.put("library", key(number), BuildResult(reads={}, product=bytes([number]) * 1500))
        for path in (*tmp_path.glob("library/*"), *tmp_path.glob("product/*")):
            if path.stat().st_mtime > 1000:
                os.utime(path, (number, number))
    assert cache.get("library", key(0)) is not None  # used now
    cache.clear()
    left = [number for number in range(8) if cache.get("library", key(number)) is not None]
    assert left[0] == 0
    assert left[1:] == list(range(8 - len(left) + 1, 8))
    assert 3 <= len(left) < 8


def test_a_directory_that_cannot_be_written_is_a_miss(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = BuildCache(tmp_path / "file")
    cache.put("library", key(1), BuildResult(reads={}, product=b"code"))
    assert cache.get("library", key(1)) is None
