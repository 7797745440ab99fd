"""A worker's environment holds no secrets and writes into its own directory."""

import os
from pathlib import Path

import pytest

from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.sandbox.environment import worker_environment

CPU = Device(type="cpu", index=0, fingerprint="cpu/test", description="test", threads=2)


def test_only_listed_variables_are_passed(tmp_path: Path) -> None:
    inherited = {"PATH": "/bin", "OPENAI_API_KEY": "secret", "AWS_SECRET": "x", "CUDA_HOME": "/cuda", "LC_ALL": "C"}
    kept = worker_environment(CPU, tmp_path, inherited)
    assert "secret" not in kept.values()
    assert "AWS_SECRET" not in kept
    assert kept["CUDA_HOME"] == "/cuda"
    assert kept["PATH"].endswith("/bin")


def test_all_writable_paths_are_in_the_workers_directory(tmp_path: Path) -> None:
    kept = worker_environment(CPU, tmp_path, {"HOME": "/root", "TMPDIR": "/tmp"})
    for name in ("HOME", "TMPDIR", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        assert Path(kept[name]).is_relative_to(tmp_path)
    assert kept["OMP_NUM_THREADS"] == "2"
    assert kept["CUDA_VISIBLE_DEVICES"] == ""


def test_search_paths_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kept = worker_environment(CPU, tmp_path, {"PYTHONPATH": ".:lib"})
    assert kept["PYTHONPATH"] == f"{tmp_path}{os.pathsep}{tmp_path / 'lib'}"


def test_models_are_there_only_where_the_user_names_a_folder(tmp_path: Path) -> None:
    assert not {name for name in worker_environment(CPU, tmp_path, {"HF_TOKEN": "secret"}) if name.startswith("HF_")}
    inherited = {"HF_HUB_CACHE": "/models", "HF_TOKEN": "secret"}
    kept = worker_environment(CPU, tmp_path, inherited)
    assert {name: kept[name] for name in kept if name.startswith("HF_")} == {
        "HF_HUB_CACHE": "/models",
        "HF_HUB_OFFLINE": "1",
    }
