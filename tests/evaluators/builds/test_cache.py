"""Entries of the build cache are complete, even if a writer is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from kbevolve.evaluators.builds.cache import BuildCache, CacheEntry

#: Puts entries of one megabyte until it is killed, and says when it begins.
WRITER = """
import sys
from pathlib import Path
from kbevolve.evaluators.builds.cache import BuildCache, CacheEntry
cache = BuildCache(Path(sys.argv[1]))
print("begun", flush=True)
for number in range(10**6):
    product = bytes([number % 256]) * (1 << 20)
    cache.put("library", f"{number:08d}", CacheEntry(product=product, record={"number": number}))
"""


def key(number: int) -> str:
    return f"{number:064d}"


def test_another_process_finds_an_entry(tmp_path: Path) -> None:
    BuildCache(tmp_path).put("library", key(1), CacheEntry(product=b"code", record={"log": "a warning"}))
    code = (
        "import sys; from pathlib import Path; from kbevolve.evaluators.builds.cache import BuildCache\n"
        f"print(BuildCache(Path(sys.argv[1])).get('library', '{key(1)}'))"
    )
    output = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True).stdout
    assert "b'code'" in output
    assert "a warning" in output


def test_failures_are_kept_and_kinds_are_separate(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    cache.put("library", key(1), CacheEntry(product=None, record={"log": "error"}))
    assert cache.get("library", key(1)) == CacheEntry(product=None, record={"log": "error"})
    assert cache.get("object", key(1)) is None


def test_the_first_of_two_writers_wins(tmp_path: Path) -> None:
    for text in (b"first", b"second"):
        BuildCache(tmp_path).put("library", key(1), CacheEntry(product=text))
    found = BuildCache(tmp_path).get("library", key(1))
    assert found is not None
    assert found.product == b"first"


def test_a_damaged_product_is_a_miss_and_can_be_put_again(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    cache.put("library", key(1), CacheEntry(product=b"whole"))
    next(tmp_path.rglob("product")).write_bytes(b"who")
    assert cache.get("library", key(1)) is None
    cache.put("library", key(1), CacheEntry(product=b"whole"))
    assert cache.get("library", key(1)) is not None


def test_a_killed_writer_leaves_only_complete_entries(tmp_path: Path) -> None:
    for _ in range(3):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, tmp_path], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.1)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
    cache = BuildCache(tmp_path)
    keys = [place.name for place in tmp_path.glob("library/??/*") if not place.name.startswith(".")]
    assert keys
    for name in keys:
        found = cache.get("library", name)
        assert found is not None
        assert found.product == bytes([int(name) % 256]) * (1 << 20)
        assert found.record == {"number": int(name)}


def test_the_least_recently_used_entries_are_removed_first(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path, most_bytes=10_000)
    for number in range(8):
        cache.put("library", key(number), CacheEntry(product=bytes(1500)))
        for place in tmp_path.glob(f"library/??/{key(number)}"):
            os.utime(place, (number, number))
    assert cache.get("library", key(0)) is not None  # used now
    cache.clear()
    left = [number for number in range(8) if cache.get("library", key(number)) is not None]
    assert left == [0, 5, 6, 7] or left == [0, 4, 5, 6, 7]


def test_a_directory_that_cannot_be_written_is_a_miss(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = BuildCache(tmp_path / "file")
    cache.put("library", key(1), CacheEntry(product=b"code"))
    assert cache.get("library", key(1)) is None
