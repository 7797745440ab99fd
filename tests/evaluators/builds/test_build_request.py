"""Requests of untrusted processes: invalid ones are refused, valid ones are named by their content."""

import json
import os
from dataclasses import asdict, replace
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbevolve.evaluators.builds.build_request import BuildRequest
from kbevolve.evaluators.builds.compiler import commands
from kbevolve.evaluators.sandbox.build_protocol import BuilderUnavailable, BuildRefused

HONEST: dict[str, Any] = {"name": "gelu", "sources": [["main.cpp", "int f();"]], "cflags": ["-O3"]}

HOSTILE: dict[str, dict[str, Any]] = {
    "no name": {"name": None},
    "name that leaves its folder": {"name": "../gelu"},
    "name with a blank": {"name": "a b"},
    "no sources": {"sources": []},
    "sources that are no list": {"sources": {"main.cpp": ""}},
    "source that leaves its folder": {"sources": [["../main.cpp", ""]]},
    "absolute source": {"sources": [["/etc/passwd", ""]]},
    "text that is no text": {"sources": [["main.cpp", 5]]},
    "text that is not unicode": {"sources": [["main.cpp", "\ud800"]]},
    "one name twice": {"sources": [["main.cpp", ""], ["main.cpp", ""]]},
    "too many": {"sources": [[f"{number}.cpp", ""] for number in range(17)]},
    "too long": {"sources": [["main.cpp", "x" * (3 << 20)]]},
    "command in a flag": {"cflags": ["$(touch /tmp/x)"]},
    "second command": {"ldflags": ["; rm -rf /"]},
    "flag that is no text": {"cflags": [1]},
    "flags that are no list": {"cflags": "-O3"},
    "open quote": {"cflags": ["-DX='"]},
    "too many flags": {"cflags": ["-O3"] * 201},
    "folder outside the request": {"include_paths": ["../include"]},
    "folder of others": {"include_paths": ["/root"]},
    "folder of processes": {"include_paths": ["/proc/self/cwd"]},
    "file that leaves its folder": {"files": [["a/../../x.h", ""]]},
    "file that is a flag": {"files": [["-x.h", ""]]},
    "precompiled by the kernel": {"files": [["x.h.gch", ""]]},
    "folder of precompiled headers": {"files": [["x.h.gch/a", ""]]},
    "file that is a folder, too": {"files": [["x.h", ""], ["x.h/a/y.h", ""]]},
    "file that is a source, too": {"files": [["main.cpp", ""]]},
    "too many files": {"files": [[f"{number}.h", ""] for number in range(65)]},
    "files too long": {"files": [["x.h", "x" * (3 << 20)]]},
    "another compiler": {"variables": {"CXX": "/tmp/own"}},
    "variable that is no text": {"variables": {"CC": 5}},
    "CUDA without a GPU": {"with_cuda": True},
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_an_invalid_request_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(BuildRefused):
        BuildRequest.from_json({**HONEST, **change})


def test_a_request_survives_json() -> None:
    request = BuildRequest.from_json(
        HONEST | {"with_cuda": True, "cuda_cflags": ["-O3 -lineinfo"]}, architecture="9.0a"
    )
    assert request.with_cuda
    assert BuildRequest.from_json(asdict(request), architecture="9.0a") == request


def test_the_key_depends_on_every_field() -> None:
    request = BuildRequest.from_json(HONEST)
    others = [
        BuildRequest.from_json(HONEST | change)
        for change in (
            {"name": "other"},
            {"sources": [["main.cpp", "int f(); "]]},
            {"cflags": ["-O2"]},
            {"ldflags": ["-lm"]},
        )
    ]
    keys = {known.key("gcc 12") for known in (request, *others, replace(request, plain=True))}
    assert len(keys) == len(others) + 2
    assert request.key("gcc 13") not in keys
    assert BuildRequest.from_json(HONEST).key("gcc 12") in keys


ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.just("x" * 5000)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=8,
)
NAMES = st.one_of(
    st.text(max_size=10), st.sampled_from(["main.cpp", "x.cu", "../x.h", "a/b.h", "x.h.gch", "-c.cpp", "a"])
)
PAIRS = st.lists(st.one_of(st.tuples(NAMES, st.text(max_size=20)).map(list), ANYTHING), max_size=4)
FLAGS = st.lists(
    st.one_of(
        st.text(max_size=10), st.sampled_from(["-O3", "-DX='(1)'", "-I.", "-I", "-lm", "-Xcompiler", "'", "-x c"])
    ),
    max_size=4,
)
FIELDS = {
    "name": st.one_of(NAMES, st.just("x")),
    "sources": PAIRS,
    "files": PAIRS,
    **dict.fromkeys(("cflags", "cuda_cflags", "ldflags"), FLAGS),
    "include_paths": st.lists(st.sampled_from(["/usr/include", ".", "..", "/", "/root", "", "\0", "a b"]), max_size=2),
    "with_cuda": st.booleans(),
    "variables": st.dictionaries(st.sampled_from(["CC", "CXX", "x"]), st.sampled_from([None, "gcc", "own", 5])),
}


@given(st.fixed_dictionaries({}, optional={name: st.one_of(values, ANYTHING) for name, values in FIELDS.items()}))
@hypothesis.settings(max_examples=200)
@pytest.mark.slow
def test_any_order_is_read_or_refused(tree: dict[str, Any]) -> None:
    try:
        request = BuildRequest.from_json(json.loads(json.dumps(tree)), architecture="9.0a")
    except (BuildRefused, BuilderUnavailable):
        return
    assert request.key("gcc 12") == request.key("gcc 12")
    assert all(path == os.path.normpath(path) and not path.startswith((".", "/", "-")) for path in request.contents())
    if not request.with_cuda:
        found = commands(request)
        assert set(request.cflags) <= set(found.cxx)
        assert set(request.ldflags) <= set(found.libraries)
