"""What is written as JSON is read back exactly; what is no record is refused with the place that is wrong."""

import json
import math
from random import Random
from typing import Any

import pytest

from kbevolve.archive.parts import grouped
from kbevolve.archive.record_json import from_json, to_json
from kbevolve.archive.records import Confirmation, Evaluation, Idea, Kernel, Launch, Measurement, Profile, Verdict
from kbevolve.configs.errors import RecordError
from kbevolve.configs.problem import Problem
from tests.archive.test_store import make_run, random_confirmation, random_evaluation, random_kernel, random_profile
from tests.evolve.doubles import problem


def evaluation(**changes: Any) -> dict[str, Any]:
    record = grouped(Evaluation,
        kernel="k", problem="p", device="cpu/x", precision="fp32", verdict=Verdict.CORRECT, tags=("torch-ops",),
        profile=Profile(launches=(Launch(name="gemm", share=1.0, microseconds=2.0, launches=1.0),)),
        phases={"build": 1.5}, blocks=(Measurement(role="child", round=0, times_ms=(1.0, 2 / 3)),),
    )  # fmt: skip
    plain: dict[str, Any] = json.loads(json.dumps(to_json(record)))
    return plain | changes


@pytest.mark.parametrize("seed", range(10))
def test_records_come_back_as_they_were(seed: int) -> None:
    rng = Random(seed)
    run, kernel = make_run(problem(), seed=seed), random_kernel(rng)
    records: list[tuple[Any, Any]] = [
        (Evaluation, random_evaluation(rng, run, kernel)),
        (Confirmation, random_confirmation(rng, run, kernel.id, None, 3)),
        (Profile, random_profile(rng)),
        (Kernel, kernel),
        (Problem, problem()),
        (Idea, Idea(title="t", mechanism="m", technique="x", expected_gain=1 / 3)),
    ]
    for kind, record in records:
        text = json.dumps(to_json(record), allow_nan=False)
        assert from_json(kind, json.loads(text)) == record


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
