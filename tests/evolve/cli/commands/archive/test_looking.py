"""`kbevolve archive`, as a user types it."""

import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.parts import changed
from kbevolve.archive.records import BirthState, Comparison, Kernel, Launch, Operator, Profile, Verdict
from kbevolve.archive.store import Archive
from kbevolve.configs.reference import as_model_new


@pytest.fixture
def browse(kbevolve: Any, small_archive: Any) -> Any:
    def call(*words: str) -> Any:
        return kbevolve("archive", *words, "--archive", small_archive.path)

    return call


def test_ls_lists_runs_newest_first(browse: Any, small_archive: Any, make_archive: Any) -> None:
    make_archive(run_id="softmax-2", problem_name="L1/softmax", seed=2, stop=None)
    head, newest, oldest = browse("ls").out.splitlines()
    assert head.split()[:2] == ["run", "problem"]
    assert newest.startswith("softmax-2")
    assert "open" in newest
    best = small_archive.evaluations[small_archive.best]
    for part in (
        small_archive.run.id,
        "L1/matmul",
        f"{best.timing.speedup:#.3g}×",
        small_archive.best,
        "finished",
        "2 threads",
    ):
        assert part in oldest
    assert len(browse("ls", "-n", "1").out.splitlines()) == 2


def test_ls_of_a_run_lists_every_birth(browse: Any, small_archive: Any) -> None:
    lines = browse("ls", "latest").out.splitlines()[1:]
    assert len(lines) == len(small_archive.births)
    for line, birth in zip(lines, small_archive.births, strict=True):
        assert (birth.kernel or "-") in line
        assert birth.operator.value in line
        assert birth.note in line
        if birth.state in (BirthState.NO_CODE, BirthState.DUPLICATE):
            assert birth.state.value in line
        elif birth.kernel:
            verdict = small_archive.evaluations[birth.kernel].verdict
            assert verdict.name.lower().replace("_", " ") in line


def test_best_is_the_champion_everywhere_and_never_the_reference(kbevolve: Any, make_archive: Any) -> None:
    sample = make_archive("confirmed.db", confirmed=True)
    with Archive(sample.path) as archive:
        reference = archive.runs.reference(sample.run)
        source = as_model_new(sample.problem.source_for("cpu"))
        first = sample.births[0]
        birth = changed(first, slot=8, kernel=reference, note="the reference itself")
        archive.add_birth(birth, kernel=Kernel.from_source(source))
        winner = sample.evaluations[sample.best]
        archive.add_evaluation(changed(winner, kernel=reference, speedup=99.0, speedup_low=98.0, speedup_high=100.0))
        summary = archive.runs.summary(sample.run)
        assert summary.champion is not None
        assert summary.champion.kernel == summary.best_kernel == sample.best
        assert summary.best is not None
        assert summary.best.kernel == sample.best
        best = archive.problems.best(sample.problem.id, sample.run.device, "fp32")
        assert best is not None
        assert best.kernel == sample.best
    listed = ("archive", "ls", "latest", "--best", "--archive", sample.path)
    lines = kbevolve(*listed).out.splitlines()[1:]
    assert sample.best in lines[0]
    assert "(confirmed)" in lines[0]
    assert "the reference itself" in lines[-1]
    (marked,) = [one for one in json.loads(kbevolve(*listed, "--json").out) if one["best"]]
    assert marked["birth"]["kernel"] == marked["confirmation"]["kernel"] == sample.best


