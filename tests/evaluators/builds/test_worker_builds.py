"""Real workers request builds from a pool, and load the libraries as torch would."""

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from kbevolve.archive.records import Verdict
from kbevolve.evaluators.feedback.failures import failure_of
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.sandbox.build_protocol import BuilderUnavailable, BuildResult
from kbevolve.evaluators.worker.channel import Message
from tests.evaluators.builds.pooled import INCLUDING, INLINE, LOAD, WorkerWithPool, named
from tests.evaluators.builds.sources import BOMB, LIBRARY


def test_load_and_load_inline_use_the_pool(shared: WorkerWithPool) -> None:
    assert shared.load(INLINE + LOAD) == {"ok": True}, shared.worker.printed
    assert [request["name"] for request in shared.requests] == ["three", "twice"]
    assert shared.requests[1]["cflags"] == ["-O3"]
    assert shared.away == ["left", "back"] * 2
    assert [build.seconds > 0 for build in shared.worker.built] == [True, True]


def test_the_next_worker_finds_it_built(shared: WorkerWithPool, place: WorkerWithPool) -> None:
    source = named("again")
    for known, builder in enumerate((shared, place)):
        assert builder.load(source) == {"ok": True}
        assert (builder.worker.built[0].seconds == 0) is bool(known)


def test_other_sources_under_a_known_name_are_a_new_version(shared: WorkerWithPool) -> None:
    """As in torch: an imported module does not change."""
    source = named("version").replace("assert built.__name__", "assert True or built.__name__")
    assert shared.load(source) == {"ok": True}
    assert shared.load(source.replace("FromLong(3)", "FromLong(4)").replace("three() == 3", "three() == 4")) == {
        "ok": True
    }
    assert [request["name"] for request in shared.requests] == ["version", "version_v1"]


def test_an_error_looks_like_torchs_own(shared: WorkerWithPool) -> None:
    source = named("broken").replace("PyLong_FromLong(3)", "PyLong_FromLong(3")
    reply = shared.load(source)
    assert (reply["ok"], reply["stage"], reply["type"]) == (False, "build", "RuntimeError")
    assert reply["text"].startswith("Error building extension 'broken': ")
    verdict, message = failure_of(reply, source)
    assert verdict is Verdict.BUILD_FAILED
    assert "main.cpp:" in message
    assert "PyLong_FromLong(3;" in message
    assert "in your file:" in message
    assert shared.away == ["left", "back"]


def test_files_beside_a_source_go_along(shared: WorkerWithPool) -> None:
    assert shared.load(INCLUDING) == {"ok": True}, shared.worker.printed
    assert [request["files"] for request in shared.requests] == [[["two.h", "#define TWO 2"]]]
    assert [build.seconds > 0 for build in shared.worker.built] == [True]


#: Files of the kernel's own, named in several ways: by macro, without a blank, by a folder of flags, from above.
FILES = r"""
import ctypes, os
from pathlib import Path
from torch.utils import cpp_extension
here = Path("many").absolute()
for name, text in {
    "src/main.cpp": '#define NAME <by_macro.h>\n#include NAME\n#include"tight.h"\n#include "../above.h"\n'
    '#include <own.h>\n'
    'asm(".section .rodata\\nblob: .incbin \\"src/blob.bin\\"\\n.text");\nextern "C" const unsigned char blob[];\n'
    'extern "C" int sum() { return MACRO + TIGHT + ABOVE + OWN + blob[0]; }',
    "by_macro.h": "#define MACRO 1", "src/tight.h": "#define TIGHT 2", "above.h": "#define ABOVE 4",
    "include/own.h": "#define OWN 8",
}.items():
    (here / name).parent.mkdir(parents=True, exist_ok=True)
    (here / name).write_text(text)
(here / "src/blob.bin").write_bytes(b"\xf0\xff")
path = cpp_extension.load("many", [str(here / "src/main.cpp")], is_python_module=False, extra_cflags=[f"-I{here}"],
                          extra_include_paths=[str(here / "include")])
where = path or os.path.join(os.environ["TORCH_EXTENSIONS_DIR"], "many", "many.so")
assert ctypes.CDLL(where).sum() == 15 + 0xf0, ctypes.CDLL(where).sum()
"""


