"""What the fork server imports, and when."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.evaluators.sandbox.serving import serving


@pytest.mark.parametrize("inductor", [False, True])
def test_workers_have_inductor_where_the_judge_asks_for_it(inductor: bool) -> None:
    code = (
        "import os, sys\n"
        "from kbevolve.evaluators.worker import forkserver\n"
        "found = []\n"
        "forkserver._import_all, forkserver._import_inductor = (lambda device: None), lambda: found.append(1)\n"
        "forkserver._begin = lambda *_: {}\n"
        f"forkserver.serve_forks(int(sys.argv[1]), device='cuda:0', inductor={inductor})\n"
        "os._exit(len(found))\n"  # a worker
    )
    with serving(code) as channel:
        channel.send({"fork": {}}, (0, 0))
        pid = channel.receive()[0]["forked"]
        channel.send({"wait": pid})
        assert channel.receive()[0] == {"code": int(inductor)}


@pytest.mark.slow
def test_workers_know_the_hash_of_triton() -> None:
    pytest.importorskip("triton")
    code = (
        "import os, sys\n"
        "from kbevolve.evaluators.worker import forkserver\n"
        "forkserver._begin = lambda *_: {}\n"
        "forkserver.serve_forks(int(sys.argv[1]), device='cuda:0', inductor=True)\n"
        "from triton.runtime.cache import triton_key\n"
        "os._exit(triton_key.cache_info().currsize)\n"  # a worker
    )
    with serving(code) as channel:
        channel.send({"fork": {}}, (0, 0))
        pid = channel.receive()[0]["forked"]
        channel.send({"wait": pid})
        assert channel.receive()[0] == {"code": 1}


@pytest.mark.slow
def test_imports_of_the_fork_server_call_no_driver() -> None:
    code = (
        "import sys, torch\n"
        "torch._C._cuda_getDeviceCount = lambda: sys.exit('the driver was called')\n"
        "from kbevolve.evaluators.worker.forkserver import _import_all\n"
        "before = torch.cuda.is_available\n"
        "_import_all('cuda:0')\n"
        "assert torch.cuda.is_available is before\n"
        "assert 'torch.utils.cpp_extension' in sys.modules\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "CUDA_HOME": "/usr/local/cuda"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
