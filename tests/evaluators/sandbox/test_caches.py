"""No worker writes into a cache of compiled code that another worker, or a later process, reads."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.builds.pool import BuildPool
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.sandbox.forkserver import ForkServer
from kbevolve.evaluators.sandbox.worker import Worker
from kbevolve.evaluators.worker import landlock, seccomp

CPU = find_device("cpu")
KERNEL = "\nclass ModelNew:\n    pass\n"
guarded = pytest.mark.skipif(
    not landlock.usable() or not seccomp.supported(), reason="this kernel has no Landlock or no known system calls"
)
#: Caches of Triton, Inductor, torch's builder, CUDA's driver, and of whatever has none of its own.
CACHES = """
import getpass, json, os, tempfile
from pathlib import Path
from torch._inductor.runtime.cache_dir_utils import cache_dir
from torch.utils.cpp_extension import _get_build_directory
home = Path.home()
places = [
    *(os.environ[name] for name in (
        "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "CUDA_CACHE_PATH", "TMPDIR", "HOME")),
    cache_dir(), os.path.dirname(_get_build_directory("x", False)), tempfile.gettempdir(), os.getcwd(),
    *(home / name for name in (".cache", ".triton/cache", ".nv/ComputeCache", ".cache/torch/kernels")),
]
"""
#: Writes into them, and into the folders that the test names; reports its places and where it could write.
POISON = (
    CACHES
    + """
written = []
for place in map(Path, [*places, *OTHERS]):
    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / "poison").write_text("poison")
        written.append(str(place))
    except OSError:
        pass
for place in map(Path, OTHERS):
    for file in [path for path in place.rglob("*") if path.is_file()] if os.access(place, os.R_OK) else []:
        try:
            file.write_text("poison")
            written.append(str(file))
        except OSError:
            pass
print(json.dumps([list(map(str, places)), written]), flush=True)
"""
)
LOOK = (
    CACHES
    + """
found = [str(path) for place in map(Path, places) if place.exists() for path in place.rglob("poison")]
print(json.dumps([list(map(str, places)), found]), flush=True)
"""
)


def run(worker: Worker, source: str, **names: object) -> list[list[str]]:
    """What the source printed last."""
    text = "".join(f"{name} = {value!r}\n" for name, value in names.items()) + source
    assert worker.ask({"request": "import", "source": text + KERNEL}, seconds=60) == {"ok": True}, worker.printed
    worker.ask({"request": "import", "source": KERNEL}, seconds=60)  # all that was printed has arrived
    printed: list[list[str]] = json.loads(worker.printed.strip().splitlines()[-1])
    return printed


@pytest.fixture
def workers(fork_server: ForkServer | None) -> Iterator[list[Worker]]:
    started = [Worker(CPU, fork_server) for _ in range(2)]
    for worker in started:
        worker.wait_ready()
    yield started
    for worker in started:
        worker.kill()


@guarded
@pytest.mark.slow
def test_caches_of_a_worker_are_its_own(workers: list[Worker], tmp_path: Path, fork_server: ForkServer | None) -> None:
    first, second = workers
    with closing(BuildPool(CPU, EvaluationSettings(), DiskCache(tmp_path))) as pool:
        kept = tmp_path / "kept"
        kept.mkdir()
        (kept / "kernel.so").write_text("honest")
        theirs, _ = run(second, LOOK)
        others = [*theirs, str(kept), str(pool.cache.directory), str(pool.cache.directory / "headers")]
        places, written = run(first, POISON, OTHERS=others)
        assert set(written) == set(places)
        assert not set(places) & set(theirs)
        assert run(second, LOOK)[1] == []
        assert (kept / "kernel.so").read_text() == "honest"
        assert not pool.cache.directory.exists()
    first.kill()
    later = Worker(CPU, fork_server)
    later.wait_ready()
    try:
        assert run(later, LOOK)[1] == []
    finally:
        later.kill()
