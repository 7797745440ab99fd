import os
import subprocess
import sys
import threading
import time

import pytest
import torch

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.devices import exclusive, find_device


def test_the_cpu_is_always_there() -> None:
    device = find_device("cpu")
    assert device.type == "cpu"
    assert device.torch_name == "cpu"
    assert device.threads == len(os.sched_getaffinity(0))
    assert f"{device.threads} threads" in device.fingerprint
    assert torch.__version__ in device.fingerprint


def test_auto_takes_cuda_when_there_is_one() -> None:
    assert find_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("choice", ["cuda:99", "cuda"])
def test_a_device_that_is_not_there_is_an_error_with_a_remedy(choice: str) -> None:
    if choice == "cuda" and torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(EvaluatorError, match="use --device cpu"):
        find_device(choice)


def test_a_device_is_timed_by_one_process_at_a_time() -> None:
    code = (
        "import sys\n"
        "from kbevolve.evaluators.devices import exclusive, find_device\n"
        "with exclusive(find_device('cpu')): print('mine', flush=True); sys.stdin.read()\n"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "mine\n"
        start = time.monotonic()
        threading.Timer(0.3, other.stdin.close).start()  # ends the other's input(), and with it the other
        with exclusive(find_device("cpu")):
            assert time.monotonic() - start >= 0.3
