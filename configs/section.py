"""What all sections of the settings have in common, and the kinds of values that need a care of their own."""

import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, PlainSerializer


def _without_credentials(address: str | None) -> str | None:
    """An address without the user name and the password that it may hold: what is written down never has them."""
    return address and re.sub(r"^(\w+://)?[^/?#]*@", r"\1", address)


#: Base address of an endpoint; None for the provider's own.
Address = Annotated[str | None, PlainSerializer(_without_credentials)]


class Section(BaseModel):
    """Base of all sections: frozen, unknown keys refused, defaults checked."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)
