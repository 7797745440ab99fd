"""A Solution has the fields of FlashInfer-Bench's schema, builds as its Python builder does, and is the reference."""

import importlib
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from kbevolve.archive.records import Kernel
from kbevolve.evolve.exports.flashinfer_bench import flashinfer_bench
from kbevolve.evolve.exports.measured import MeasuredKernel
from tests.evolve.exports.kernels import GPU, PLAIN, PLAIN_KERNEL, measured, reference_of, weights_of

#: Field -> type, as flashinfer_bench.data.Solution, BuildSpec and SourceFile (0.1.2) want them.
SOLUTION = {"name": str, "definition": str, "author": str, "description": str, "spec": dict, "sources": list}
SPEC = {
    "language": str, "target_hardware": list, "entry_point": str, "destination_passing_style": bool,
    "dependencies": list,
}  # fmt: skip
SOURCE = {"path": str, "content": str}


def check(given: dict[str, Any], fields: dict[str, type]) -> None:
    assert {name: type(value) for name, value in given.items()} == fields
    assert all(value for value in given.values() if not isinstance(value, bool))


def build(found: MeasuredKernel, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Their Python builder in small: the sources become a package, and the entry point is imported from it."""
    solution = json.loads(flashinfer_bench(found))
    package = folder / f"built_{found.kernel.id}"
    package.mkdir()
    for source in solution["sources"]:
        (package / source["path"]).write_text(source["content"])
    monkeypatch.syspath_prepend(folder)
    file, _, symbol = solution["spec"]["entry_point"].partition("::")
    return getattr(importlib.import_module(f"{package.name}.{Path(file).stem}"), symbol)


def test_it_has_the_fields_of_the_schema() -> None:
    found = measured(task="fused_n5_k8", device=GPU)
    solution = json.loads(flashinfer_bench(found))
    check(solution, SOLUTION)
    check(solution["spec"], SPEC)
    for source in solution["sources"]:
        check(source, SOURCE)
    paths = [source["path"] for source in solution["sources"]]
    assert len(set(paths)) == len(paths)
    file, mark, symbol = solution["spec"]["entry_point"].partition("::")
    assert (file in paths, mark, symbol) == (True, "::", "run")
    assert solution["definition"] == "fused_n5_k8"
    assert solution["name"] == f"own_fused_py_{found.kernel.id}"
    assert solution["description"].startswith("Speedup over PyTorch eager: 4.00× [3.90, 4.10] by kbevolve")
    # The outputs are returned: their default is to write into arguments.
    assert solution["spec"] == {
        "language": "python", "target_hardware": ["NVIDIA_H100"], "entry_point": "main.py::run",
        "destination_passing_style": False, "dependencies": ["torch"],
    }  # fmt: skip
    assert Kernel.from_source(solution["sources"][1]["content"]).id == found.kernel.id


def test_a_triton_kernel_is_called_triton_and_needs_it() -> None:
    imports = "import math\nimport triton\nfrom triton.language import dot\n\n\n@triton.jit\ndef nothing():\n    pass\n"
    found = measured(source=imports + PLAIN_KERNEL, problem=PLAIN, task="softmax")
    spec = json.loads(flashinfer_bench(found))["spec"]
    assert (spec["language"], spec["dependencies"]) == ("triton", ["torch", "triton"])
    assert spec["target_hardware"] == ["cpu"]


def test_it_builds_and_computes_what_the_reference_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(task="fused")
    run = build(found, tmp_path, monkeypatch)
    for _ in range(2):
        model, inputs = reference_of(found)
        weights = weights_of(model)
        names = [*("x", "scale"), *(name.replace(".", "_") for name in weights)]
        assert list(inspect.signature(run).parameters) == names
        outputs = run(*inputs, *weights.values())  # they call by position, in the order of the definition
        assert isinstance(outputs, tuple)
        torch.testing.assert_close(outputs, tuple(one.detach() for one in model(*inputs)))


def test_without_weights_it_takes_the_inputs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = build(measured(source=PLAIN_KERNEL, problem=PLAIN, task="softmax"), tmp_path, monkeypatch)
    data = torch.randn(4, 7)
    torch.testing.assert_close(run(data), torch.softmax(data, -1))
