"""Landscapes from files: what is read, how noise is drawn, and how a wrong file is refused."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kbevolve.archive.records import Verdict
from kbevolve.configs.errors import UsageError
from kbevolve.evolve.simulation.measured import MeasuredLandscape, parse_landscape, read_landscape


def parsed(tree: dict[str, Any]) -> MeasuredLandscape:
    return parse_landscape(json.dumps(tree), origin="x.json")


def test_a_file_is_read(tree: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(tree))
    landscape = read_landscape(path)
    assert (landscape.name, landscape.about, landscape.reference_ms) == ("small", "made up", 1.5)
    assert [(gene.name, gene.choices) for gene in landscape.genes] == [("TILE", 4), ("WARPS", 3), ("SPLIT", 3)]
    assert landscape.values((3, 1, 1)) == {"TILE": 128, "WARPS": 4, "SPLIT": "fp16"}
    assert landscape.start() == ((0, 0, 0),)
    assert landscape.optimum == landscape.true_value((3, 1, 1))


def test_values_are_log_speedups_by_the_median(tree: dict[str, Any]) -> None:
    tree["values"] = [[[16, 2, "none"], [1.0, 3.0, 2.0]]]
    landscape = parsed(tree)
    assert landscape.true_value((0, 0, 0)) == pytest.approx(math.log(1.5 / 2.0))
    drawn = {sample for seed in range(20) for sample in landscape.measure((0, 0, 0), Random(seed))}  # type: ignore[union-attr]
    assert drawn == {math.log(1.0 / 1.5), math.log(3.0 / 1.5), math.log(2.0 / 1.5)}


def test_what_is_not_in_the_file_is_not_measured(tree: dict[str, Any]) -> None:
    landscape, missing = parsed(tree), (0, 2, 0)
    failure = landscape.failure(missing)
    assert not landscape.exists(missing)
    assert failure is not None
    assert failure.signature == "not measured"
    assert landscape.measure(missing, Random(0)) == failure


def test_one_cause_is_one_signature(tree: dict[str, Any]) -> None:
    failures = {parsed(tree).failure((3, warps, 2)) for warps in range(3)}
    (failure,) = failures
    assert failure is not None
    assert failure.verdict is Verdict.BUILD_FAILED
    assert failure.signature == "BUILD_FAILED: out of shared memory: # bytes"


@pytest.mark.parametrize(
    ("text", "verdict", "repairable"),
    [
        ("WRONG: error 0.5", Verdict.WRONG, True),
        ("TIMED_OUT: 30 s", Verdict.TIMED_OUT, False),
        ("InvalidConfigFailure", Verdict.CRASHED, True),
        ("CORRECT: it is not", Verdict.CRASHED, True),
    ],
)
def test_an_error_is_a_failure_of_its_class(
    tree: dict[str, Any], text: str, verdict: Verdict, repairable: bool
) -> None:
    tree["values"].append([[16, 8, "none"], text])
    failure = parsed(tree).failure((0, 2, 0))
    assert failure is not None
    assert failure.verdict is verdict
    assert failure.verdict.repairable is repairable


def test_niches_are_of_the_named_parameters_and_in_groups(tree: dict[str, Any]) -> None:
    tree["parameters"][0][1] = [16, 32, 64, 128, *range(1000, 1012)]
    assert parsed(tree | {"niche": ["TILE"]}).niche((0, 2, 2)) == "0"
    assert {parsed(tree | {"niche": ["TILE"]}).niche((at, 0, 0)) for at in range(16)} == {"0", "1", "2", "3"}
    assert parsed(tree).niche((15, 1, 2)) == "1-2-3"  # those with the fewest values first


def spoilt(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda tree: tree.__setitem__(key, value)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda tree: tree.pop("unit"), "lacks unit"),
        (spoilt("paramters", []), "no key 'paramters' in the format. Nearest: parameters"),
        (spoilt("format", 2), "format is 2: input should be 1"),
        (spoilt("unit", "s"), "unit is s: input should be 'ms'"),
        (spoilt("name", 3), "name is 3: input should be a valid string"),
        (spoilt("reference_ms", 0), "reference_ms is 0: input should be greater than 0"),
        (spoilt("reference_ms", 10**400), "reference_ms is 1000"),
        (spoilt("parameters", []), "parameters is []: list should have at least 1 item"),
        (spoilt("parameters", [["TILE", []]]), "parameters[0][1] is []"),
        (spoilt("parameters", [["TILE", [1]], ["TILE", [2]]]), "parameters: 'TILE' is there twice"),
        (spoilt("parameters", [["TILE", [1, 1]]]), "TILE: 1 is there twice"),
        (spoilt("parameters", [["TILE", [[1]]]]), "parameters[0][1][0] is [1]"),
        (spoilt("values", {}), "values is {}"),
        (spoilt("values", []), "none of 0 configurations has timings"),
        (spoilt("values", [[[16, 2, "none"], "no"]]), "none of 1 configurations has timings"),
        (spoilt("values", [[16, 2, "none"]]), "values[0] is [16, 2, 'none']: tuple should have at most 2 items"),
        (spoilt("values", [[[16, 2], [1.0]]]), "2 values in [16, 2]; want one for each of TILE, WARPS"),
        (
            spoilt("values", [[[17, 2, "none"], [1.0]]]),
            "TILE is 17 in [17, 2, 'none']; its values are [16, 32",
        ),
        (spoilt("values", [[[16, 2, "none"], []]]), "values[0][1] is []"),
        (spoilt("values", [[[16, 2, "none"], [1.0, -1]]]), "values[0][1][1] is -1"),
        (spoilt("values", [[[16, 2, "none"], [True]]]), "values[0][1][0] is True"),
        (spoilt("values", [[[16, 2, "none"], [float("nan")]]]), "values[0][1][0] is nan"),
        (spoilt("values", [[[16, 2, "none"], [1]]] * 2), "values: (16, 2, 'none') is there twice"),
        (spoilt("niche", ["TILES"]), "niche names 'TILES', which is no parameter. Nearest: TILE"),
        (spoilt("niche", "TILE"), "niche is TILE: input should be a valid array"),
    ],
)
def test_a_wrong_file_is_refused_with_place_and_remedy(
    tree: dict[str, Any], spoil: Callable[[dict[str, Any]], None], message: str
) -> None:
    spoil(tree)
    with pytest.raises(UsageError) as caught:
        parsed(tree)
    assert str(caught.value).startswith("x.json: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "Invalid JSON"), (b"[1]", "should be an object"), (b"\xff", "not UTF-8"), (None, "No such file")],
)
def test_a_file_that_is_none_is_refused(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_landscape(path)
