"""Traits of machine code, from real excerpts and from what the builders compile."""

import platform
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kbevolve.archive.records import Trait
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.builds import listings
from kbevolve.evaluators.builds.build_request import BuildRequest
from kbevolve.evaluators.builds.disassembly import x86_traits
from kbevolve.evaluators.builds.pool import BuildPool
from kbevolve.evaluators.builds.traits import merged_traits, traits_of, united
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.sandbox.build_protocol import BuildResult, WorkerBuild

VECTOR, SHARED, ASYNC, STREAMING, SHUFFLES, PACKED, MATRIX, ATOMICS = Trait

#: The parts that matter of what objdump 2.40 printed of GCC 12's objects; the numbers are theirs.
LOOP = """
  80:\tvmovups (%rdi,%rax,1),%ymm1
  85:\tvfmadd213ps (%rsi,%rax,1),%ymm0,%ymm1
  8b:\tvmovups %ymm1,(%rsi,%rax,1)
"""
STREAM = """
 441:\tvmulps %zmm0,%zmm2,%zmm2
 447:\ttest   $0x3f,%dl
 450:\tvmovntps %zmm2,(%rdx)
"""
SCALAR = """
  3d:\tvmovss (%rdi,%rax,4),%xmm0
  42:\tvxorps %xmm5,%xmm5,%xmm5
  46:\tvcvtps2pd %xmm0,%xmm1
  4a:\tvaddss (%rsi,%rax,4),%xmm0,%xmm0
"""
#: A tensor that is moved, and its count of references.
TENSOR = """
    1c6b:\tlock xadd %rdx,0x8(%rax)
    1eff:\tvxorps %xmm6,%xmm6,%xmm6
    1fb3:\tvmovdqu %ymm0,-0x58(%rbp)
    200f:\tvmovdqu 0x8(%rbx),%ymm1
    2014:\tvmovdqu %ymm1,0x8(%r12)
"""
#: Everything in registers, on the stack, or a constant.
REGISTERS = """
  10:\tvmovaps 0x0(%rip),%ymm2        # 18 <f+0x18>
  18:\tvmulps %ymm2,%ymm1,%ymm1
  1c:\tvmovaps %ymm1,0x20(%rsp)
  22:\tvaddps -0x58(%rbp),%ymm1,%ymm1
"""
BINDINGS = """
  80:\tvmovdqu64 (%rdx,%rcx,1),%zmm2
  a5:\tvpaddq %zmm3,%zmm0,%zmm0
"""


def function(name: str, body: str) -> str:
    return f"0000000000000000 <{name}>:{body}"


@pytest.mark.parametrize(
    ("name", "body", "shown"),
    [
        ("f", LOOP, (VECTOR, PACKED)),
        ("gelu._omp_fn.0", STREAM, (VECTOR, STREAMING, PACKED)),
        ("f", SCALAR, ()),
        ("_Z8softplusN2at6TensorE", TENSOR, ()),
        ("f", REGISTERS, (PACKED,)),
        ("_ZN8pybind116detail8instance15allocate_layoutEv", BINDINGS, ()),
        ("f", BINDINGS, (VECTOR, PACKED)),
        ("f", "\n 6:\tprefetcht0 0x400(%rdi)\n", (ASYNC,)),
        ("f", "\n 6:\tpush   (%rdi)\n 8:\tvpaddd %xmm1,%xmm0,%xmm0\n", ()),
        ("f", "\n 6:\ttdpbf16ps %tmm2,%tmm1,%tmm0\n", (MATRIX,)),
        ("sum._omp_fn.0", "\n 60:\tlock cmpxchg %ecx,(%rdx)\n", (ATOMICS,)),
    ],
)
def test_traits_of_a_function(name: str, body: str, shown: tuple[Trait, ...]) -> None:
    assert x86_traits(f"\nx.o:     file format elf64-x86-64\n\n\n{function(name, body)}") == shown


def test_vector_access_needs_arithmetic_in_the_same_function() -> None:
    apart = "\n\n".join((function("move", TENSOR), function("add", REGISTERS)))
    assert x86_traits(apart) == (PACKED,)
    assert x86_traits(function("both", TENSOR + REGISTERS.lstrip("\n"))) == (VECTOR, PACKED)


# ---- what the builders make -----------------------------------------------------------------------------------------

needs_objdump = pytest.mark.skipif(
    platform.machine() != "x86_64" or shutil.which("objdump") is None, reason="no disassembler for this machine"
)

VECTORISED = """
typedef float vec __attribute__((vector_size(32)));
extern "C" void scale(const vec* x, vec* y, long n) {
  for (long i = 0; i < n; i++) {
    __builtin_prefetch(x + i + 64);
    y[i] = x[i] * 3.0f + 1.0f;
  }
}
"""
ONE_BY_ONE = """
extern "C" void scale(const float* x, float* y, long n) {
  for (long i = 0; i < n; i++) y[i] = x[i] * 3.0f + 1.0f;
}
"""
NOT_UNROLLED = ("-O2", "-fno-tree-vectorize")


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[BuildPool]:
    settings = EvaluationSettings(build_seconds=60)
    with closing(BuildPool(find_device("cpu"), settings, DiskCache(tmp_path / "disk_cache"), width=2)) as pool:
        yield pool


def built(pool: BuildPool, *texts: str, cflags: tuple[str, ...] = ("-O3", "-mavx2", "-mfma")) -> BuildResult:
    sources = tuple((f"part{number}.cpp", text) for number, text in enumerate(texts))
    outcome = pool.submit(BuildRequest(name="scale", sources=sources, cflags=cflags)).result()
    assert outcome.product is not None, outcome
    return outcome


