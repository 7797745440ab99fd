"""A confined compiler reads what it needs, writes only into its own directory, and ends with its time."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kbevolve.evaluators.builds import sandboxed_compiler
from kbevolve.evaluators.builds.sandboxed_compiler import build_directory, made, run
from kbevolve.evaluators.sandbox import bubblewrap, launch
from kbevolve.evaluators.worker import landlock

ROOT = Path(__file__).parents[3]

confinable = pytest.mark.skipif(
    not landlock.usable() and bubblewrap.obstacle("cpu") is not None, reason="neither Landlock nor bubblewrap here"
)


def test_it_compiles_and_leaves_nothing() -> None:
    with build_directory() as directory:
        (directory / "work" / "a.cpp").write_text("int f() { return 1; }")
        ran = run(["c++", "-c", "a.cpp", "-o", "object.o"], directory, seconds=20)
        assert (ran.code, ran.log, ran.timed_out) == (0, "", False)
        assert (directory / "work" / "object.o").is_file()
    assert not directory.exists()


@confinable
@pytest.mark.parametrize("include", [str(ROOT / "pyproject.toml"), str(ROOT / "evaluators" / "judging" / "judge.py")])
def test_it_cannot_read_other_files(include: str) -> None:
    with build_directory() as directory:
        (directory / "work" / "a.cpp").write_text(f'#include "{include}"\n')
        ran = run(["c++", "-c", "a.cpp", "-o", "object.o"], directory, seconds=20)
    assert ran.code != 0
    assert "No such file" in ran.log or "ermission denied" in ran.log


@confinable
def test_it_cannot_write_elsewhere(tmp_path: Path) -> None:
    with build_directory() as directory:
        (directory / "work" / "a.cpp").write_text("int f() { return 1; }")
        ran = run(["c++", "-c", "a.cpp", "-o", str(tmp_path / "object.o")], directory, seconds=20)
    assert ran.code != 0
    assert not list(tmp_path.iterdir())


def test_no_key_is_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-secret-key")
    with build_directory() as directory:
        output = run(["env"], directory, seconds=10).log
    assert "PATH=" in output
    assert "a-secret-key" not in output


def test_an_endless_command_is_stopped_with_its_helpers() -> None:
    with build_directory() as directory:
        began = time.monotonic()
        ran = run(["sh", "-c", "sleep 60.4321 & sleep 60"], directory, seconds=0.5)
        assert ran.timed_out
        assert time.monotonic() - began < 5
    assert not subprocess.run(["pgrep", "-f", "sleep 60.4321"], capture_output=True, check=False).stdout


def test_an_endless_file_is_stopped() -> None:
    with build_directory() as directory:
        (directory / "work" / "a.cpp").write_text('#include "/dev/zero"\n')
        ran = run(["c++", "-c", "a.cpp", "-o", "object.o"], directory, seconds=1)
    assert ran.timed_out or ran.out_of_memory


@pytest.mark.parametrize(
    "words", ["as: object.o: No space left on device", "c++: fatal error: vfork: Resource temporarily unavailable"]
)
def test_a_lack_of_resources_is_no_error_of_the_source(words: str) -> None:
    with build_directory() as directory:
        ran = run(["sh", "-c", f"echo '{words}'; exit 1"], directory, seconds=10)
    assert ran.code == 1
    assert ran.out_of_memory


def test_too_many_processes_are_stopped() -> None:
    with build_directory() as directory:
        ran = run(["sh", "-c", "for i in $(seq 100); do sleep 30 & done; wait"], directory, seconds=20)
        assert "too many processes" in ran.log
        assert ran.seconds < 15


def test_too_much_on_disk_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """In files that are small enough each."""
    monkeypatch.setattr(sandboxed_compiler, "_DISK_BYTES", 50 << 20)
    endless = "for i in $(seq 1000); do mkdir -p d$i; head -c 1000000 /dev/zero > d$i/f; sleep 0.01; done"
    with build_directory() as directory:
        ran = run(["sh", "-c", endless], directory, seconds=20)
    assert "it wrote too much" in ran.log
    assert ran.seconds < 15


def test_too_much_memory_in_several_processes_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "memory_bytes", lambda: 300 << 20)
    half = f"{sys.executable} -c 'import time; x = b\"x\" * (200 << 20); time.sleep(20)'"
    with build_directory() as directory:
        ran = run(["sh", "-c", f"{half} & {half}"], directory, seconds=20)
    assert ran.out_of_memory
    assert ran.seconds < 15


@pytest.mark.parametrize("size", [70_000_000, 300_000_000, 4_000_000_000])
def test_a_huge_product_is_not_read(size: int) -> None:
    with build_directory() as directory:
        (directory / "work" / "a.cpp").write_text(f'asm(".data\\n.fill {size}\\n.text");')
        run(["c++", "-c", "a.cpp", "-o", "../out/object.o"], directory, seconds=20)
        assert made(directory, "object.o") is None


def test_only_a_file_of_its_own_is_a_product(tmp_path: Path) -> None:
    outside = tmp_path / "object.o"
    outside.write_bytes(b"another file")
    with build_directory() as directory:
        product = directory / "out" / "object.o"
        product.symlink_to(outside)
        assert made(directory, "object.o") is None
        product.unlink()
        os.mkfifo(product)
        assert made(directory, "object.o") is None
        product.unlink()
        product.mkdir()
        assert made(directory, "object.o") is None
        product.rmdir()
        product.parent.rmdir()
        product.parent.symlink_to(tmp_path)
        assert made(directory, "object.o") is None
        product.parent.unlink()
        product.parent.mkdir()
        product.write_bytes(b"code")
        assert made(directory, "object.o") == b"code"


def test_endless_output_is_cut() -> None:
    with build_directory() as directory:
        ran = run(["yes", "error"], directory, seconds=0.5)
    assert ran.timed_out
    assert len(ran.log) <= 200_000


@pytest.mark.parametrize("nice", [0, 7])
def test_it_has_the_requested_nice_value(nice: int) -> None:
    code = "import os; print(os.nice(0)); print(open('/proc/self/autogroup').read())"
    with build_directory() as directory:
        ran = run([sys.executable, "-c", code], directory, seconds=20, nice=nice)
    own, group = ran.log.split("\n", 1)
    assert int(own) == os.nice(0) + nice
    if "autogroup" in group:  # otherwise this system has no autogroups
        assert group.split()[-1] == str(nice)


def test_a_missing_program_is_reported() -> None:
    with build_directory() as directory:
        ran = run(["no-such-compiler"], directory, seconds=10)
    assert ran.code == 127
    assert "no-such-compiler" in ran.log