def test_the_builder_gets_all_files_that_a_source_names(shared: WorkerWithPool) -> None:
    assert shared.load(FILES) == {"ok": True}, shared.worker.printed
    (request,) = shared.requests
    assert sorted(name for name, _ in request["files"]) == [
        *("above.h", "by_macro.h", "include/own.h", "src/blob.bin", "src/tight.h")
    ]
    assert (request["include_paths"], request["cflags"]) == (["include"], ["-I."])
    assert [build.seconds > 0 for build in shared.worker.built] == [True]


#: Another file of the kernel's own, where its source finds it, and arguments of `load`.
PLACES: dict[str, tuple[str, str, str]] = {
    "above the source": ('"../x.h"', "x.h", ""),
    "beside the source's folder": ('"../../far/x.h"', "../far/x.h", ""),
    "in a folder of the kernel's": ("<x.h>", "../far/x.h", 'extra_include_paths=[str(top / "../far")]'),
    "in a folder of a flag": ("<deep/x.h>", "include/deep/x.h", 'extra_cflags=[f"-I{top}/include"]'),
    "in a quoted folder": ("<x.h>", "include/x.h", "extra_cflags=[f\"-I'{top}/include'\"]"),
    "in a folder of two flags": ("<x.h>", "include/x.h", 'extra_cflags=["-O1", "-I", f"{top}/include", "-DX"]'),
    "where torch's builder runs": ("<x.h>", "HERE/x.h", 'extra_cflags=["-I."]'),
    "above torch's builder": ("<x.h>", "HERE/../x.h", 'extra_cflags=["-I", ".."]'),
}
PLACED = """
import ctypes, os
from pathlib import Path
from torch.utils import cpp_extension
top = Path("NAME/top").absolute()
built = Path(os.environ["TORCH_EXTENSIONS_DIR"], "NAME")
built.mkdir(parents=True)
for path, text in ((top / "src/main.cpp", SOURCE), (Path("PLACE".replace("HERE", str(built))), "#define VALUE 2")):
    path = path if path.is_absolute() else top / path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
made = cpp_extension.load("NAME", [str(top / "src/main.cpp")], is_python_module=False, ARGUMENTS)
assert ctypes.CDLL(made or str(built / "NAME.so")).value() == 2
"""


@pytest.mark.parametrize("place", PLACES)
def test_folders_are_those_of_torchs_builder(shared: WorkerWithPool, place: str) -> None:
    include, path, arguments = PLACES[place]
    text = f'#include {include}\nextern "C" int value() {{ return VALUE; }}'
    filled = {"NAME": f"place{list(PLACES).index(place)}", "PLACE": path, "SOURCE": repr(text), "ARGUMENTS": arguments}
    source = PLACED
    for name, value in filled.items():
        source = source.replace(name, value)
    assert shared.load(source) == {"ok": True}, shared.worker.printed
    assert [build.seconds > 0 for build in shared.worker.built] == [True]


#: Its source names its folder, which no builder can read.
ABSOLUTE = """
import os
from pathlib import Path
from torch.utils import cpp_extension
here = Path("alone").absolute()
here.mkdir()
(here / "two.h").write_text("#define TWO 2")
(here / "alone.cpp").write_text(f'#include "{here}/two.h"\\nextern "C" int two() {{ return TWO; }}')
cpp_extension.load("alone", [str(here / "alone.cpp")], is_python_module=False)
"""


def test_a_build_that_needs_its_own_paths_is_compiled_by_the_worker(shared: WorkerWithPool) -> None:
    assert shared.load(ABSOLUTE) == {"ok": True}, shared.worker.printed
    assert [request["sources"] for request in shared.requests] == [None]
    assert shared.worker.built_alone
    assert shared.away == ["left", "back"]


