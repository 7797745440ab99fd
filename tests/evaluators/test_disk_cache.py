"""The cache on disk: it remembers, and nothing that is wrong with its files stops anybody."""

import os
from pathlib import Path

import pytest

from kbevolve.evaluators.disk_cache import DiskCache, default_directory


def the_file(disk_cache: DiskCache) -> Path:
    (path,) = disk_cache.directory.rglob("*.json")
    return path


def test_what_was_put_there_is_found_again(tmp_path: Path) -> None:
    disk_cache = DiskCache(tmp_path / "deep" / "cache")
    tree = {"rates": {"fp32": 2.5e11}, "names": ["a", "b"], "none": None}
    assert disk_cache.get("card", "key") is None
    disk_cache.put("card", "key", tree)
    assert DiskCache(disk_cache.directory).get("card", "key") == tree
    assert disk_cache.get("roofline", "key") is None
    assert disk_cache.get("card", "other key") is None
    disk_cache.put("card", "key", {"new": 1})
    assert disk_cache.get("card", "key") == {"new": 1}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"key": "another", "value": 1}', '"key"', "\xff", "[" * 100_000])
def test_a_damaged_file_is_a_miss_and_is_replaced(tmp_path: Path, text: str) -> None:
    disk_cache = DiskCache(tmp_path)
    disk_cache.put("card", "key", 1)
    the_file(disk_cache).write_bytes(text.encode("latin-1"))
    assert disk_cache.get("card", "key") is None
    disk_cache.put("card", "key", 2)
    assert disk_cache.get("card", "key") == 2


def test_where_nothing_can_be_written_it_works_without(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no directory")
    disk_cache = DiskCache(blocked)
    disk_cache.put("card", "key", 1)
    assert disk_cache.get("card", "key") is None


def test_a_failed_write_leaves_the_old_value_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk_cache = DiskCache(tmp_path)
    disk_cache.put("card", "key", 1)

    def fail(*arguments: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    disk_cache.put("card", "key", 2)
    assert disk_cache.get("card", "key") == 1
    assert [path.name for path in (tmp_path / "card").iterdir()] == [the_file(disk_cache).name]


def test_the_directory_is_named_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KBEVOLVE_CACHE", str(tmp_path / "own"))
    assert default_directory() == tmp_path / "own"
    monkeypatch.delenv("KBEVOLVE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_directory() == tmp_path / "kbevolve"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_directory() == tmp_path / "home" / ".cache" / "kbevolve"
