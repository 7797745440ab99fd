"""A product is used again only if every file that its compilers read is as it was."""

import ctypes
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.builds import dependencies
from kbevolve.evaluators.builds.build_request import BuildRequest
from kbevolve.evaluators.builds.dependencies import _names, reads_of
from kbevolve.evaluators.builds.pool import BuildPool
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.disk_cache import DiskCache
from tests.evaluators.builds.sources import NVCC, link_without_cuda

CPU = find_device("cpu")
#: How a source names another file of the kernel's own, which defines X, and what else is in force.
WAYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "usual": ('#include "x.h"', ()),
    "without a blank": ('#include"x.h"', ()),
    "brackets": ("#include <x.h>", ("-I.",)),
    "macro": ('#define NAME "x.h"\n#include NAME', ()),
    "text of a macro": ("#define TEXT(x) #x\n#define NAME(x) TEXT(x.h)\n#include NAME(x)", ()),
    "macro of a flag": ("#include NAME", ('-DNAME="x.h"',)),
    "spliced line": ('#incl\\\nude "x.\\\nh"', ()),
    "comment": ('#/**/include/**/"x.h"', ()),
    "digraph": ('%:include "x.h"', ()),
    "next": ('#include_next "x.h"', ("-I.",)),
    "import": ('#import "x.h"', ()),
    "through another": ('#include "middle.h"', ()),
    "another source": ('#include "x.h"\n#define INCLUDED 1', ()),
    "tested": ('#if __has_include("x.h")\n#include "x.h"\n#else\n#define X 0\n#endif', ()),
    "assembler": (
        'asm(".section .rodata\\nX: .incbin \\"x.h\\"\\n.text");\nextern "C" const char X[];\n#define X X[10] - 48',
        (),
    ),
    "assembler's own include": ('asm(".include \\"x.s\\"");\nextern "C" int made();\n#define X made()', ()),
    "folder": ('#include "./sub/../x.h"', ()),
}


def new_pool(directory: Path) -> BuildPool:
    return BuildPool(CPU, EvaluationSettings(build_seconds=60), DiskCache(directory), width=2)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[BuildPool]:
    with closing(new_pool(tmp_path / "disk_cache")) as pool:
        yield pool


def value(pool: BuildPool, request: BuildRequest, folder: Path) -> tuple[int, bool]:
    """What the library's `value()` returns, and whether a compiler ran."""
    built = pool.submit(request).result()
    assert built.product is not None, built.log
    path = folder / f"{time.monotonic_ns()}.so"
    path.write_bytes(built.product)
    return ctypes.CDLL(str(path)).value(), built.seconds > 0


def reading(way: str, number: int | None) -> BuildRequest:
    """A request whose source reads `number` from another file; None for no such file."""
    text, flags = WAYS[way]
    tree = {
        "x.h": f"#define X {number}",
        "x.s": f".globl made\nmade: mov ${number}, %eax\nret\n",
        "middle.h": '#include "x.h"',
        "sub/y.h": "",
    }
    files = {name: content for name, content in tree.items() if number is not None or name[0] != "x"}
    source = ("main.cpp", f'{text}\nextern "C" int value() {{ return X; }}\n')
    return BuildRequest(name="read", sources=(source,), files=tuple(files.items()), cflags=flags)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_is_read_in_any_way_is_part_of_the_key(pool: BuildPool, tmp_path: Path, way: str) -> None:
    assert value(pool, reading(way, 1), tmp_path) == (1, True)
    assert value(pool, reading(way, 2), tmp_path) == (2, True), "a child with another file got its parent's object"
    assert value(pool, reading(way, 1), tmp_path) == (1, False)


def test_an_object_is_used_again_where_only_unread_files_change(pool: BuildPool, tmp_path: Path) -> None:
    first = reading("usual", 1)
    files = dict(first.files) | {"middle.h": "", "sub/y.h": "changed"}
    for request in (first, replace(first, files=tuple(files.items()))):
        assert value(pool, request, tmp_path) == (1, True)  # at least the link
    assert len(list((tmp_path / "disk_cache").rglob("object/*"))) == 1
    assert len(list((tmp_path / "disk_cache").rglob("library/*"))) == 2


@pytest.mark.slow
def test_files_that_appear_and_vanish(pool: BuildPool, tmp_path: Path) -> None:
    for number, expected in ((None, 0), (3, 3), (None, 0), (4, 4)):
        assert value(pool, reading("tested", number), tmp_path)[0] == expected


@pytest.mark.slow
def test_another_source_may_be_included(pool: BuildPool, tmp_path: Path) -> None:
    for number in (1, 2):
        sources = (
            ("main.cpp", '#include"part.cpp"\nextern "C" int value() { return part(); }'),
            ("part.cpp", f"static int part() {{ return {number}; }}"),
        )
        assert value(pool, BuildRequest(name="parts", sources=sources), tmp_path) == (number, True)


