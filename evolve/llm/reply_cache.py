"""Replies of models, in the archive under the digest of their request: a request that has a reply is not sent again.

So a killed run pays for no reply twice: its children ask the same again, word for word, when it is resumed.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from kbevolve.archive.conversations import Replies
from kbevolve.configs.settings import LLMSettings
from kbevolve.evolve.llm.client import LanguageModel, Message, ModelMaker, Reply, end_requests
from kbevolve.evolve.llm.rate_limit import RateLimit

#: Settings that a request depends on beside its text.
PARAMETERS = ("provider", "model", "temperature", "max_tokens")


def request_digest(settings: LLMSettings, system: str, messages: Sequence[Message], child: str) -> str:
    """Identifies a request: the model and its parameters, the conversation, and the child that asks."""
    turns = [[message.role, message.content] for message in messages]
    request = [[getattr(settings, name) for name in PARAMETERS], system, turns, child]
    return hashlib.sha256(json.dumps(request).encode("ascii")).hexdigest()[:32]


def cached(make: ModelMaker, store: Replies) -> ModelMaker:
    """Makes the same models, with their replies in the archive."""

    def made(settings: LLMSettings, rate_limit: RateLimit) -> LanguageModel | None:
        model = make(settings, rate_limit)
        return model and CachedModel(model=model, settings=settings, store=store)

    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedModel:
    """A model that gets only requests without a stored reply."""

    model: LanguageModel
    #: Its settings.
    settings: LLMSettings
    store: Replies

    def complete(self, system: str, messages: Sequence[Message], *, child: str) -> Reply:
        """As `LanguageModel.complete`; the reply is stored before it is returned."""
        digest = request_digest(self.settings, system, messages, child)
        known = self.store.get(digest)
        if known is not None:
            return Reply(**json.loads(known))
        reply = self.model.complete(system, messages, child=child)
        # In ASCII: a reply may contain halves of surrogate pairs, and characters that some readers take for line ends.
        self.store.keep(digest, json.dumps(asdict(reply), ensure_ascii=True))
        return reply

    def close(self) -> None:
        """Cancel all requests."""
        end_requests(self.model)