def test_a_file_whose_name_no_request_takes_is_compiled_by_the_worker(shared: WorkerWithPool) -> None:
    source = INCLUDING.replace("beside", "blank").replace("company", "blank").replace("two.h", "it's two.h")
    source = source.replace("open('blank/it's two.h'", 'open("blank/it\'s two.h"')
    assert shared.load(source) == {"ok": True}, shared.worker.printed
    assert [request["sources"] for request in shared.requests] == [None]


def test_quotes_in_flags_are_those_of_a_shell(shared: WorkerWithPool) -> None:
    source = LOAD.replace("twice", "quoted").replace("int quoted", "int twice").replace(").quoted(", ").twice(")
    source = source.replace("folder", "other").replace('"-O3"', "\"-DX='(1)'\"").replace("2 * x", "2 * X * x")
    assert shared.load(source) == {"ok": True}, shared.worker.printed
    assert [build.seconds > 0 for build in shared.worker.built] == [True]


#: Ways to bring a flag into a build that runs a program or reads and writes other files.
SMUGGLED = {
    "C++": ("", 'extra_cflags=["-wrapper", "/bin/echo"]', "-wrapper"),
    "one string": ("", 'extra_cflags=["-O3 -B. -O2"]', "-B."),
    "quoted": ("", "extra_cflags=[\"'-specs'=own\"]", "-specs=own"),
    "nvcc": ("", 'extra_cuda_cflags=["--compiler-bindir", "own"]', "--compiler-bindir"),
    "through nvcc": ("", 'extra_cuda_cflags=["-Xcompiler", "-O3,-fplugin=own.so"]', "-fplugin=own.so"),
    "linker": ("", 'extra_ldflags=["-Wl,-T,own.ld"]', "-Wl,-T,own.ld"),
    "file of flags": ("", 'extra_ldflags=["@own"]', "@own"),
    "prepended": ("os.environ['NVCC_PREPEND_FLAGS'] = '--options-file own'", "", "--options-file"),
    "appended": ("os.environ['NVCC_APPEND_FLAGS'] = '-run'", "", "-run"),
    "program": ("os.environ['CXX'] = '/tmp/own'", "", "CXX"),
    "program with flags": ("os.environ['CC'] = 'gcc -wrapper own'", "", "CC"),
    "folder of programs": ("os.environ['COMPILER_PATH'] = os.getcwd()", "", "COMPILER_PATH"),
    "prefix": ("os.environ['GCC_EXEC_PREFIX'] = os.getcwd()", "", "GCC_EXEC_PREFIX"),
    "report": ("os.environ['DEPENDENCIES_OUTPUT'] = 'own'", "", "DEPENDENCIES_OUTPUT"),
    "hidden folder": ("", 'extra_include_paths=["/root"]', "/root"),
    "no sources": ("", 'is_standalone=True, extra_cflags=["-wrapper", "/bin/echo"]', "-wrapper"),
}


@pytest.mark.parametrize("how", SMUGGLED)
def test_what_is_not_allowed_is_a_failed_build(shared: WorkerWithPool, how: str) -> None:
    before, argument, named = SMUGGLED[how]
    variables = "CXX CC COMPILER_PATH GCC_EXEC_PREFIX NVCC_PREPEND_FLAGS NVCC_APPEND_FLAGS DEPENDENCIES_OUTPUT"
    source = LOAD.replace('is_python_module=False, extra_cflags=["-O3"]', f"is_python_module=False, {argument}")
    name = f"smuggled{list(SMUGGLED).index(how)}"
    source = source.replace('"twice", [', f'"{name}", [').replace("folder", name)
    reply = shared.load(
        f"import os\nbefore = dict(os.environ)\n{before}\ntry:\n"
        + "".join(f"    {line}\n" for line in source.strip().splitlines())
        + f"finally:\n    for name in '{variables}'.split():\n        os.environ.pop(name, None)\n"
        "        os.environ.update({name: before[name]} if name in before else {})\n"
    )
    assert (reply["ok"], reply["stage"]) == (False, "build"), shared.worker.printed
    verdict, message = failure_of(reply)
    assert verdict is Verdict.BUILD_FAILED
    assert named in message
    assert [build.library for build in shared.worker.built] == [""]


