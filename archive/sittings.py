"""How long somebody sat at a run: its sittings, the pauses between them left out."""

from datetime import datetime
from itertools import pairwise

from kbevolve.archive.connection import Connection

#: Later than every moment, as text.
_NEVER = "~"

#: When a run last wrote something down in a stretch of time. What was judged is found by the births of that stretch.
_LAST_FACT = """
select max(at) as at from (
    select at from births where run = ?1
    union all select at from generation_ends where run = ?1
    union all select at from confirmations where run = ?1
    union all select at from stops where run = ?1
    union all select evaluations.at from births join evaluations on evaluations.kernel = births.kernel
        where births.run = ?1 and births.at >= ?2)
where at >= ?2 and at < ?3
"""


def wall_seconds(connection: Connection, run_id: str) -> float:
    """Seconds of all sittings at a run together.

    A sitting that was killed has no end: it lasted up to the last fact that the run wrote before the next one began.
    Finding that reads the births of the run.
    """
    sittings = connection.rows(
        "select started_at, max(ended_at) as ended_at from sessions where run = ?"
        " group by started_at order by started_at",
        run_id,
    )
    moments = [str(row["started_at"]) for row in sittings]
    total = 0.0
    for row, (began, later) in zip(sittings, pairwise([*moments, _NEVER]), strict=True):
        ended = row["ended_at"] or connection.rows(_LAST_FACT, run_id, began, later)[0]["at"] or began
        seconds = (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()
        total += max(seconds, 0.0)  # a clock may be set back
    return total
