"""What models answered, request by request, before anything is made of it: an answer that is here is paid for once.

A child may take several requests, and is a birth only after the last; a process that is killed in between has their
answers here.
"""

from datetime import UTC, datetime

from kbevolve.archive.connection import Connection


class Replies:
    """The answers that a run had. Threads may share it.

    Args:
        connection: the open archive.
        run_id: the run, which must be there.
    """

    def __init__(self, connection: Connection, run_id: str) -> None:
        self._connection = connection
        self._run = run_id

    def get(self, digest: str) -> str | None:
        """The answer to the request of this digest, as it was given to `keep`; None when there is none."""
        row = self._connection.row("select reply from replies where run = ? and digest = ?", self._run, digest)
        return None if row is None else str(row["reply"])

    def keep(self, digest: str, reply: str) -> None:
        """Write an answer down; it is there when this returns. A request that has one keeps it."""
        row = {"run": self._run, "digest": digest, "reply": reply}
        with self._connection.transaction():
            self._connection.insert(
                "replies", {**row, "at": datetime.now(UTC).isoformat(timespec="milliseconds")}, known="run, digest"
            )