def test_the_order_of_the_best_is_shown_at_80_columns(browse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", browse("best", "latest").out).splitlines()
    assert all(len(line) <= 80 for line in lines)
    lows = [float(low) for low in re.findall(r"\[([\d.]+), ", "\n".join(lines))]
    assert lows == sorted(lows, reverse=True)
    assert len(lows) > 3
    assert "the lower ends of their intervals" in " ".join(lines)


def test_ls_chooses_children(browse: Any, small_archive: Any) -> None:
    lines = browse("ls", "latest", "--best").out.splitlines()[1:]
    correct = [one for one in small_archive.evaluations.values() if one.verdict is Verdict.CORRECT]
    expected = [one.kernel for one in sorted(correct, key=lambda one: -(one.timing.speedup_low or 0))]
    assert [line.split()[0] for line in lines] == expected
    assert lines[0].startswith(small_archive.best)
    assert ["best" in line for line in lines] == [True] + [False] * (len(lines) - 1)
    lines = browse("ls", "latest", "--verdict", "build-failed", "-n", "1").out.splitlines()[1:]
    assert len(lines) == 1
    assert "build failed" in lines[0]
    outcome = browse("ls", "--best")
    assert outcome.code == 2
    assert "kbevolve archive ls latest --best" in outcome.err


def test_show_tells_a_kernel_and_its_source(browse: Any, small_archive: Any) -> None:
    birth = next(birth for birth in small_archive.births if birth.operator is Operator.MUTATE and birth.kernel)
    assert birth.kernel is not None
    out = browse("show", birth.kernel[:10]).out
    for part in (
        birth.kernel, "L1/matmul", birth.run, birth.note, birth.parents[0], "test-model, 1200 + ", "fp32",
    ):  # fmt: skip
        assert part in out
    assert out.count("Keep a block of C in registers") + out.count("Unroll the inner loop") == 1
    with Archive(small_archive.path) as archive:
        source = archive.kernels.get(birth.kernel).source
    assert out.endswith(source)
    assert browse("show", birth.kernel, "--source").out == source
    assert birth.prompt not in out
    conversation = browse("show", birth.kernel, "--conversation").out
    assert birth.prompt in conversation
    assert birth.reply in conversation


def test_show_gives_the_whole_message_of_a_failure(browse: Any, small_archive: Any) -> None:
    failed = next(one for one in small_archive.evaluations.values() if one.verdict is Verdict.BUILD_FAILED)
    out = browse("show", failed.kernel).out
    assert all(line.strip() in out for line in failed.message.splitlines())
    assert "speedup" not in out


def test_show_tells_a_run(browse: Any, small_archive: Any) -> None:
    out = browse("show", "latest").out
    for part in (
        small_archive.run.id, "all generations were run", 'device="cpu"', "torch 2.13.0", small_archive.best,
        "cpu/Test Processor",
    ):  # fmt: skip
        assert part in out
    assert "evaluation.precision" not in out, "it is the default"
    assert browse("show", "latest", "--source").code == 2


def test_lineage_leads_to_a_starting_kernel(browse: Any, small_archive: Any) -> None:
    lines = [line.split() for line in browse("lineage", small_archive.best).out.splitlines()]
    assert lines[0][:2] == ["crossings", "kernel"]
    trunk = [line for line in lines[1:] if line[0] == "0"]
    assert trunk[0][1] == small_archive.best
    assert trunk[-1][4] == "seed"
    for child, parent in pairwise(trunk):
        assert child[8].split(",")[0] == parent[1]
    assert f"{small_archive.evaluations[small_archive.best].timing.speedup:.3f}" in trunk[0]
    assert browse("lineage", "latest").out == browse("lineage", small_archive.best).out


def test_lineage_of_a_crossing_has_both_lines_and_is_a_tree_on_a_terminal(
    browse: Any, small_archive: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    crossed = next(birth for birth in reversed(small_archive.births) if len(birth.parents) > 1)
    lines = [line.split() for line in browse("lineage", crossed.kernel).out.splitlines()[1:]]
    assert set(crossed.parents) <= {line[1] for line in lines}
    assert {"0", "1"} <= {line[0] for line in lines}
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    out = re.sub(r"\x1b\[[0-9;]*m", "", browse("lineage", crossed.kernel).out)
    assert "├──" in out
    assert "crossed with" in out
    assert all(len(line) <= 80 for line in out.splitlines())
    assert crossed.kernel in out
    gains = {kernel: int(percent) for percent, kernel in re.findall(r"([+-]\d+) %  (\w{16})", out)}
    assert gains
    for birth in small_archive.births:
        if birth.kernel in gains and len(birth.parents) == 1:
            speedup, before = (small_archive.evaluations[one].timing.speedup for one in (birth.kernel, *birth.parents))
            assert gains[birth.kernel] == round(100 * (speedup / before - 1))
    assert "gain over the parent" in out


def test_diff_is_against_the_parent(browse: Any, small_archive: Any) -> None:
    birth = next(birth for birth in small_archive.births if birth.generation == 1 and birth.kernel)
    lines = browse("diff", birth.kernel).out.splitlines()
    assert lines[0].startswith(f"--- {birth.parents[0]}")
    assert lines[1].startswith(f"+++ {birth.kernel}")
    assert any(line.startswith("-BLOCK = ") for line in lines)
    assert any(line.startswith("+BLOCK = ") for line in lines)
    turned = browse("diff", birth.kernel, birth.parents[0]).out.splitlines()
    assert turned[0].startswith(f"--- {birth.kernel}")
    outcome = browse("diff", birth.parents[0])
    assert outcome.code == 2
    assert "starting kernel without a parent; name two" in outcome.err


def test_json_is_complete_and_plain(browse: Any, small_archive: Any) -> None:
    (run,) = json.loads(browse("ls", "--json").out)
    assert run["run"]["id"] == small_archive.run.id
    assert run["best"]["kernel"] == small_archive.best
    assert run["best"]["verdict"] == "correct"
    children = json.loads(browse("ls", "latest", "--json").out)
    assert [child["birth"]["kernel"] for child in children] == [birth.kernel for birth in small_archive.births]
    kernel = json.loads(browse("show", small_archive.best, "--json").out)
    best = small_archive.evaluations[small_archive.best]
    assert kernel["evaluations"][0]["blocks"][0]["times_ms"] == list(best.blocks[0].times_ms)
    assert kernel["births"][0]["operator"] in set(Operator)
    line = json.loads(browse("lineage", small_archive.best, "--json").out)
    assert line[0]["birth"]["kernel"] == small_archive.best
    assert line[0]["evaluation"]["speedup"] == best.timing.speedup
    assert line[1]["evaluation"]["verdict"] != "correct", "the best one is a repair: its gain is over the one before"
    assert line[0]["gain"] == best.timing.speedup / line[2]["evaluation"]["speedup"]
    assert line[-1]["gain"] is None
    assert json.loads(browse("show", "latest", "--json").out)["births"] == len(small_archive.births)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("show", "zzzz"), 1, "no kernel and no run 'zzzz'"),
        (("lineage", "zzzz"), 1, "no kernel and no run 'zzzz'"),
        (("ls", "matmux"), 1, "no run 'matmux'"),
        (("ls", "latest", "--verdict", "good"), 2, "'good' is not one of"),
        (("lineage", "", "--run", "latest"), 1, "more than 4 kernels and runs start with"),
    ],
)
def test_what_is_not_there_is_one_line(browse: Any, words: tuple[str, ...], code: int, message: str) -> None:
    outcome = browse(*words)
    assert outcome.code == code
    assert message in outcome.err
    assert outcome.err.startswith("kbevolve: ")
    assert "Traceback" not in outcome.err