@pytest.mark.slow
def test_the_systems_headers_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They change, vanish, and appear in a folder that is searched earlier; also for another process."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    monkeypatch.setenv("CPATH", f"{first}:{second}")
    request = BuildRequest(
        name="system",
        sources=(("main.cpp", '#include <x.h>\nextern "C" int value() { return X; }'),),
        include_paths=(str(first), str(second)),
    )
    (second / "x.h").write_text("#define X 1")
    time.sleep(0.05)
    for change, expected in (
        (lambda: None, (1, True)),
        (lambda: None, (1, False)),
        (lambda: (second / "x.h").write_text("#define X 2"), (2, True)),
        (lambda: (first / "x.h").write_text("#define X 3"), (3, True)),
        (lambda: (first / "x.h").unlink(), (2, True)),
        (lambda: (second / "other.h").write_text(""), (2, True)),
        (lambda: None, (2, False)),
    ):
        change()
        time.sleep(0.05)
        with closing(new_pool(tmp_path / "disk_cache")) as pool:
            assert value(pool, request, tmp_path) == expected


@pytest.mark.parametrize(
    "text",
    [
        'asm(".section .rodata\\n.incbin \\"/proc/uptime\\"\\n.text");',
        'asm(".section .rodata\\n.incbin \\"/proc/self/cwd/x.h\\"\\n.text");',
        '#if __has_include("/proc/self/cwd/x.h")\n#include "/proc/self/cwd/x.h"\n#endif',
    ],
)
@pytest.mark.slow
def test_what_cannot_be_checked_later_is_not_kept(pool: BuildPool, tmp_path: Path, text: str) -> None:
    request = BuildRequest(
        name="x", sources=(("main.cpp", f'{text}\nextern "C" int value() {{ return 1; }}'),), files=(("x.h", ""),)
    )
    built = pool.submit(request).result()
    if built.product is not None:
        assert built.reads is None
        assert value(pool, request, tmp_path) == (1, True)
    assert not list((tmp_path / "disk_cache").rglob("product/*"))


def test_what_takes_long_to_read_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source may name any files, without reading more than a byte of each."""
    paths = [tmp_path / f"{number}.h" for number in range(20)]
    for path in paths:
        path.write_bytes(bytes(1000))
    time.sleep(0.05)
    report = ("x: " + " ".join(map(str, paths))).encode()

    def known() -> bool:
        found = reads_of(Path("/nonexistent"), [report], files={}, began=time.time_ns(), readable=lambda _: True)
        return found is not None

    assert known()
    monkeypatch.setattr(dependencies, "_MOST_READ", 19_000)
    assert not known()
    monkeypatch.setattr(dependencies, "_MOST_READ", 20_000)
    assert known()
    monkeypatch.setattr(dependencies, "_MOST_FILES", 19)
    assert not known()


@given(st.lists(st.text(st.characters(exclude_characters="\0\n\r\\:$", exclude_categories=("Z", "C")), min_size=1)))
@settings(max_examples=200)
def test_names_in_makes_rules_are_read(names: list[str]) -> None:
    escaped = [name.replace(" ", "\\ ").replace("#", "\\#") for name in names]
    assert _names("../out/object.o: " + " \\\n ".join(escaped) + "\n") == names


@given(st.binary())
@settings(max_examples=200)
def test_any_report_is_read(tmp_path_factory: pytest.TempPathFactory, report: bytes) -> None:
    """It is a compiler's, which read a kernel."""
    directory = Path("/tmp")
    found = reads_of(directory, [b"x: " + report], files={}, began=time.time_ns(), readable=lambda _: True)
    assert found is None or all(found.values())


#: How a CUDA source names another file.
CUDA_WAYS = {
    "usual": '#include"x.h"',
    "on the device only": "#ifdef __CUDA_ARCH__\n#include <x.h>\n#else\n#define X 0\n#endif",
    "on the host only": '#ifdef __CUDA_ARCH__\n#define X 0\n#else\n#include "x.h"\nint value = X;\n#endif',
    "for one architecture": "#if __CUDA_ARCH__ == 800\n#include <x.h>\n#else\n#define X 0\n#endif",
    "tested": '#if __has_include("x.h")\n#include "x.h"\n#else\n#define X 0\n#endif',
    "assembler": '#define X 0\n#ifndef __CUDA_ARCH__\nasm(".section .rodata\\n.incbin \\"x.h\\"\\n.text");\n#endif',
}


@pytest.mark.slow
@pytest.mark.skipif(NVCC is None, reason="no nvcc")
def test_a_file_that_nvcc_reads_is_part_of_the_key(
    pool: BuildPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled and linked; running it is a GPU test."""
    link_without_cuda(tmp_path, monkeypatch)
    for way, text in CUDA_WAYS.items():
        source = ("kernel.cu", f"{text}\n__global__ void fill(int* x) {{ *x = X; }}\n")
        flags = ("-I.", "-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=sm_90")
        found = []
        for number in (1, 2, 1):
            request = BuildRequest(
                name="read",
                sources=(source,),
                files=(("x.h", f"#define X {number}"),),
                cuda_cflags=flags,
                with_cuda=True,
                architecture="9.0",
            )
            found.append(pool.submit(request).result())
        products = [built.product for built in found]
        assert None not in products, (way, found[0].log)
        assert products[0] != products[1], way
        assert (products[2], found[2].seconds) == (products[0], 0.0), way
