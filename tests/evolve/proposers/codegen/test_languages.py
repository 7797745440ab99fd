"""Languages: which a device runs, what is missing, and how prompts and the judge's readers know them."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.records import Backend, Kernel, Operator
from kbevolve.configs.errors import SettingsError
from kbevolve.configs.examples import examples
from kbevolve.configs.playbook import load_playbook
from kbevolve.configs.sections import SearchSettings
from kbevolve.configs.settings import Language
from kbevolve.evaluators.lint import lint
from kbevolve.evolve.proposers.codegen import languages, prompts
from kbevolve.evolve.proposers.codegen.languages import (
    TITLES,
    check_backends,
    default_backends,
    obstacle,
    playbook_name,
)
from kbevolve.evolve.proposers.tuning.tunables import declared
from kbevolve.islands.niches import describe
from kbevolve.islands.policy import Policy
from tests.evolve.doubles import ScriptedModel
from tests.evolve.proposers.codegen.briefs import IDEAS, WHOLE, brief, proposer, script

H200, T4, MI300X = "NVIDIA H200, sm_90", "NVIDIA T4, sm_75", "AMD Instinct MI300X, gfx942"
#: Language -> a device that runs it.
DEVICES = {
    Backend.CPP: "Xeon",
    Backend.CUDA: H200,
    Backend.TRITON: H200,
    Backend.TILELANG: H200,
    Backend.CUTE: H200,
    Backend.THUNDERKITTENS: H200,
    Backend.HIP: MI300X,
}


def asked_for(model: ScriptedModel, backend: Backend, **settings: Any) -> str:
    """The prompt for a new file in a language."""
    kind = "cpu" if backend is Backend.CPP else "cuda"
    script(model, IDEAS, WHOLE)
    policy = Policy(name="one language", backend=backend)
    asked = brief(Operator.REWRITE, device_type=kind, device=DEVICES[backend], policy=policy)
    proposer(model, **settings).propose(asked)
    return model.requests[-1].last


def skeleton(model: ScriptedModel, backend: Backend) -> str:
    """The short complete file of the prompt."""
    return re.findall(r"A complete file of this kind.*?```python\n(.*?)```", asked_for(model, backend), re.DOTALL)[0]


def test_every_language_has_a_title_and_a_device() -> None:
    assert set(TITLES) == set(Backend)
    assert set(DEVICES) == set(Backend) - {Backend.TORCH}
    assert {one.value for one in DEVICES} == set(Language.__args__)  # type: ignore[attr-defined]
    assert {playbook_name(one) for one in DEVICES} == {"cpp", "cuda", "triton"}


@pytest.mark.parametrize("backend", DEVICES)
def test_the_skeleton_of_a_language_is_a_kernel_in_it(model: ScriptedModel, backend: Backend) -> None:
    source = skeleton(model, backend)
    kernel = Kernel.from_source(source)
    assert kernel.backend is backend
    assert "ModelNew" in [node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    assert declared(source)
    found = lint(source, allow_library="none")
    assert found.refusal == ""
    assert not {"library-only", "library-light", "third-party", "unreadable"} & set(found.tags)
    assert describe(kernel).endswith("l0"), "one launch"


@pytest.mark.parametrize("backend", DEVICES)
def test_ideas_of_the_playbook_fit_the_language(model: ScriptedModel, backend: Backend) -> None:
    asked_for(model, backend)
    ideas = model.requests[0].last
    assert f"in {TITLES[backend]}." in ideas
    shown = [idea for idea in load_playbook().ideas if f"- {idea.title} (" in ideas]
    assert shown
    assert all(playbook_name(backend) in idea.backends for idea in shown)


def test_gluon_counts_as_triton(model: ScriptedModel) -> None:
    source = prompts.skeleton_text("gluon")
    kernel = Kernel.from_source(source + "\n\nclass ModelNew: ...\n")
    assert kernel.backend is Backend.TRITON
    assert describe(kernel).startswith("m3c3d3")
    assert "library-only" not in lint(kernel.source).tags
    device = f"{H200}, Triton 3.6.0"
    script(model, IDEAS, WHOLE)
    asked = brief(Operator.REWRITE, device_type="cuda", device=device, policy=Policy(name="t", backend=Backend.TRITON))
    proposer(model).propose(asked)
    assert "Gluon (triton.experimental.gluon)" in model.requests[1].last
    assert "Gluon counts as Triton." in model.requests[0].last


@pytest.mark.parametrize(
    ("option", "files", "example"), [("zero_shot", False, False), ("one_shot", True, False), ("few_shot", True, True)]
)
def test_a_prompt_has_as_many_examples_as_the_setting_says(
    model: ScriptedModel, option: str, files: bool, example: bool
) -> None:
    code = asked_for(model, Backend.CPP, prompt_option=option)
    assert ("A complete file of this kind" in code) is files
    titles = re.findall(r"^Example: (.*)\. The problem:$", code, re.MULTILINE)
    assert titles == (
        [
            "A bias and GELU in one pass",
            "A tiled matrix product",
            "Attention that never writes its scores (flash attention, minimal)",
        ]
        if example
        else []
    )


@pytest.mark.parametrize("backend", DEVICES)
def test_the_examples_of_a_language_are_shown_whole(model: ScriptedModel, backend: Backend) -> None:
    code = asked_for(model, backend, prompt_option="few_shot")
    known = examples(backend.value)
    shown = [one for one in known if f"```python\n{one.kernel.strip()}\n```" in code]
    assert [one.title for one in shown] == [one.title for one in known] != []


def test_an_edit_needs_no_example(model: ScriptedModel) -> None:
    script(model, IDEAS, WHOLE)
    proposer(model, prompt_option="few_shot").propose(brief(Operator.MUTATE))
    assert "Example: " not in model.requests[1].last


def test_a_gpu_of_amd_writes_hip() -> None:
    assert default_backends("cuda", MI300X) == (Backend.HIP, Backend.TRITON)
    assert default_backends("cuda", H200) == (Backend.CUDA, Backend.TRITON)


def named(*names: str) -> SearchSettings:
    return SearchSettings.model_validate({"island_backends": names} if len(names) > 1 else {"backend": names[0]})


@pytest.mark.parametrize(
    ("search", "device", "message"),
    [
        (
            named("tilelang"),
            H200,
            r"^search\.backend=tilelang: the package tilelang is not installed; pip install '",
        ),
        (
            named("triton", "cute"),
            H200,
            r"^search\.island_backends=cute: the package nvidia-cutlass-dsl is not",
        ),
        (named("thunderkittens"), H200, r"no /nowhere/include/kittens\.cuh; git clone https://\S+ /nowhere \("),
        (named("thunderkittens"), T4, r"ThunderKittens is for Hopper and Blackwell; take --backend cuda"),
        (
            named("hip"),
            H200,
            r"^search\.backend=hip: kernels for this cuda device are written in cuda or triton",
        ),
        (named("cuda"), MI300X, r"^search\.backend=cuda: kernels for this cuda device are written in hip or triton or"),
    ],
)
def test_what_is_missing_is_one_line(
    search: SearchSettings, device: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(languages, "find_spec", lambda name: None)
    monkeypatch.setattr(languages, "KITTENS", Path("/nowhere/include/kittens.cuh"))
    with pytest.raises(SettingsError, match=message) as caught:
        check_backends(search, "cuda", device)
    assert "\n" not in str(caught.value)


def test_a_kernel_of_cute_also_needs_tvm_ffi(monkeypatch: pytest.MonkeyPatch) -> None:
    """With CUTLASS's package alone its launches do not compile: seen on an H100, 2026-11-26."""
    monkeypatch.setattr(languages, "find_spec", lambda name: None if name == "tvm_ffi" else object())
    assert obstacle(Backend.CUTE, H200).startswith("the package apache-tvm-ffi is not installed; pip install '")


def test_what_is_there_is_accepted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(languages, "find_spec", lambda name: object())
    monkeypatch.setattr(languages, "KITTENS", tmp_path)
    check_backends(named("triton", "tilelang", "cute", "thunderkittens", "cuda"), "cuda", H200)
    check_backends(named("hip", "tilelang"), "cuda", MI300X)
    check_backends(SearchSettings(), "cpu", "Xeon")