def test_no_archive_and_an_empty_one_say_how_to_begin(kbevolve: Any, tmp_path: Path) -> None:
    missing = kbevolve("archive", "ls", "--archive", tmp_path / "none.db")
    assert (missing.code, missing.out) == (1, "")
    assert "no archive at" in missing.err
    assert not (tmp_path / "none.db").exists()
    Archive(tmp_path / "empty.db").close()
    empty = kbevolve("archive", "ls", "--archive", tmp_path / "empty.db")
    assert empty.code == 1
    assert "start one: kbevolve run" in empty.err
    assert json.loads(kbevolve("archive", "ls", "--json", "--archive", tmp_path / "empty.db").out) == []


@pytest.mark.parametrize("words", [("archive",), ("archive", "ls"), ("archive", "show"), ("archive", "lineage"),
                                   ("archive", "diff"), ("plot",), ("export",)])  # fmt: skip
def test_every_command_has_help_with_an_example(kbevolve: Any, words: tuple[str, ...]) -> None:
    outcome = kbevolve(*words, "--help")
    assert outcome.code == 0
    assert f"Example: kbevolve {' '.join(words)}" in outcome.out


def test_looking_imports_nothing_heavy(small_archive: Any) -> None:
    program = (
        "import sys; from kbevolve.evolve.cli.main import cli; path = sys.argv[1]\n"
        "for words in (['ls'], ['ls', 'latest'], ['show', 'latest'], ['lineage', sys.argv[2]]):\n"
        "    cli.main(['archive', *words, '--archive', path], standalone_mode=False)\n"
        "print(sorted({'torch', 'openevolve', 'matplotlib', 'numpy', 'openai'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, small_archive.path, small_archive.best],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_confirmed_number_is_what_is_listed_and_shown(kbevolve: Any, make_archive: Any) -> None:
    sample = make_archive(confirmed=True)
    with Archive(sample.path) as archive:
        champion = archive.runs.champion(sample.run.id)
    assert champion is not None
    number = f"{champion.speedup:#.3g}× (confirmed)"
    assert number in kbevolve("archive", "ls", "--archive", sample.path).out
    assert number in kbevolve("archive", "show", "latest", "--archive", sample.path).out
    out = kbevolve("archive", "show", champion.kernel, "--archive", sample.path).out
    for part in (number, f"final after generation 8 of {sample.run.id}", f"faster than {champion.rival}: 2.00× [1.98"):
        assert part in out
    shown = json.loads(kbevolve("archive", "show", champion.kernel, "--json", "--archive", sample.path).out)
    assert [one["purpose"] for one in shown["confirmations"]] == ["final"]
    listed = json.loads(kbevolve("archive", "ls", "--json", "--archive", sample.path).out)
    assert listed[0]["champion"]["kernel"] == champion.kernel


def test_show_tells_what_the_judge_learnt(kbevolve: Any, small_archive: Any) -> None:
    first = small_archive.evaluations[small_archive.best]
    launch = Launch(name="my_kernel", share=0.9, microseconds=12.0, launches=2.0)
    with Archive(small_archive.path) as archive:
        archive.add_evaluation(
            changed(
                first, worst_tile=2.5e-5, comparison=Comparison.TIE, speedup_best=1.25, best_baseline="max-autotune",
                sandbox="landlock 7", profile=Profile(launches=(launch,), bottleneck="memory bandwidth"),
            )
        )  # fmt: skip
    out = kbevolve("archive", "show", small_archive.best, "--archive", small_archive.path).out
    for part in (
        "worst tile 2.5e-05", "a tie with eager", "1.25× the fastest baseline, max-autotune", "landlock 7", "my_kernel",
    ):  # fmt: skip
        assert part in out


def test_long_names_leave_room_for_the_result(
    kbevolve: Any, make_archive: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "cross_entropy-20261121-083012-3f2a"
    sample = make_archive(run_id=name, problem_name="kernelbench:1/95_CrossEntropyLoss", confirmed=True)
    listed = ("archive", "ls", "--archive", sample.path)
    best = kbevolve(*listed).out.splitlines()[1]
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", kbevolve(*listed).out).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert name in lines[1]
    assert "kernelbench:1" in lines[1]
    (published,) = re.findall(r"\S+× \(confirmed\)", best)
    assert published in lines[1]