@pytest.mark.parametrize(
    "change",
    [
        "os.environ['CXX'] = 'g++'",
        "os.environ['CC'] = '/usr/bin/gcc'",
        "os.environ['CPATH'] = '/usr/include'",
        "os.environ['LIBRARY_PATH'] = '/usr/lib'",
        "os.environ['NVCC_APPEND_FLAGS'] = '-lineinfo'",
        "os.environ['CUDA_HOME'] = '/usr/local/cuda'",
        "os.environ['TORCH_CUDA_ARCH_LIST'] = '9.0a'",
    ],
)
def test_harmless_variables_are_allowed(place: WorkerWithPool, change: str) -> None:
    assert place.load(f"import os\n{change}\n{LOAD}") == {"ok": True}, place.worker.printed
    assert len(place.requests) == len(place.worker.built) == 1


def test_a_request_that_torchs_builder_refuses_later_is_compiled_by_the_worker(place: WorkerWithPool) -> None:
    def refusing(request: Message, *, seconds: float) -> Future[BuildResult]:
        refused: Future[BuildResult] = Future()
        refused.set_exception(BuilderUnavailable("torch's builder is unknown"))
        return refused

    place.worker.builder = refusing
    assert place.load(INLINE) == {"ok": True}, place.worker.printed
    assert place.worker.built_alone
    assert not place.worker.built
    assert place.away == ["left", "back"]


#: A candidate that asks for a Triton kernel by itself, again and again.
ASKING = """
import gc, os
from kbevolve.evaluators.worker.channel import Channel
channel = next(one for one in gc.get_objects() if isinstance(one, Channel))
while True:
    channel.send({"phase": "building", "build": {"triton": {"ir": "module {}"}}})
    answer, descriptors = channel.receive()
    assert answer == {"built": True}, answer
    for descriptor in descriptors:
        os.close(descriptor)
"""


def test_triton_kernels_without_end_are_refused(place: WorkerWithPool, monkeypatch: pytest.MonkeyPatch) -> None:
    def known(request: Message, *, seconds: float) -> Future[BuildResult]:
        found: Future[BuildResult] = Future()
        found.set_result(BuildResult(product=b"machine code"))
        return found

    monkeypatch.setattr("kbevolve.evaluators.sandbox.worker._MOST_KERNELS", 5)
    place.worker.builder = known
    with pytest.raises(Rejection, match="more than 5 Triton kernels"):
        place.load(ASKING)
    assert not place.worker.built
    assert not place.away  # what is known needs no compiler


def test_an_endless_build_is_stopped(place: WorkerWithPool) -> None:
    endless = LOAD.replace(LIBRARY, BOMB)
    began = time.monotonic()
    with pytest.raises(Rejection) as stopped:
        place.load(endless, build_seconds=1.0)
    assert stopped.value.verdict is Verdict.TIMED_OUT
    assert "of compiling" in stopped.value.message
    assert time.monotonic() - began < 10
    assert place.away == ["left", "back"]


@pytest.mark.slow
def test_waiting_counts_against_no_limit(shared: WorkerWithPool, place: WorkerWithPool) -> None:
    """Neither for a builder nor for the device; both take longer here than the limits."""
    assert shared.load(named("waiting")) == {"ok": True}, "the pool has its library"

    def slow(request: Message, *, seconds: float) -> Future[BuildResult]:
        future = place.pool.builder(request, seconds=seconds)
        late: Future[BuildResult] = Future()
        future.add_done_callback(lambda done: (time.sleep(1.5), late.set_result(done.result())))
        return late

    @contextlib.contextmanager
    def waiting() -> Iterator[None]:
        yield
        time.sleep(1.5)

    place.worker.builder, place.worker.while_compiling = slow, waiting
    place.worker.deadline = time.monotonic() + 2.5
    assert place.load(named("waiting"), seconds=2.0, build_seconds=2.0) == {"ok": True}
    assert place.worker.deadline > time.monotonic() + 0.5
