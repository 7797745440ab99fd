import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.landscapes.__main__ import main
from benchmarks.landscapes.failing import failing
from benchmarks.landscapes.measure import measure_all, ratios, settings
from benchmarks.landscapes.pack import packed, summary
from benchmarks.landscapes.spaces import Space, spaces
from benchmarks.throughput import lines
from kbevolve.archive.records import Backend, Evaluation, Kernel, Measurement, Verdict
from kbevolve.configs.errors import UsageError
from kbevolve.configs.problem import Problem
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evolve.proposers.tuning.tunables import values_of, with_values
from kbevolve.evolve.simulation.measured import packaged, parse_landscape

ALL = [*spaces().values(), *spaces(small=True).values()]
SMALL = spaces(small=True)["softmax"]


def line(space: Space, configuration: dict[str, str], number: int = 0, **other: Any) -> dict[str, Any]:
    """A line as `measure` writes it; the reference drifts from one to the next, the ratios do not."""
    return {
        "space": space.name,
        "problem": space.problem.id,
        "device": "a device",
        "configuration": configuration,
        "verdict": "CORRECT",
        "message": "",
        "reference_ms": 0.2 * (1 + 0.01 * number),
        "ratios": [0.5 + 0.1 * number, 0.51 + 0.1 * number, 0.505 + 0.1 * number],
        **other,
    }


def test_three_real_spaces_or_more_of_500_to_700_triton_kernels() -> None:
    assert len(spaces()) >= 3
    for space in spaces().values():
        assert 500 <= space.size <= 700
        assert space.kernel(space.declared).backend is Backend.TRITON


@pytest.mark.parametrize("space", ALL, ids=lambda space: f"{space.name}-{space.size}")
def test_configurations_are_kernels_of_their_own_and_the_declared_one_is_first(space: Space) -> None:
    everything = space.configurations()
    assert everything[0] == space.declared
    assert space.configurations() == everything
    assert len({with_values(space.source, configuration) for configuration in everything}) == space.size
    for configuration in everything[::50]:
        values = values_of(space.kernel(configuration).source)
        assert {name: values[name] for name in configuration} == configuration
    assert set(space.niche) <= set(space.values)


@pytest.mark.parametrize("space", ALL, ids=lambda space: f"{space.name}-{space.size}")
def test_a_problem_is_small_on_every_device(space: Space) -> None:
    assert space.problem.source_for("cpu") == space.problem.source_for("cuda")
    assert all(f"{name} = {size}\n" in space.problem.source for name, size in space.problem.cpu_sizes.items())


def test_judging_is_cheap_but_has_several_rounds() -> None:
    found = settings(find_device("cpu"))
    assert (found.trials, found.least_rounds, found.rounds) == (2, 4, 4)
    assert not found.profile
    assert not found.baselines


def test_a_ratio_is_of_one_round() -> None:
    blocks = [
        Measurement(role="reference", round=1, times_ms=(4.0, 4.0, 9.0)),
        Measurement(role="child", round=1, times_ms=(1.0, 2.0, 8.0)),
        Measurement(role="child", round=0, times_ms=(3.0,)),
        Measurement(role="reference", round=0, times_ms=(2.0,)),
    ]
    assert ratios(blocks) == [1.5, 0.25]


def test_lines_become_a_landscape_in_which_drift_cancels() -> None:
    found = [line(SMALL, one, number) for number, one in enumerate(SMALL.configurations()[:4])]
    found.append(line(SMALL, SMALL.configurations()[4], verdict="WRONG", message="off by 3\nmore", ratios=[]))
    text = packed(list(reversed(found)), SMALL, about="a test")
    landscape = parse_landscape(text, origin="text")
    assert text.count("\n") < 20
    assert landscape.reference_ms == pytest.approx(0.203)
    assert landscape.start() == ((0, 0, 0),)
    assert landscape.results[0, 0, 0] == pytest.approx([0.1015, 0.1035, 0.1025], abs=1e-4)
    shown = summary(landscape)
    assert (shown["configurations"], shown["errors"], shown["niches"]) == (5, 0.2, 2)
    assert shown["best"] == {"PASSES": "three", "LANES": 1, "RECIPROCAL": 0}
    assert shown["best_speedup"] == pytest.approx(1 / 0.505, abs=0.01)
    assert shown["signatures"] == ["WRONG: off by #"]
    assert 0.3 < shown["spread_percent"][1] < 1.5


def test_times_keep_four_digits() -> None:
    text = packed([line(SMALL, SMALL.declared, ratios=[1 / 3])], SMALL, about="")
    assert '[["three",1,0],[0.06667]]' in text


def test_what_was_never_timed_is_no_landscape() -> None:
    with pytest.raises(SystemExit, match="none of 1 configurations of softmax was timed"):
        packed([line(SMALL, SMALL.declared, ratios=[])], SMALL, about="")


