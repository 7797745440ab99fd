import html
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from kbevolve.archive.parts import changed
from kbevolve.archive.records import Kernel, StopReason
from kbevolve.archive.store import Archive
from kbevolve.configs.reference import as_model_new
from kbevolve.evolve.state.totals import RunTotals
from kbevolve.evolve.web.app import create_app
from kbevolve.evolve.web.cost import cost_of
from kbevolve.evolve.web.snapshot import Snapshot
from tests.evolve.web.conftest import SCRIPT, make_hostile
from tests.small_archive import Sample

Pages = Callable[[Path], FlaskClient]


def text(page: str) -> str:
    """What a reader sees."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def addresses(sample: Sample) -> list[str]:
    run, kernel = f"/runs/{sample.run.id}", sample.best
    tabs = [run, f"{run}/story", f"{run}/lineage", f"{run}/kernels", f"{run}/ideas"]
    return ["/", *tabs, f"/kernels/{kernel}", f"/diff/{kernel}", "/search?q=block", f"/compare?run={sample.run.id}"]


def test_every_page_is_there_and_every_link_leads_somewhere(small_archive: Sample, open_pages: Pages) -> None:
    client = open_pages(small_archive.path)
    links = set()
    for address in addresses(small_archive):
        page = client.get(address, follow_redirects=True, buffered=True)
        assert page.status_code == 200, address
        links |= set(re.findall(r'(?:href|action|src)="(/[^"#]*)', page.get_data(as_text=True)))
    assert len(links) > 60
    wrong = [
        link
        for link in links
        if client.get(html.unescape(link), follow_redirects=True, buffered=True).status_code != 200
    ]
    assert wrong in ([], ["/search"])


def test_the_pages_of_a_run_say_what_the_archive_holds(make_archive: Callable[..., Sample], open_pages: Pages) -> None:
    sample = make_archive(confirmed=True)
    client = open_pages(sample.path)
    with Archive(sample.path, read_only=True) as archive:
        champion = archive.runs.champion(sample.run.id)
    assert champion is not None
    page = text(client.get(f"/runs/{sample.run.id}").get_data(as_text=True))
    assert f"{champion.speedup:#.3g}".rstrip(".") + "× the speed of eager" in page
    assert "confirmed" in page
    assert 'class="confirmed"' in client.get(f"/runs/{sample.run.id}").get_data(as_text=True)
    assert f"{len(sample.evaluations)} kernels judged from {len(sample.births)} attempts" in page
    assert "niche m1c0d1l0: " in client.get(f"/runs/{sample.run.id}").get_data(as_text=True)
    story = text(client.get(f"/runs/{sample.run.id}/story").get_data(as_text=True))
    assert "How the best kernel came to be" in story
    assert "Measured again in fresh processes it won the final" in story
    number = f"{champion.speedup:#.3g}×"
    assert f"; measured again in fresh processes: {number} [" in story
    kernel = text(client.get(f"/kernels/{champion.kernel}").get_data(as_text=True))
    assert "best of its run" in kernel
    assert f"the speed of eager {number} [" in kernel, "the confirmed speedup"
    slower = min(
        (one for one in sample.evaluations.values() if one.timing.speedup), key=lambda one: one.timing.speedup or 0.0
    )
    assert "of eager's speed: " in text(client.get(f"/kernels/{slower.kernel}").get_data(as_text=True))
    assert "class ModelNew ( nn . Module ):" in kernel


def test_a_run_without_a_kernel_is_listed(small_archive: Sample, open_pages: Pages) -> None:
    with Archive(small_archive.path) as archive:
        run, fast = small_archive.run, json.loads(small_archive.run.settings)
        archive.add_run(replace(run, id="elsewhere", device="cpu/another", seed=1))
        fast.setdefault("evaluation", {})["precision"] = "tf32"
        archive.add_run(replace(run, id="precise", settings=json.dumps(fast), seed=2))
    client = open_pages(small_archive.path)
    page = client.get("/")
    assert page.status_code == 200
    found = text(page.get_data(as_text=True))
    assert found.count("nothing correct yet") == 2, "another device and another precision are tasks of their own"
    for tab in ("", "/story", "/lineage", "/kernels", "/ideas"):
        assert client.get(f"/runs/precise{tab}").status_code == 200


def test_the_best_is_the_same_in_every_list(
    kbevolve: Any, make_archive: Callable[..., Sample], open_pages: Pages
) -> None:
    sample = make_archive(confirmed=True)
    with Archive(sample.path) as archive:
        reference = archive.runs.reference(sample.run)
        birth = changed(sample.births[0], slot=8, kernel=reference, note="the reference itself")
        archive.add_birth(birth, kernel=Kernel.from_source(as_model_new(sample.problem.source_for("cpu"))))
        fastest = changed(sample.evaluations[sample.best], kernel=reference, speedup=99.0, speedup_low=98.0)
        archive.add_evaluation(changed(fastest, speedup_high=100.0))
        champion = archive.runs.champion(sample.run.id)
    assert champion is not None
    client = open_pages(sample.path)
    listed = json.loads(kbevolve("archive", "best", "latest", "--json", "--archive", sample.path).out)
    page = client.get(f"/runs/{sample.run.id}/kernels?verdict=correct").get_data(as_text=True)
    shown = re.findall(r'<td><a class="id" href="/kernels/(\w+)', page)
    assert shown == [one["birth"]["kernel"] for one in listed]
    assert (shown[0], shown[-1]) == (champion.kernel, reference)
    first = text(page[page.index(f"/kernels/{champion.kernel}") :])
    assert f"{champion.speedup:#.3g}× [" in first[:200], "the confirmed speedup"
    index = text(client.get("/").get_data(as_text=True))
    assert f"{champion.speedup:#.3g}× over eager" in index
    assert "99.0×" not in index


def test_the_cost_of_a_run_is_in_words(small_archive: Sample, open_pages: Pages) -> None:
    with Archive(small_archive.path, read_only=True) as archive:
        cost = cost_of(archive, small_archive.run)
        totals = RunTotals(since=0.0)
        for one in archive.runs.evaluations(small_archive.run.id).values():
            totals.add_kernel(one)
        sent, received = archive.runs.tokens(small_archive.run.id)
    assert (cost.evaluations, cost.tokens) == (totals.evaluations, sent + received)
    assert cost.device_seconds == pytest.approx(totals.device_seconds)
    assert cost.dollars is None, "the model of the sample has no price"
    page = text(open_pages(small_archive.path).get(f"/runs/{small_archive.run.id}").get_data(as_text=True))
    assert f"Cost {cost.evaluations} evaluations" in page
    assert f"{sent:,} tokens sent, {received:,} received, dollars unknown" in page


def test_notes_of_people_are_shown_and_escaped(small_archive: Sample, open_pages: Pages) -> None:
    with Archive(small_archive.path) as archive:
        archive.notes.add(small_archive.run.id, "<b>quiet</b> machine #baseline")
        archive.notes.add(small_archive.best, "to ship")
    client = open_pages(small_archive.path)
    page = client.get(f"/runs/{small_archive.run.id}").get_data(as_text=True)
    assert "&lt;b&gt;quiet&lt;/b&gt; machine #baseline" in page
    assert "to ship" in client.get(f"/kernels/{small_archive.best}").get_data(as_text=True)


def test_the_list_filters_and_has_the_best_first(small_archive: Sample, open_pages: Pages) -> None:
    client = open_pages(small_archive.path)

    def kernels(query: str) -> list[str]:
        page = client.get(f"/runs/{small_archive.run.id}/kernels?{query}").get_data(as_text=True)
        return re.findall(r'<td><a class="id" href="/kernels/(\w+)', page)

    assert kernels("")[0] == small_archive.best
    assert set(kernels("")) == set(small_archive.evaluations)
    wrong = {name for name, one in small_archive.evaluations.items() if one.verdict.name == "WRONG"}
    assert set(kernels("verdict=wrong")) == wrong
    assert kernels("q=registers+keep")
    assert not kernels("q=registers+nowhere")
    assert {birth.kernel for birth in small_archive.births if birth.island == 1} >= set(kernels("island=1"))
    assert set(kernels("operator=nonsense&island=x&page=-4")) == set()


def test_ids_may_be_cut_and_a_wrong_one_says_what_to_do(small_archive: Sample, open_pages: Pages) -> None:
    client = open_pages(small_archive.path)
    assert client.get(f"/kernels/{small_archive.best[:9]}").location == f"/kernels/{small_archive.best}"
    assert client.get("/runs/latest").location == f"/runs/{small_archive.run.id}"
    for address in ("/kernels/zzz", "/runs/zzz", "/nothing", f"/diff/{small_archive.best}/zzz", "/compare?run=zzz"):
        page = client.get(address)
        assert page.status_code == 404
        assert "All runs" in page.get_data(as_text=True)
    assert "no kernel 'zzz'" in text(client.get("/kernels/zzz").get_data(as_text=True))


def test_two_runs_are_compared_and_two_problems_are_not(make_archive: Callable[..., Sample], open_pages: Pages) -> None:
    make_archive()
    sample = make_archive(run_id="second", seed=3)
    make_archive(run_id="elsewhere", seed=4, device="cpu/Other/torch 2.13.0")
    client = open_pages(sample.path)
    page = client.get("/compare?run=second&run=matmul-20261121-083012-3f2a")
    assert "Their best kernels side by side" in text(page.get_data(as_text=True))
    assert page.get_data(as_text=True).count('class="line ') == 2
    refused = client.get("/compare?run=second&run=elsewhere")
    assert "different problems or devices" in text(refused.get_data(as_text=True))


def test_pages_follow_a_run_that_writes(make_archive: Callable[..., Sample], open_pages: Pages) -> None:
    sample = make_archive(stop=None)
    client = open_pages(sample.path)
    page, state = client.get(f"/runs/{sample.run.id}").get_data(as_text=True), client.get("/state").json
    assert 'data-follow="/state"' in page
    assert '<noscript><meta http-equiv="refresh"' in page
    with Archive(sample.path) as writer:
        writer.add_stop(sample.run.id, StopReason.TARGET_REACHED)
    assert client.get("/state").json != state
    page = client.get(f"/runs/{sample.run.id}").get_data(as_text=True)
    assert "the target speedup was reached" in page
    assert "data-follow" not in page


def test_pages_follow_attempts_and_verdicts(make_archive: Callable[..., Sample], open_pages: Pages) -> None:
    sample = make_archive(stop=None)
    client, run = open_pages(sample.path), f"/runs/{sample.run.id}"
    kernel = Kernel.from_source("class ModelNew: pass  # the newest\n")
    birth = changed(
        sample.births[-1], generation=40, kernel=kernel.id, note="written while the page is open", idea=None
    )

    def shown() -> list[str]:
        page = client.get(f"{run}/kernels").get_data(as_text=True)
        return re.findall(r'<td><a class="id" href="/kernels/(\w+)', page)

    assert client.get(run).status_code == 200
    assert kernel.id not in shown()
    with Archive(sample.path) as writer:
        writer.add_birth(birth, kernel=kernel)
        assert kernel.id in shown()
        assert shown()[0] == sample.best, "it has no verdict yet"
        fastest = changed(sample.evaluations[sample.best], kernel=kernel.id, speedup=8.0, speedup_low=7.9)
        writer.add_evaluation(changed(fastest, speedup_high=8.1, tags=()))
    assert shown()[0] == kernel.id
    for tab in ("", "/story", "/lineage"):
        assert "8.00×" in client.get(f"{run}{tab}").get_data(as_text=True)


def test_headers_allow_nothing_but_our_two_files(small_archive: Sample, open_pages: Pages) -> None:
    client = open_pages(small_archive.path)
    for address in (*addresses(small_archive), "/nothing", f"/kernels/{small_archive.best}/source"):
        headers = client.get(address).headers
        policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == "'self'"
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
    download = client.get(f"/kernels/{small_archive.best}/source")
    assert download.mimetype == "text/plain"
    assert download.headers["Content-Disposition"].startswith("attachment")


def test_no_page_names_anything_outside(small_archive: Sample, open_pages: Pages) -> None:
    client = open_pages(small_archive.path)
    for address in (*addresses(small_archive), "/static/style.css", "/static/browse.js"):
        page = client.get(address, follow_redirects=True, buffered=True).get_data(as_text=True)
        outside = [link for link in re.findall(r"(?:https?:)?//[\w.-]+\.\w+", page) if "w3.org" not in link]
        assert not outside, address
        assert " style=" not in page, f"{address}: the policy forbids it"
        assert not re.search(r"<script>|\son\w+=", page), address


def test_a_foreign_name_for_this_machine_gets_nothing(small_archive: Sample) -> None:
    with Archive(small_archive.path, read_only=True) as archive:
        client = create_app(Snapshot(archive), hosts=["127.0.0.1"]).test_client()
        assert client.get("/", headers={"Host": "127.0.0.1:8765"}).status_code == 200
        refused = client.get("/", headers={"Host": "evil.example"})
    assert refused.status_code == 400
    assert small_archive.run.id not in refused.get_data(as_text=True)


@pytest.fixture
def hostile(small_archive: Sample) -> Path:
    return make_hostile(small_archive)


def test_hostile_archives_are_shown_and_escaped(hostile: Path, small_archive: Sample, open_pages: Pages) -> None:
    client = open_pages(hostile)
    run = f"/runs/{small_archive.run.id}"
    with Archive(hostile, read_only=True) as archive:
        names = [one.kernel or "" for one in archive.outline(small_archive.run) if one.generation >= 50]
    shown = [f"/kernels/{name}" for name in names if name != SCRIPT] + [
        f"{run}/story?kernel={name}" for name in names[:7]
    ]
    shown += [f"/diff/{names[0]}/{names[1]}", f"/diff/{names[2]}/{names[3]}", f"/diff/{names[5]}/{names[4]}"]
    for address in [*addresses(small_archive), *shown, f"{run}/kernels?order=created", "/search?q=script"]:
        page = client.get(address, follow_redirects=True, buffered=True)
        assert page.status_code == 200, address
        markup = page.get_data(as_text=True)
        assert "<script>" not in markup, address
        assert "<img" not in markup, address
        assert "\x00" not in markup
        assert "\u202e" not in markup
    assert len(markup) < 1_000_000
