"""The disk cache keeps values, and broken files are only misses."""

import os
from pathlib import Path

import pytest

from kbevolve.configs.cache_directory import default_directory
from kbevolve.evaluators.disk_cache import DiskCache


def the_file(cache: DiskCache) -> Path:
    (path,) = cache.directory.rglob("*.json")
    return path


def test_a_value_is_found_again(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "deep" / "cache")
    tree = {"rates": {"fp32": 2.5e11}, "names": ["a", "b"], "none": None}
    assert cache.get("card", "key") is None
    cache.put("card", "key", tree)
    assert DiskCache(cache.directory).get("card", "key") == tree
    assert cache.get("roofline", "key") is None
    assert cache.get("card", "other key") is None
    cache.put("card", "key", {"new": 1})
    assert cache.get("card", "key") == {"new": 1}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"key": "another", "value": 1}', '"key"', "\xff", "[" * 100_000])
def test_a_damaged_file_is_a_miss_and_is_replaced(tmp_path: Path, text: str) -> None:
    cache = DiskCache(tmp_path)
    cache.put("card", "key", 1)
    the_file(cache).write_bytes(text.encode("latin-1"))
    assert cache.get("card", "key") is None
    cache.put("card", "key", 2)
    assert cache.get("card", "key") == 2


def test_a_directory_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no directory")
    cache = DiskCache(blocked)
    cache.put("card", "key", 1)
    assert cache.get("card", "key") is None


def test_a_failed_write_leaves_the_old_value_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(tmp_path)
    cache.put("card", "key", 1)

    def fail(*arguments: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    cache.put("card", "key", 2)
    assert cache.get("card", "key") == 1
    assert [path.name for path in (tmp_path / "card").iterdir()] == [the_file(cache).name]


def test_the_environment_names_the_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KBEVOLVE_CACHE", str(tmp_path / "own"))
    assert default_directory() == tmp_path / "own"
    monkeypatch.delenv("KBEVOLVE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_directory() == tmp_path / "kbevolve"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_directory() == tmp_path / "home" / ".cache" / "kbevolve"
