"""The loop that counts what a CUDA driver serves, with a driver that only waits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = """
#include <stddef.h>
#include <unistd.h>
int cuInit(unsigned flags) { usleep(20000); return ANSWER; }
int cuDevicePrimaryCtxRetain(void** context, int device) { usleep(10000); return 0; }
int cuCtxSetCurrent(void* context) { return 0; }
int cuMemAlloc_v2(void* address, size_t size) { return 0; }
"""

PROGRAM = """
import sys
from pathlib import Path
from benchmarks import contexts
from kbevolve.evaluators.sandbox.gpu import Gpu

contexts.all_gpus = lambda: tuple(Gpu(name=f"GPU-{n}", node=Path(f"/dev/nvidia{n}")) for n in range(2))
sys.argv = ["contexts", *sys.argv[1:]]
contexts.main()
assert "torch" not in sys.modules
"""


def counted(folder: Path, *words: str, answer: int = 0) -> subprocess.CompletedProcess[str]:
    (folder / "driver.c").write_text(DRIVER)
    library = folder / "libcuda.so.1"
    command = ["gcc", "-shared", "-fPIC", f"-DANSWER={answer}", "-o", str(library), str(folder / "driver.c")]
    subprocess.run(command, check=True)
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        env={**os.environ, "LD_LIBRARY_PATH": str(folder)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_processes_are_counted_for_each_way(tmp_path: Path) -> None:
    ran = counted(tmp_path, "--devices", "0,1", "--connections", "1", "--parallel", "2", "--seconds", "0.3")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found.keys() == {f"{count}/{granted}/1" for count in (1, 2) for granted in ("all", "own")}
    # Two processes side by side that wait 30 ms each can serve no more, on one GPU and on two.
    assert all(0 < rate <= 2 * int(name[0]) / 0.03 for name, rate in found.items())


@pytest.mark.parametrize(
    ("words", "answer", "said"),
    [(("--seconds", "0.1"), 304, "CUDA error 304"), (("--devices", "2"), 0, "describes 2 GPUs here")],
)
def test_a_driver_that_refuses_is_reported(tmp_path: Path, words: tuple[str, ...], answer: int, said: str) -> None:
    ran = counted(tmp_path, *words, answer=answer)
    assert ran.returncode != 0
    assert said in ran.stderr