@needs_objdump
@pytest.mark.slow
def test_a_built_library_has_traits(pool: BuildPool) -> None:
    assert built(pool, VECTORISED).traits == (VECTOR, ASYNC, PACKED)
    assert built(pool, VECTORISED).seconds == 0.0
    assert built(pool, VECTORISED).traits == (VECTOR, ASYNC, PACKED), "not kept"
    assert built(pool, ONE_BY_ONE).traits == (VECTOR, PACKED), "the compiler vectorises"
    assert built(pool, ONE_BY_ONE, cflags=NOT_UNROLLED).traits == ()


@needs_objdump
@pytest.mark.slow
def test_traits_include_sources_that_were_compiled_before(pool: BuildPool) -> None:
    other = ONE_BY_ONE.replace("scale", "other")
    built(pool, other, cflags=NOT_UNROLLED)
    built(pool, VECTORISED, cflags=NOT_UNROLLED)
    assert built(pool, VECTORISED, other, cflags=NOT_UNROLLED).traits == (VECTOR, ASYNC, PACKED)


@needs_objdump
def test_link_time_code_has_no_traits_yet(pool: BuildPool) -> None:
    assert built(pool, VECTORISED, cflags=("-O2", "-flto")).traits is None


def test_without_a_disassembler_traits_are_unknown(pool: BuildPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listings, "_objdump", lambda: None)
    assert built(pool, VECTORISED).traits is None


@pytest.mark.parametrize(
    "program",
    ["exit 1", "kill -9 $$", "echo 'half a listing'; exit 3", pytest.param("sleep 60", marks=pytest.mark.slow)],
)
def test_a_disassembler_that_fails_is_no_failure_of_the_build(
    pool: BuildPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    fake = tmp_path / "objdump"
    fake.write_text(f"#!/bin/sh\n{program}\n")
    fake.chmod(stat.S_IRWXU)
    monkeypatch.setenv("LIBRARY_PATH", str(tmp_path))  # where a compiler may read
    monkeypatch.setattr(listings, "_objdump", lambda: str(fake))
    assert built(pool, VECTORISED).traits is None
    fake.write_text("#!/bin/sh\nprintf '\\tprefetcht0 (%%rax)\\n'\n")
    assert built(pool, ONE_BY_ONE).traits == (ASYNC,), "it was not run at all"


def test_texts_of_confined_processes_are_read_with_care(tmp_path: Path) -> None:
    text = "\tmma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f2};\n"
    assert listings.listed_traits("main.cu", tmp_path, b"") is None, "no PTX"
    kept = tmp_path / "out" / "kept"
    kept.mkdir(parents=True)
    (kept / "main.compute_80.ptx").write_text("\tld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];\n")
    (kept / "main.compute_90a.ptx").write_text(text)
    assert listings.listed_traits("main.cu", tmp_path, b"") == (VECTOR, MATRIX)
    (kept / "other.ptx").symlink_to("/etc/hostname")
    assert listings.listed_traits("main.cu", tmp_path, b"") is None


@pytest.mark.slow
def test_what_is_searched_takes_little_time(tmp_path: Path) -> None:
    """A kernel decides what names and comments stand in these texts."""
    kept = tmp_path / "out" / "kept"
    kept.mkdir(parents=True)
    long = "\tvpaddd " * 1_500_000
    for text in (long, "/*" * 4_000_000, "a." * 4_000_000, '.file 1 "/*"\n' * 500_000, "\n" * 8_000_000):
        (kept / "main.ptx").write_text(text)
        (tmp_path / "out" / "listing").write_text(f"<f>:\n{text}")
        began = time.monotonic()
        listings.listed_traits("main.cu", tmp_path, b"")
        listings.listed_traits("main.cpp", tmp_path, b"")
        assert time.monotonic() - began < 20


def test_nvcc_keeps_its_ptx_in_a_separate_folder(tmp_path: Path) -> None:
    command = ("nvcc", "-O3", "-c", "main.cu", "-o", "object.o")
    (tmp_path / "out").mkdir()
    assert listings.with_listing(command, "main.cu", tmp_path) == (*command, "--keep", "--keep-dir", "../out/kept")
    assert (tmp_path / "out" / "kept").is_dir()


# ---- from all reports -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("report", "read"),
    [
        (None, None),
        ("matrix units", None),
        ({"matrix units": 1}, None),
        ([], ()),
        (["atomics", "telepathy", 3, None, "vector access", "atomics"], (VECTOR, ATOMICS)),
    ],
)
def test_a_workers_report_is_checked(report: object, read: tuple[Trait, ...] | None) -> None:
    assert traits_of(report) == read


def test_one_unknown_part_makes_all_unknown() -> None:
    assert united([]) is None
    assert united([(PACKED,), None]) is None
    assert united([(PACKED,), (), (VECTOR, PACKED)]) == (VECTOR, PACKED)


def test_reports_of_builders_and_worker_are_combined() -> None:
    def build(traits: tuple[Trait, ...] | None, product: bytes | None = b"library") -> WorkerBuild:
        return WorkerBuild.of({}, BuildResult(product=product, traits=traits))

    assert merged_traits([], None) is None
    assert merged_traits([], (MATRIX,)) == (MATRIX,)
    assert merged_traits([build(())], None) == ()
    assert merged_traits([build((ATOMICS,)), build(None, product=None)], (MATRIX,)) == (MATRIX, ATOMICS)
    assert merged_traits([build(None)], (MATRIX,)) is None
