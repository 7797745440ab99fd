"""Requests of untrusted processes: invalid ones are refused, valid ones are named by their content."""

from dataclasses import asdict, replace
from typing import Any

import pytest

from kbevolve.evaluators.builds.build_request import BuildRefused, BuildRequest

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
