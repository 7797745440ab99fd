"""The pages about kernels: one with everything that is known of it, and two beside each other."""

from flask import Blueprint, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from kbevolve.configs.errors import ArchiveError
from kbevolve.evolve.web.charts import block_chart
from kbevolve.evolve.web.code import side_by_side, source_lines
from kbevolve.evolve.web.progress import gain_over
from kbevolve.evolve.web.snapshot import Snapshot

#: Attempts that are listed with prompt and reply.
_SHOWN = 5


def kernel_pages(snapshot: Snapshot) -> Blueprint:
    """The pages, on an archive."""
    pages, archive = Blueprint("kernels", __name__), snapshot.archive

    @pages.get("/kernels/<kernel_id>")
    def kernel(kernel_id: str) -> str | Response:
        found = archive.kernels.get(kernel_id)
        if found.id != kernel_id:
            return redirect(url_for(".kernel", kernel_id=found.id))
        births = archive.kernels.births(found.id)
        facts = snapshot.facts(births[0].run) if births else None
        entry = facts.first.get(found.id) if facts else None
        parents = [facts.first.get(one) for one in births[0].parents] if facts else []
        evaluations = archive.kernels.evaluations(found.id)
        confirmations = archive.kernels.confirmations(found.id)
        return render_template(
            "kernel.html.jinja",
            kernel=found,
            lines=source_lines(found.source),
            births=births,
            shown=births[:_SHOWN],
            facts=facts,
            entry=entry,
            published=facts.published(entry) if facts and entry else None,
            is_confirmed=bool(facts and found.id in facts.confirmed),
            idea=archive.runs.ideas(births[0].run).get(births[0].idea or "") if births else None,
            parents=list(zip(births[0].parents, parents, strict=True)) if births else [],
            gain=gain_over(entry, parents[0]) if entry and parents else None,
            children=[one for one in facts.first.values() if found.id in one.parents] if facts else [],
            placements=[one for one in archive.runs.placements(births[0].run) if one.kernel == found.id]
            if births
            else [],
            evaluations=[(one, block_chart(one.blocks)) for one in evaluations],
            confirmations=[(one, block_chart(one.blocks)) for one in confirmations],
            notes=archive.notes.of(found.id),
            tab="kernels",
        )

    @pages.get("/kernels/<kernel_id>/source")
    def source(kernel_id: str) -> Response:
        found = archive.kernels.get(kernel_id)
        name = "".join(letter for letter in found.id if letter.isalnum())
        headers = {"Content-Disposition": f"attachment; filename={name}.py"}
        return Response(found.source.encode("utf-8", "replace"), mimetype="text/plain", headers=headers)

    @pages.get("/diff/<first>")
    @pages.get("/diff/<first>/<second>")
    def diff(first: str, second: str = "") -> str | Response:
        if other := request.args.get("with", "").strip():
            return redirect(url_for(".diff", first=first, second=archive.kernels.get(other).id))
        left = archive.kernels.get(first)
        if not second:
            parent = next((one for birth in archive.kernels.births(left.id) for one in birth.parents), None)
            if parent is None:
                raise ArchiveError(f"kernel {left.id} has no parent to compare it with")
            return redirect(url_for(".diff", first=parent, second=left.id))
        right = archive.kernels.get(second)
        whole = "whole" in request.args
        births = archive.kernels.births(right.id) or archive.kernels.births(left.id)
        facts = snapshot.facts(births[0].run) if births else None
        return render_template(
            "diff.html.jinja",
            left=left,
            right=right,
            whole=whole,
            rows=side_by_side(left.source, right.source, context=None if whole else 4),
            facts=facts,
            entries=facts.first if facts else {},
            tab="kernels",
        )

    return pages