def test_a_file_of_something_else_is_not_continued(tmp_path: Path) -> None:
    out = tmp_path / "lines.jsonl"
    lines.append(out, line(SMALL, SMALL.declared))
    with pytest.raises(SystemExit, match="name another file with --out"):
        measure_all(SMALL, find_device("cpu"), out)


def test_what_is_in_the_file_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device, out = find_device("cpu"), tmp_path / "lines.jsonl"
    for configuration in SMALL.configurations():
        lines.append(out, line(SMALL, configuration, device=device.description))
    monkeypatch.setattr("benchmarks.landscapes.measure.Judge", None)  # would be called for whatever is left
    assert measure_all(SMALL, device, out) == 0
    assert len(lines.read(out)) == SMALL.size


def test_commands_go_from_lines_to_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found, landscape = tmp_path / "lines.jsonl", tmp_path / "landscape.json"
    for number, configuration in enumerate(SMALL.configurations()):
        lines.append(found, line(SMALL, configuration, number))

    def command(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["landscapes", *arguments])
        main()
        return capsys.readouterr().out

    assert "matmul" in command("ls")
    command("pack", str(found), "--small", "--out", str(landscape), "--about", "here")
    assert json.loads(landscape.read_text())["about"] == "here"
    assert json.loads(command("show", str(landscape)))["configurations"] == SMALL.size
    with pytest.raises(SystemExit, match="is --small right"):
        command("pack", str(found))
    with pytest.raises(SystemExit, match="no space 'conv'; there are matmul"):
        command("measure", "conv")


def test_what_was_refused_is_measured_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device, out = find_device("cpu"), tmp_path / "lines.jsonl"
    everything = SMALL.configurations()
    for configuration in everything:
        lines.append(out, line(SMALL, configuration, device=device.description))
    asked = []

    class Judged:
        """A judge that refuses everything."""

        width = 1

        def __init__(self, *_: object, **__: object) -> None: ...

        def __enter__(self) -> "Judged":
            return self

        def __exit__(self, *_: object) -> None: ...

        def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
            asked.append(kernel.id)
            return Evaluation(
                kernel=kernel.id, problem=problem.id, device="", precision="fp32", verdict=Verdict.REFUSED, message="no"
            )

    monkeypatch.setattr("benchmarks.landscapes.measure.Judge", Judged)
    found = lines.read(out)
    out.write_text("")
    for number, one in enumerate(found):
        lines.append(out, one | ({"verdict": "REFUSED", "ratios": []} if number == 3 else {}))
    for _ in range(3):
        measure_all(SMALL, device, out)
    assert asked == [SMALL.kernel(everything[3]).id]
    assert len(lines.read(out)) == SMALL.size + 1


@pytest.mark.slow
def test_a_space_is_measured_and_gone_on_with(tmp_path: Path) -> None:
    """Two configurations through a real judge; then a stop in the middle of a line."""
    space = replace(SMALL, values={"LANES": ("1", "8")}, niche=())
    cpu, out = find_device("cpu"), tmp_path / "lines.jsonl"
    assert measure_all(space, cpu, out, seconds=-1, width=1) == 2
    assert not lines.read(out)
    assert measure_all(space, cpu, out, width=1) == 0
    first, second = lines.read(out)
    assert [one["configuration"] for one in (first, second)] == [{"LANES": "1"}, {"LANES": "8"}]
    # On an overloaded machine the judge may doubt its clock; then there is a message.
    assert all(len(one["ratios"]) >= 3 if one["verdict"] == "CORRECT" else one["message"] for one in (first, second))
    if not first["ratios"]:
        pytest.skip(f"the machine is overloaded: {first['message']}")
    out.write_text(json.dumps(first) + "\n" + json.dumps(second)[:40])
    assert measure_all(space, cpu, out, width=1) == 0
    again, last = lines.read(out)
    assert again == first
    assert last["configuration"] == second["configuration"]
    assert len(parse_landscape(packed([again, last], space, about=""), origin="text").results) == 2


def test_configurations_that_meet_a_rule_fail() -> None:
    whole = packaged()["matmul"]
    text = failing(whole, ["SPLIT=1", "BLOCK_M=128,BLOCK_K=64"])
    found = parse_landscape(text, origin="fails.json")
    for program in whole.results:
        own = whole.values(program)
        fails = own["SPLIT"] == 1 or (own["BLOCK_M"], own["BLOCK_K"]) == (128, 64)
        assert (found.failure(program) is not None) == fails
        assert fails or found.results[program] == whole.results[program]
    assert found.axes == whole.axes
    with pytest.raises(UsageError, match="BLOCK_M has no value 5; its values are 32, 64, 128"):
        failing(whole, ["BLOCK_M=5"])
    with pytest.raises(UsageError, match="'BLOCK=5' is no NAME=VALUE"):
        failing(whole, ["BLOCK=5"])
