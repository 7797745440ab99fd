"""What each device is on which runs were judged: prompts tell of it, also on machines that have no such device."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from kbevolve.archive.connection import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDevice:
    """A device on which a run of this archive was judged."""

    #: As evaluations name it.
    fingerprint: str
    #: "cpu" or "cuda".
    type: str
    #: One line for people and models.
    description: str


def remember(connection: Connection, device: KnownDevice) -> None:
    """Write a device down; one that is there already stays as it was first told."""
    with connection.transaction():
        row = {**asdict(device), "at": datetime.now(UTC).isoformat(timespec="milliseconds")}
        connection.insert("devices", row, known="fingerprint")


def known_device(connection: Connection, fingerprint: str) -> KnownDevice | None:
    """A device by its fingerprint; None when no run was judged on it since devices are written down."""
    row = connection.row("select fingerprint, type, description from devices where fingerprint = ?", fingerprint)
    return KnownDevice(**dict(row)) if row else None
