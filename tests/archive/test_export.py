"""An exported file is the kernel: same id and backend, its provenance readable, whatever the notes hold."""

import ast
import dataclasses
from datetime import UTC, datetime
from typing import Any

import pytest

from kbevolve import __version__
from kbevolve.archive.export import exported_source, without_header
from kbevolve.archive.lineage import main_line
from kbevolve.archive.parts import grouped
from kbevolve.archive.records import (
    Backend,
    Birth,
    BirthState,
    Evaluation,
    Kernel,
    LaunchCost,
    Operator,
    Profile,
    Run,
    Verdict,
)

RUN = Run(id="matmul-1", problem_name="L1/matmul", problem="0123", device="cpu/x", seed=3, settings="{}")
EVALUATION = grouped(Evaluation,
    kernel="k", problem="0123", device="cpu/x", precision="fp32", verdict=Verdict.CORRECT, error=4.9e-6,
    reference_error=5.1e-6, time_ms=0.5, reference_ms=2.0, speedup=4.0, speedup_low=3.9, speedup_high=4.1,
)  # fmt: skip

SOURCES = {
    "docstring": '"""A kernel."""\n\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass  # here\n',
    "no end of line": "class ModelNew: pass",
    "blank lines around": "\n\n\nclass ModelNew: pass\n\n\n",
    "windows": "import torch\r\n\r\nclass ModelNew:\r\n    pass\r\n",
    "future": "from __future__ import annotations\n\nclass ModelNew: ...\n",
    "comment first": "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\nclass ModelNew: ...\n",
    "unicode": "class ModelNew:\n    note = '漢字 × 🚀'\n",
    "c++": 'source = r"""\n#include <cmath>\nextern "C" void f() {} // here\n"""\nclass ModelNew: ...\n',
}


def export(kernel: Kernel, *, note: str = "BLOCK 8 -> 16", evaluation: Evaluation = EVALUATION) -> str:
    line = [
        Birth(
            run=RUN.id, generation=7 - n, island=0, slot=0, operator=Operator.TUNE, state=BirthState.CREATED,
            parents=(f"{n + 1:016x}", "f" * 16), kernel=f"{n:016x}", note=note,
        )
        for n in range(3)
    ]  # fmt: skip
    return exported_source(
        kernel,
        evaluation,
        run=RUN,
        device="A Test Processor, 2 threads",
        line=line,
        speedups={f"{0:016x}": 3.5, f"{1:016x}": None},
        command="kbevolve evaluate best.py --problem L1/matmul --device cpu",
        moment=datetime(2026, 11, 21, 8, 30, tzinfo=UTC),
    )


@pytest.mark.parametrize("name", SOURCES)
def test_the_file_is_the_kernel(name: str) -> None:
    kernel = Kernel.from_source(SOURCES[name])
    text = export(kernel)
    again = Kernel.from_source(text)
    assert (again.id, again.backend) == (kernel.id, kernel.backend)
    ast.parse(text)
    assert text.endswith("\n")
    assert Kernel.from_source(export(again)).id == kernel.id


def test_exporting_again_replaces_the_header() -> None:
    kernel = Kernel.from_source(SOURCES["docstring"])
    once = export(kernel)
    assert export(Kernel.from_source(once)) == once
    assert once.count("end of provenance") == 1
    assert without_header(once).strip() == kernel.source.strip()
    assert without_header(kernel.source) == kernel.source


@pytest.mark.parametrize(
    "note",
    [
        "two\nlines", "\r\nimport os", "page\x0cbreak", "line\u2028separator", "next\x85line", "\x00", "x" * 1000,
        "use tl.load( and @triton.jit <<<", '"""', "\\", "漢字 🚀",
    ],
)  # fmt: skip
def test_no_note_can_slip_out_of_its_comment(note: str) -> None:
    kernel = Kernel.from_source(SOURCES["docstring"])
    text = export(kernel, note=note)
    header = text[: text.index('"""A kernel')]
    assert all(line.startswith("#") or not line for line in header.splitlines())
    assert max(len(line) for line in header.splitlines()) <= 120
    again = Kernel.from_source(text)
    assert (again.id, again.backend) == (kernel.id, Backend.TORCH)


def test_the_header_says_where_it_comes_from() -> None:
    text = export(Kernel.from_source(SOURCES["docstring"]))
    for part in (
        f"# Exported by kbevolve {__version__} on 2026-11-21",
        "L1/matmul (text 0123)",
        "matmul-1, seed 3, generation 7",
        "A Test Processor, 2 threads (cpu/x)",
        "CORRECT, asked for fp32; error 4.9e-06 against the fp64 truth (the reference's own: 5.1e-06)",
        "4.000 times PyTorch eager, 95 % interval 3.900 to 4.100",
        "0.5 ms; eager 2 ms",
        "2026-11-21 08:30 UTC",
        "kbevolve evaluate best.py --problem L1/matmul --device cpu",
        f"{0:016x}  g7    tune       3.500x  BLOCK 8 -> 16, crossed with {'f' * 16}",
        f"{1:016x}  g6    tune           -   BLOCK",
    ):
        assert part in text


def test_the_header_names_kernelbenchs_way_of_timing_and_the_hosts_time_where_they_were_measured() -> None:
    kernel = Kernel.from_source(SOURCES["docstring"])
    cost = LaunchCost(
        host_ms=0.038, reference_host_ms=0.02, launches=7.0, kernelbench_ms=0.6, kernelbench_reference_ms=2.1,
        kernelbench_speedup=3.5,
    )  # fmt: skip
    text = export(kernel, evaluation=dataclasses.replace(EVALUATION, profile=Profile(launch_cost=cost)))
    assert "# KernelBench 3.50× over eager, 600 µs, eager 2.10 ms, by its way of timing (cuda_event)" in text
    assert "# launches    7 a call, for which the host needs 38.0 µs, eager 20.0 µs" in text
    assert max(len(line) for line in text.splitlines() if line.startswith("#")) <= 120
    unknown = dataclasses.replace(cost, launches=None)
    text = export(kernel, evaluation=dataclasses.replace(EVALUATION, profile=Profile(launch_cost=unknown)))
    assert "# launches    for a call the host needs 38.0 µs, eager 20.0 µs" in text
    assert "KernelBench" not in export(kernel)


def test_every_correct_kernel_of_a_run_can_be_exported(small_archive: Any) -> None:
    from kbevolve.archive.store import Archive

    with Archive(small_archive.path) as archive:
        kernels = archive.runs.kernels(small_archive.run.id)
    speedups = {kernel: one.timing.speedup for kernel, one in small_archive.evaluations.items()}
    for kernel in kernels.values():
        if speedups.get(kernel.id) is None:
            continue
        text = exported_source(
            kernel,
            dataclasses.replace(small_archive.evaluations[kernel.id]),
            run=small_archive.run,
            device="d",
            line=main_line(kernel.id, small_archive.births),
            speedups=speedups,
            command="kbevolve evaluate",
            moment=datetime.now(UTC),
        )
        assert Kernel.from_source(text).id == kernel.id
