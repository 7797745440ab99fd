"""Devices are found, named and combined; the locks of this machine keep processes apart."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
import torch

from kbevolve.configs.errors import EvaluatorError, SettingsError
from kbevolve.evaluators.device import devices
from kbevolve.evaluators.device.devices import (
    Device,
    find_device,
    find_devices,
    together,
    visible_name,
)
from kbevolve.evaluators.device.lock import exclusive, shared

pytestmark = pytest.mark.usefixtures("own_locks")


def test_there_is_always_a_cpu() -> None:
    device = find_device("cpu")
    assert device.type == "cpu"
    assert device.torch_name == "cpu"
    assert device.threads == len(os.sched_getaffinity(0))
    assert f"{device.threads} threads" in device.fingerprint
    assert torch.__version__ in device.fingerprint


def test_auto_takes_cuda_when_there_is_one() -> None:
    assert find_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("choice", ["cuda:99", "cuda"])
def test_a_missing_device_is_an_error_with_a_remedy(choice: str) -> None:
    if choice == "cuda" and torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(EvaluatorError, match="use --device cpu"):
        find_device(choice)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("exclusive", exclusive),
        pytest.param("exclusive", shared, marks=pytest.mark.slow),
        pytest.param("shared", exclusive, marks=pytest.mark.slow),
    ],
)
def test_an_exclusive_lock_excludes_other_processes(
    theirs: str, ours: Callable[[Device], AbstractContextManager[None]]
) -> None:
    code = (
        "import sys\n"
        f"from kbevolve.evaluators.device.devices import find_device\n"
        f"from kbevolve.evaluators.device.lock import {theirs}\n"
        f"with {theirs}(find_device('cpu')): print('mine', flush=True); sys.stdin.read()\n"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "mine\n"
        start = time.monotonic()
        threading.Timer(0.3, other.stdin.close).start()  # ends the other process
        with ours(find_device("cpu")):
            assert time.monotonic() - start >= 0.3


def test_shared_locks_do_not_exclude_each_other() -> None:
    with shared(find_device("cpu")), shared(find_device("cpu")):
        pass


def device(model: str, type: str = "cuda", index: int = 0) -> Device:
    return Device(type=type, index=index, fingerprint=f"{type}/{model}", description=model)


def test_a_list_of_devices() -> None:
    assert find_devices(["cpu"]) == (find_device("cpu"),)
    assert find_devices(["cpu", "cpu"]) == (find_device("cpu"),) * 2
    with pytest.raises(SettingsError, match="'cuda0' is no device; write cpu, cuda:N or all"):
        find_devices(["cuda0"])
    if not torch.cuda.is_available():
        with pytest.raises(EvaluatorError, match="sees 0 CUDA devices"):
            find_devices(["all"])


def test_a_gpu_has_one_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "find_device", lambda choice: device("x", index=int(choice.partition(":")[2] or 0)))
    assert [one.index for one in find_devices(["cuda:1", "cuda:0"])] == [1, 0]
    with pytest.raises(SettingsError, match="cuda, cuda:0 names a device twice"):
        find_devices(["cuda", "cuda:0"])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert [one.index for one in find_devices(["all"])] == [0, 1, 2]


def test_devices_of_one_model_are_one_device_for_a_run() -> None:
    first = device("H200")
    assert together([first, replace(first, index=1)]) == first
    with pytest.raises(EvaluatorError, match=r"different models or versions: cuda/H100; cuda/H200; .*mixed_devices"):
        together([first, device("H100")])
    mixed = together([first, device("H100", index=1)], mixed=True)
    assert (mixed.fingerprint, mixed.description) == ("cuda/H100 + cuda/H200", "H100 or H200")
    with pytest.raises(EvaluatorError, match="CPUs and GPUs cannot judge one run"):
        together([first, device("EPYC", type="cpu")], mixed=True)


def test_a_process_can_be_limited_to_one_device() -> None:
    assert visible_name(1, {}) == "1"
    assert visible_name(0, {"CUDA_VISIBLE_DEVICES": "GPU-a,3"}) == "GPU-a"
    assert visible_name(1, {"CUDA_VISIBLE_DEVICES": "GPU-a,3"}) == "3"
