"""ptxas' report is read, and removed from the log that people read."""

from dataclasses import replace

from kbevolve.archive.records import Launch, Profile
from kbevolve.evaluators.builds.resources import (
    KernelResources,
    completed,
    merged,
    read_ptxas,
    without_ptxas,
)

REPORT = """\
ptxas info    : 12 bytes gmem
ptxas info    : Compiling entry function '_Z3sumPKfPfi' for 'sm_90a'
ptxas info    : Function properties for _Z3sumPKfPfi
    416 bytes stack frame, 408 bytes spill stores, 404 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 416 bytes cumulative stack size, 1024 bytes smem, 380 bytes cmem[0]
ptxas info    : Compile time = 8.032 ms
cuda.cu(3): warning #177-D: variable "x" was declared but never referenced
ptxas info    : Compiling entry function '_Z4reluPKfPfi' for 'sm_90a'
ptxas info    : Used 10 registers, used 0 barriers
"""


def test_registers_spills_and_shared_memory() -> None:
    assert read_ptxas(REPORT) == (
        KernelResources(
            name="_Z3sumPKfPfi", registers=255, stack=416, spill_stores=408, spill_loads=404, shared_memory=1024
        ),
        KernelResources(name="_Z4reluPKfPfi", registers=10),
    )


def test_only_warnings_remain_in_the_log() -> None:
    assert without_ptxas(REPORT) == 'cuda.cu(3): warning #177-D: variable "x" was declared but never referenced\n'


def test_the_number_of_kernels_is_limited() -> None:
    assert len(merged([read_ptxas(REPORT)] * 100)) == 64


def test_a_profile_is_completed_by_name_and_registers() -> None:
    launch = Launch(name="mine::sum", share=0.9, microseconds=9.0, launches=1.0, registers=255)
    other = replace(launch, name="at::native::sum", library=True)
    unknown = replace(launch, name="summary", registers=None)
    relu = replace(launch, name="relu", registers=None)
    found = completed(Profile(launches=(launch, other, unknown, relu)), read_ptxas(REPORT)).launches
    assert [known.spilled for known in found] == [408, None, None, 0]
    assert [known.registers for known in found] == [255, 255, None, 10]
