"""`kbevolve ideas`: tables for people, one object for scripts."""

import json
from typing import Any

from kbevolve.archive.store import Archive
from tests.evolve.doubles import open_run, settings


def test_a_run_has_its_ideas_techniques_and_what_they_rest_on(kbevolve: Any, small_archive: Any) -> None:
    done = kbevolve("ideas", "--run", "latest", "--archive", small_archive.path)
    assert (done.code, done.err) == (0, "")
    with Archive(small_archive.path) as archive:
        ideas = archive.runs.ideas(small_archive.run.id)
    lines = done.out.splitlines()
    assert lines[0].split()[:2] == ["idea", "technique"]
    for idea in ideas.values():
        assert any(line.startswith(idea.title) and idea.technique in line for line in lines), idea.title
    (header,) = [number for number, line in enumerate(lines) if line.startswith("technique")]
    rows = lines[header + 1 :]
    assert all(any(row.startswith(idea.technique) for row in rows) for idea in ideas.values())


def test_scripts_get_one_object(kbevolve: Any, small_archive: Any) -> None:
    done = kbevolve("ideas", "--run", small_archive.run.id, "--json", "--archive", small_archive.path)
    tree = json.loads(done.out)
    assert set(tree) == {"run", "ideas", "techniques", "exhausted", "lessons"}
    assert tree["run"] == small_archive.run.id
    gains = [idea["gain"]["factor"] for idea in tree["ideas"] if idea["gain"]]
    assert gains == sorted(gains, reverse=True)
    births = [birth for birth in small_archive.births if birth.idea is not None]
    assert sum(idea["births"] for idea in tree["ideas"]) == len(births)
    assert sum(technique["births"] for technique in tree["techniques"]) == len(births)
    assert {idea["state"] for idea in tree["ideas"]} <= {"paid", "exhausted", "no gain", "failed"}


def test_the_whole_archive_tells_problems_apart(kbevolve: Any, make_archive: Any) -> None:
    first, second = make_archive(seed=1), make_archive(seed=2, run_id="other-1", problem_name="L1/softmax")
    done = kbevolve("ideas", "--json", "--archive", first.path)
    tree = json.loads(done.out)
    assert tree["run"] is None
    assert sum(idea["births"] for idea in tree["ideas"]) == sum(
        birth.idea is not None for sample in (first, second) for birth in sample.births
    )
    limited = json.loads(kbevolve("ideas", "-n", "1", "--json", "--archive", first.path).out)
    assert limited["ideas"] == tree["ideas"][:1]
    shown = kbevolve("ideas", "-n", "1", "--archive", first.path).out
    assert f"-n {len(tree['ideas'])} lists all" in shown


def test_an_archive_without_ideas_says_what_brings_some(kbevolve: Any, tmp_path: Any) -> None:
    with Archive(tmp_path / "empty.db") as archive:
        open_run(archive, settings())
    for options in ((), ("--run", "latest")):
        done = kbevolve("ideas", *options, "--archive", tmp_path / "empty.db")
        assert done.code == 0
        assert "has no ideas recorded" in done.out
        assert "--model NAME" in done.out


def test_an_unknown_run_is_an_error(kbevolve: Any, small_archive: Any) -> None:
    done = kbevolve("ideas", "--run", "nobody", "--archive", small_archive.path)
    assert (done.code, done.out) == (1, "")
    assert "no run 'nobody'" in done.err
