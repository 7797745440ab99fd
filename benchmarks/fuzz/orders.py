"""Mutated build orders: what a worker may ask the judge's builders for, with and without a form."""

import random
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.builds.pool import BuildPool
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.rejection import Rejection, reading_a_reply
from kbevolve.evaluators.sandbox.build_protocol import BuilderUnavailable, BuildRefused, BuildResult, WorkerBuild

#: Seconds that compilers may take for an order.
SECONDS = 4.0
SOURCE = 'extern "C" int answer() { return 42; }\n'
TEXTS = (
    SOURCE, "int a", "", "\0", "#include __FILE__\n", '#include "/dev/zero"\n', '#include "/etc/shadow"\n',
    "#include </dev/tty>\n", "(" * 100_000,
    "template<int N> struct A { static const int v = A<N-1>::v + A<N-2>::v; };\nint a = A<90000>::v;\n",
    "#define A B B B B B B B B\n#define B C C C C C C C C\n#define C D D D D D D D D\n#define D E E E E E E E E\n"
    "#define E 1,1,1,1,1,1,1,1\nint a[] = {A A A};\n",
    "char a[3000000000] = {1};\n", 'asm(".incbin \\"/dev/urandom\\"");\n',
    'asm(".rept 1000000000\\n.quad 1\\n.endr");\n', "#pragma GCC dependency \"/etc/passwd\"\n",
    'R"x(' * 1000, "/*" * 50_000, "??/\n" * 10_000, "int main(){for(;;);}\n",
    "constexpr int f(int n){return n?f(n-1)+f(n-1):1;} int a=f(60);\n",
)  # fmt: skip
FLAGS = (
    "-O3", "-O0", "-fplugin=x.so", "-B/tmp", "-specs=x", "@file", "-wrapper", "-Xlinker", "-Wl,-T,x", "-x",
    "-o/tmp/x", "-include", "/etc/passwd",
    "-I/etc", "-L.", "-lm", "-DN=" + "9" * 5000, "$(id)", "`id`", ";", "-march=native", "-M", "-save-temps", "-",
    "--", "", "\0", "\ud800", "-D'",
)  # fmt: skip
ODD: tuple[Any, ...] = (
    None, True, -1, 2**70, 1e308, float("nan"), "", "x" * 100_000, "\ud800", "\0", "../x", "/etc/passwd",
    "a/b/c.cpp", [], [[]], [[[]]] * 50, {}, {"a": []},
    [["main.cpp"]], [["main.cpp", 3]], [["main.cpp", None]], [["main.cpp", SOURCE]] * 2, [["main.cpp", SOURCE],
    ["main.cpp/x.h", ""]], [["x" * 300 + ".cpp", SOURCE]],
    [[str(number) + ".cpp", SOURCE] for number in range(500)], [["main.cpp", "x" * 3_000_000]], [["main.cu",
    SOURCE]], [["main.py", SOURCE]],
    {"CC": "/bin/sh", "PATH": "/tmp"}, {"CXX": "a b"}, ["PATH=/tmp"], ["/etc"], ["."],
)  # fmt: skip


def run(seeds: range) -> Iterator[tuple[int, str]]:
    """Each seed, and what became of its order."""
    device = find_device("cpu")
    settings = EvaluationSettings(build_seconds=SECONDS)
    with (
        tempfile.TemporaryDirectory(prefix="kbevolve-fuzz-") as folder,
        closing(BuildPool(device, settings, DiskCache(Path(folder)))) as pool,
    ):
        for seed in seeds:
            yield seed, _outcome(pool, order(random.Random(seed)))
        assert _outcome(pool, _order(f"{SOURCE}// last\n")) == "built", "an honest order is built as before"


def _outcome(pool: BuildPool, wanted: dict[str, Any]) -> str:
    try:
        with reading_a_reply(BuildRefused, BuilderUnavailable):
            future: Future[BuildResult] = pool.builder(wanted, seconds=SECONDS)
        built = future.result()
    except BuildRefused:
        return "refused"
    except BuilderUnavailable:
        return "left to the worker"
    except Rejection:
        return "cannot be read"
    WorkerBuild.of(wanted, built)
    return "built" if built.product is not None else "failed"


def order(choose: random.Random) -> dict[str, Any]:
    """An order with one to three odd parts."""
    wanted = _order(choose.choice(TEXTS) if choose.random() < 0.3 else SOURCE)
    for _ in range(choose.choice((1, 1, 2, 3))):
        name = choose.choice(list(wanted))
        kind = choose.random()
        if kind < 0.35 and name in {"cflags", "cuda_cflags", "ldflags"}:
            wanted[name] = choose.choices(FLAGS, k=choose.choice((1, 2, 5, 400)))
        elif kind < 0.45:
            del wanted[name]
        elif kind < 0.9:
            wanted[name] = choose.choice(ODD)
        else:
            wanted[choose.choice(("name", "extra", "sources", ""))] = choose.choice(
                (choose.choice(ODD), _nested(choose))
            )
        if not wanted:
            break
    return wanted


def _order(text: str) -> dict[str, Any]:
    empty: dict[str, Any] = {
        "files": [],
        "cflags": [],
        "cuda_cflags": [],
        "ldflags": [],
        "include_paths": [],
        "variables": {},
    }
    return {"name": "x", "sources": [["main.cpp", text]], "with_cuda": False, **empty}


def _nested(choose: random.Random) -> Any:
    value: Any = choose.choice(ODD)
    for _ in range(choose.choice((3, 5000))):
        value = [value] if choose.random() < 0.5 else {"a": value}
    return value
