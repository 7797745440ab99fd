"""The pages about runs: all of them, one, its lineage, its kernels, its ideas, two compared; and the search."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from flask import Blueprint, abort, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from kbevolve.archive.outlines import OutlineEntry
from kbevolve.archive.records import Operator
from kbevolve.archive.standings import by_task, standings
from kbevolve.configs.errors import ArchiveError
from kbevolve.evolve.web.charts import comparison_chart, islands_chart, progress_chart
from kbevolve.evolve.web.cost import cost_of
from kbevolve.evolve.web.lineage_drawing import drawn_lineage
from kbevolve.evolve.web.progress import Milestone, decisive, idea_records, milestones, niche_elites
from kbevolve.evolve.web.snapshot import RunFacts, Snapshot, task_roofline_share
from kbevolve.evolve.web.story import story

#: Kernels of a page of the list; hits of a search of each kind.
PAGE, HITS = 100, 30
#: What colours the lineage.
COLOURS = ("speedup", "island", "operator", "technique")


def run_pages(snapshot: Snapshot) -> Blueprint:
    """The pages, on an archive."""
    pages = Blueprint("runs", __name__)

    @pages.get("/")
    def index() -> str:
        return render_template("index.html.jinja", tasks=snapshot.kept("tasks", lambda: list(_tasks(snapshot))))

    @pages.get("/state")
    def state() -> dict[str, int]:
        """What the script asks to learn whether a page is out of date."""
        return {"version": snapshot.archive.version()}

    @pages.get("/runs/<run_id>")
    def run(run_id: str) -> str | Response:
        facts = snapshot.facts(run_id)
        if facts.run.id != run_id:
            return redirect(url_for(".run", run_id=facts.run.id))  # a link that stays true
        return snapshot.kept(("page", run_id), lambda: _run_page(snapshot, facts))

    @pages.get("/runs/<run_id>/story")
    def tell(run_id: str) -> str:
        facts = snapshot.facts(run_id)
        kernel = request.args.get("kernel") or facts.summary.best_kernel or ""
        steps = story(snapshot.archive, facts, kernel) if kernel else []
        return render_template("story.html.jinja", facts=facts, steps=steps, kernel=kernel, tab="story")

    @pages.get("/runs/<run_id>/lineage")
    def lineage(run_id: str) -> str:
        facts = snapshot.facts(run_id)
        colour = request.args.get("colour", COLOURS[0])
        hide = "failures" in request.args.getlist("hide")
        return render_template(
            "lineage.html.jinja",
            facts=facts,
            tab="lineage",
            colours=COLOURS,
            colour=colour if colour in COLOURS else COLOURS[0],
            hide=hide,
            **snapshot.kept(("lineage", facts.run.id), lambda: drawn_lineage(snapshot, facts)),
        )

    @pages.get("/runs/<run_id>/kernels")
    def kernels(run_id: str) -> str:
        facts = snapshot.facts(run_id)
        given = request.args
        found = list(_chosen(facts, given))
        page = max(given.get("page", 1, type=int), 1)
        shown = found[(page - 1) * PAGE : page * PAGE]
        pages_in_all = max(-(-len(found) // PAGE), 1)
        values = {"facts": facts, "found": len(found), "shown": shown, "page": page, "pages": pages_in_all}
        islands = sorted({one.island for one in facts.entries})
        return render_template("kernels.html.jinja", **values, given=given.to_dict(), islands=islands, tab="kernels")

    @pages.get("/runs/<run_id>/ideas")
    def ideas(run_id: str) -> str:
        facts = snapshot.facts(run_id)
        return render_template(
            "ideas.html.jinja",
            facts=facts,
            tab="ideas",
            ideas=idea_records(facts.entries),
            techniques=idea_records(facts.entries, by_technique=True),
        )

    @pages.get("/compare")
    def compare() -> str:
        chosen = list(dict.fromkeys(request.args.getlist("run")))
        known = snapshot.summaries()
        facts = [snapshot.facts(one) for one in chosen[:6]]
        kinds = {(one.run.problem, one.run.device) for one in facts}
        if len(kinds) > 1:
            raise ArchiveError("these runs are of different problems or devices, whose speedups do not compare")
        alike = [one for one in known if not kinds or (one.run.problem, one.run.device) in kinds]
        series = {one.run.id: _milestones(one) for one in facts}
        return render_template(
            "compare.html.jinja", facts=facts, alike=alike, chart=comparison_chart(series), series=series
        )

    @pages.get("/search")
    def search() -> str:
        query = request.args.get("q", "")
        hits = snapshot.index().find(query, limit=HITS)
        return render_template("search.html.jinja", query=query, hits=hits)

    @pages.get("/go")
    def go() -> Response:
        """To a kernel by the start of its id, from the field of the list."""
        which = request.args.get("kernel", "").strip() or abort(404)
        return redirect(url_for("kernels.kernel", kernel_id=snapshot.archive.kernels.get(which).id))

    return pages


def _tasks(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    """The runs of each problem, device and precision, with shares of the roofline, and the best kernel of them."""
    summaries = snapshot.summaries()
    best = {(one.problem, one.device, one.precision): one for one in standings(snapshot.archive, summaries)}
    for (_, device, precision), alike in by_task(summaries).items():
        runs = [(one, task_roofline_share(one, snapshot.card(one.run))) for one in alike]
        name = alike[0].run.problem_name
        leading = best.get((name, device, precision))
        share = next((share for one, share in runs if leading and one.run.id == leading.run), None)
        yield {"problem": name, "device": device, "precision": precision, "runs": runs, "best": leading, "share": share}


def _milestones(facts: RunFacts) -> list[Milestone]:
    return list(milestones(facts.entries, reference=facts.reference))


def _run_page(snapshot: Snapshot, facts: RunFacts) -> str:
    runs, found = snapshot.archive.runs, _milestones(facts)
    placements = runs.placements(facts.run.id)
    counts = Counter(one.entry.verdict for one in found)
    cost, judged = cost_of(snapshot.archive, facts.run), sum(counts.values())
    return render_template(
        "run.html.jinja",
        facts=facts,
        tab="run",
        chart=progress_chart(found, facts.summary.champion),
        islands=islands_chart([one for one in found if one.entry.kernel != facts.reference]),
        leads=decisive([one for one in found if one.leads])[::-1],
        niches=niche_elites(facts.entries, placements),
        counts=counts,
        states=Counter(one.state for one in facts.entries),
        judged=judged,
        tokens=runs.tokens(facts.run.id),
        cost=cost,
        notes=snapshot.archive.notes.of(facts.run.id),
        rate=cost.evaluations / cost.wall_seconds * 3600 if cost.wall_seconds else None,
        title=facts.best.title or facts.best.words if facts.best else "",
    )


def _chosen(facts: RunFacts, given: Any) -> Iterator[OutlineEntry]:
    """The attempts of the list that a query asks for; in order, or the best first."""
    entries = facts.entries
    if given.get("order") != "created":
        entries = facts.ranked
    words = given.get("q", "").lower().split()
    verdict, operator, island = given.get("verdict"), given.get("operator"), given.get("island")
    for one in entries:
        if verdict and (one.verdict is None or one.verdict.name.lower() != verdict):
            continue
        if operator and one.operator is not Operator.__members__.get(operator.upper()):
            continue
        if island and str(one.island) != island:
            continue
        text = f"{one.kernel} {one.title} {one.note} {one.technique}".lower()
        if all(word in text for word in words):
            yield one
