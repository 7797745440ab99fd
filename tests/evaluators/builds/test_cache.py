"""Entries of the build cache are complete, even if a writer is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from kbevolve.evaluators.builds.cache import BuildCache
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
    cache.put("library", f"{number:08d}", BuildResult(product=product, log=str(number)))
"""


def key(number: int) -> str:
    return f"{number:064d}"


def test_another_process_finds_an_entry(tmp_path: Path) -> None:
    BuildCache(tmp_path).put("library", key(1), BuildResult(product=b"code", log="a warning"))
    code = (
        "import sys; from pathlib import Path; from kbevolve.evaluators.builds.cache import BuildCache\n"
        f"print(BuildCache(Path(sys.argv[1])).get('library', '{key(1)}'))"
    )
    output = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True).stdout
    assert "b'code'" in output
    assert "a warning" in output


def test_all_but_the_seconds_is_kept(tmp_path: Path) -> None:
    kernel = KernelResources(name="_Z4relu", registers=10, spill_stores=4)
    result = BuildResult(product=b"code", log="a warning", resources=(kernel,), traits=(), light=("main.cpp",))
    BuildCache(tmp_path).put("object", key(1), result)
    assert BuildCache(tmp_path).get("object", key(1)) == result


def test_failures_of_the_request_are_kept_and_kinds_are_separate(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    cache.put("library", key(1), BuildResult(product=None, log="error"))
    cache.put("library", key(2), BuildResult(product=None, why=FailureReason.MEMORY))
    assert cache.get("library", key(1)) == BuildResult(product=None, log="error")
    assert cache.get("library", key(2)) is None
    assert cache.get("object", key(1)) is None


def test_a_damaged_entry_is_a_miss_and_can_be_put_again(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    whole = BuildResult(product=b"whole")
    for pattern, content in (("product/*", b"who"), ("library/*", b'{"key": "other"}'), ("library/*", b"{")):
        cache.put("library", key(1), whole)
        assert cache.get("library", key(1)) == whole
        next(tmp_path.glob(pattern)).write_bytes(content)
        assert cache.get("library", key(1)) is None


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
        assert found == BuildResult(product=number.to_bytes(4, "big") * (1 << 18), log=str(number))


def test_the_least_recently_used_files_are_removed_first(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path, most_bytes=12_000)
    for number in range(8):
        cache.put("library", key(number), BuildResult(product=bytes([number]) * 1500))
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
    cache.put("library", key(1), BuildResult(product=b"code"))
    assert cache.get("library", key(1)) is None
