"""Records are read back from JSON exactly; other JSON is refused with the field that is wrong."""

import json
import math
from collections.abc import Mapping
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbevolve.archive.parts import grouped
from kbevolve.archive.record_json import from_json, to_json
from kbevolve.archive.records import (
    Birth,
    Confirmation,
    Evaluation,
    Idea,
    Kernel,
    Launch,
    Measurement,
    Placement,
    ProblemCard,
    Profile,
    Run,
    Verdict,
)
from kbevolve.configs.errors import RecordError
from kbevolve.configs.problem import Problem
from tests.evolve.doubles import problem


def evaluation(**changes: Any) -> dict[str, Any]:
    record = grouped(Evaluation,
        kernel="k", problem="p", device="cpu/x", precision="fp32", verdict=Verdict.CORRECT, tags=("torch-ops",),
        profile=Profile(launches=(Launch(name="gemm", share=1.0, microseconds=2.0, launches=1.0),)),
        phases={"build": 1.5}, blocks=(Measurement(role="child", round=0, times_ms=(1.0, 2 / 3)),),
    )  # fmt: skip
    plain: dict[str, Any] = json.loads(json.dumps(to_json(record)))
    return plain | changes


st.register_type_strategy(int, st.integers(-(2**63) + 1, 2**63 - 1))  # what SQLite keeps, too
st.register_type_strategy(Mapping, lambda kind: st.dictionaries(*map(st.from_type, get_args(kind))))


@settings(max_examples=150, deadline=None)
@given(st.one_of(*map(st.from_type, (Evaluation, Confirmation, Birth, Placement, ProblemCard, Run, Kernel, Idea))))
@pytest.mark.slow
def test_every_record_is_read_back_as_it_was_written(record: Any) -> None:
    text = json.dumps(to_json(record), allow_nan=False)
    assert repr(from_json(type(record), json.loads(text))) == repr(record), "repr, for NaN is not equal to itself"


def test_a_problem_is_read_back_as_it_was_written() -> None:
    assert from_json(Problem, json.loads(json.dumps(to_json(problem())))) == problem()


def test_an_older_version_may_know_fewer_fields() -> None:
    old = {
        name: value for name, value in evaluation().items() if name not in ("started_at", "phases", "device_instance")
    }
    assert from_json(Evaluation, old).execution.phases == {}
    del old["verdict"]
    with pytest.raises(RecordError, match=r"Evaluation\.verdict is missing"):
        from_json(Evaluation, old)


def test_infinities_have_names_of_their_own() -> None:
    errors = {"error": math.inf, "worst_tile": -math.inf, "reference_error": math.nan}
    found = from_json(Evaluation, evaluation(**to_json(errors)))
    assert (found.accuracy.error, found.accuracy.worst_tile) == (math.inf, -math.inf)
    assert found.accuracy.reference_error is not None
    assert math.isnan(found.accuracy.reference_error)
    assert to_json(errors, non_finite=lambda number: None) == dict.fromkeys(errors)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"verdict": "good"}, r"Evaluation\.verdict is 'good'; one of refused, .*, correct is wanted"),
        ({"verdict": 5}, r"Evaluation\.verdict is 5; one of"),
        ({"kernel": None}, r"Evaluation\.kernel is None; a string is wanted"),
        ({"speedup": "2"}, r"Evaluation\.speedup is '2'; a number is wanted"),
        ({"speedup": True}, r"Evaluation\.speedup is True; a number is wanted"),
        ({"seconds": 10**400}, r"Evaluation\.seconds is 1000.*; a number is wanted"),
        ({"seconds": 1e999}, r"Evaluation\.seconds is inf; a number is wanted"),
        ({"allclose": 1}, r"Evaluation\.allclose is 1; true or false is wanted"),
        ({"tags": "torch-ops"}, r"Evaluation\.tags is 'torch-ops'; a list is wanted"),
        ({"tags": ["x", 3]}, r"Evaluation\.tags\[1\] is 3; a string is wanted"),
        ({"phases": {"build": "long"}}, r"Evaluation\.phases\['build'\] is 'long'; a number is wanted"),
        ({"phases": [1]}, r"Evaluation\.phases is \[1\]; an object is wanted"),
        ({"blocks": [{"role": "child", "round": 1.5, "times_ms": []}]}, r"blocks\[0\]\.round is 1\.5; a whole number"),
        ({"blocks": [{"role": "child", "round": 10**30, "times_ms": []}]}, r"blocks\[0\]\.round is 1000"),
        ({"blocks": [{"role": "child", "round": 1, "times_ms": [1, None]}]}, r"blocks\[0\]\.times_ms\[1\] is None"),
        ({"profile": {"launches": [{"name": "x"}]}}, r"profile\.launches\[0\]\.share is missing"),
        ({"spedup": 2.0}, r"Evaluation has no field 'spedup'\. Nearest: speedup"),
    ],
)
def test_what_is_no_record_is_refused_with_the_place(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError, match=message) as refused:
        from_json(Evaluation, evaluation(**changes))
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("value", [None, [], "x", 3, True])
def test_only_an_object_is_a_record(value: object) -> None:
    with pytest.raises(RecordError, match="an object is wanted"):
        from_json(Evaluation, value)
