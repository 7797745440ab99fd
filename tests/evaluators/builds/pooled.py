"""A worker with a build pool, and candidates that build."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future

from kbevolve.evaluators.builds.pool import BuildPool
from kbevolve.evaluators.device.devices import Device, find_device
from kbevolve.evaluators.sandbox.build_protocol import BuildResult
from kbevolve.evaluators.sandbox.forkserver import ForkServer
from kbevolve.evaluators.sandbox.worker import Worker
from kbevolve.evaluators.worker.channel import Message
from tests.evaluators.builds.sources import LIBRARY, MODULE

CPU = find_device("cpu")


MODEL = "\nclass ModelNew:\n    pass\n"


INLINE = f"""
from torch.utils.cpp_extension import load_inline
SOURCE = r'''{MODULE}'''
built = load_inline("three", SOURCE, no_implicit_headers=True)
assert built.three() == 3
assert built.__name__ == "three"
"""


LOAD = f"""
import ctypes, os
from torch.utils import cpp_extension
os.makedirs("folder")
with open("folder/twice.cpp", "w") as file:
    file.write(r'''{LIBRARY}''')
path = cpp_extension.load("twice", ["folder/twice.cpp"], is_python_module=False, extra_cflags=["-O3"])
assert path is None or path.endswith("twice.so"), path
where = path or os.path.join(os.environ["TORCH_EXTENSIONS_DIR"], "twice", "twice.so")
assert ctypes.CDLL(where).twice(21) == 42
"""


#: It includes a file beside the source.
INCLUDING = LOAD.replace("twice", "beside").replace("int beside", "int twice").replace(").beside(", ").twice(")


INCLUDING = INCLUDING.replace("folder", "company").replace("r'''extern", "r'''#include \"two.h\"\nextern")


INCLUDING = INCLUDING.replace("with open", "open('company/two.h', 'w').write('#define TWO 2')\nwith open")


def named(name: str) -> str:
    """The inline extension under another name."""
    return INLINE.replace('load_inline("three"', f'load_inline("{name}"').replace('== "three"', f'== "{name}"')


class WorkerWithPool:
    """A worker with a build pool, and a record of its requests."""

    def __init__(self, pool: BuildPool, fork_server: ForkServer | None = None, device: Device = CPU) -> None:
        self.pool = pool
        self.requests: list[Message] = []
        self.away: list[str] = []
        self.worker = Worker(device, fork_server)
        self.worker.wait_ready()
        self.worker.builder = self.build
        self.worker.while_compiling = self.leave

    def build(self, request: Message, *, seconds: float) -> Future[BuildResult]:
        self.requests.append(request)
        return self.pool.builder(request, seconds=seconds)

    @contextlib.contextmanager
    def leave(self) -> Iterator[None]:
        self.away.append("left")
        try:
            yield
        finally:
            self.away.append("back")

    def load(self, source: str, *, seconds: float = 60.0, build_seconds: float = 180.0) -> Message:
        request = {"request": "import", "source": source + MODEL}
        return self.worker.ask(request, seconds=seconds, build_seconds=build_seconds)
