"""The hand-written seeds as text: tunables that parse, CUDA that compiles. No GPU is needed."""

import ast
import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest

from kbevolve.archive.identity import backend_of
from kbevolve.configs.seeds import seed_files
from kbevolve.evolve.proposers.tuning.tunables import declared, with_values

NAMES = ("L1/matmul", "L1/softmax", "L1/layernorm", "L1/gelu", "L1/sum_reduce", "L2/gemm_bias_relu")
FILES = [(name, path) for name in NAMES for path in seed_files(name, "cuda")]
IDS = [f"{name}/{path.stem}" for name, path in FILES]
ALL = FILES + [(name, path) for name in NAMES for path in seed_files(name, "cpu")]


def cuda_text(source: str) -> str:
    """The CUDA part of a seed, which is the string SOURCE."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SOURCE":
            return str(ast.literal_eval(node.value))
    raise AssertionError("no SOURCE at the top level")


def test_every_problem_has_both() -> None:
    assert sorted((name, path.stem) for name, path in FILES) == sorted(
        (name, stem) for name in NAMES for stem in ("cuda", "triton")
    )


@pytest.mark.parametrize("path", [path for _, path in ALL], ids=[f"{name}/{path.stem}" for name, path in ALL])
def test_every_tunable_parses_and_its_value_is_allowed(path: Path) -> None:
    source = path.read_text()
    lines = [line for line in source.splitlines() if "tune:" in line]
    tunables = declared(source)
    assert len(tunables) == len(lines)
    assert 4 <= len(tunables) <= 9
    for tunable, line in zip(tunables, lines, strict=True):
        # A value outside its list would have become one more choice.
        assert line.endswith(" tune: " + ", ".join(tunable.choices))
        assert 2 <= len(tunable.choices) <= 5
        assert f"``{tunable.name}``" in source, f"{tunable.name}: the docstring does not say what it does"


@pytest.mark.parametrize(("name", "path"), FILES, ids=IDS)
def test_every_setting_is_a_self_contained_file(name: str, path: Path) -> None:
    rng = Random(name)
    source = path.read_text()
    for _ in range(3):
        variant = with_values(source, {tunable.name: rng.choice(tunable.choices) for tunable in declared(source)})
        tree = ast.parse(variant)
        assert "ModelNew" in [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        assert not {module for module in modules if module.startswith("kbevolve")}
        assert backend_of(variant) == path.stem


def test_cuda_seeds_stay_in_the_fast_lane() -> None:
    for _, path in FILES:
        if path.stem == "cuda":
            text = cuda_text(path.read_text())
            includes = [line for line in text.splitlines() if line.startswith("#include")]
            # Each of torch's headers would cost tens of seconds a build.
            assert includes == ["#include <cstdint>"], path
            assert 'extern "C" int ' in text
            assert "cudaGetLastError()" in text


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize("capability", ["80", "90"])
@pytest.mark.parametrize("name", NAMES)
def test_cuda_seeds_compile(name: str, capability: str, tmp_path: Path) -> None:
    (path,) = (path for path in seed_files(name, "cuda") if path.stem == "cuda")
    source = path.read_text()
    switches = {tunable.name: "1" for tunable in declared(source) if tunable.choices == ("0", "1")}
    for values in ({}, switches):
        (tmp_path / "seed.cu").write_text(cuda_text(with_values(source, values)))
        flags = [
            f"-gencode=arch=compute_{capability},code=sm_{capability}",
            "-Werror",
            "all-warnings",
            "-Xcompiler=-fPIC",
        ]
        done = subprocess.run(
            ["nvcc", *flags, "-c", "seed.cu", "-o", "seed.o"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
