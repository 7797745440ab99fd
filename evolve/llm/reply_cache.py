"""Models whose answers are in the archive before anybody has them: a run that was killed does not pay for them again.

A run that is entered again asks for the children that were under way as it did before, word for word; what was answered
then comes from the archive, and only what was not is sent.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from kbevolve.archive.replies import Replies
from kbevolve.configs.settings import LLMSettings
from kbevolve.evolve.llm.client import LanguageModel, Message, Reply, end_requests
from kbevolve.evolve.llm.rate_limit import Pace
from kbevolve.evolve.llm.recording import Maker, digest_of


def keeping(make: Maker, replies: Replies) -> Maker:
    """Makes the same models, with answers that the run keeps."""

    def kept(settings: LLMSettings, pace: Pace) -> LanguageModel | None:
        model = make(settings, pace)
        return model and KeptModel(model=model, settings=settings, replies=replies)

    return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptModel:
    """A model that is asked only what it has not answered in this run."""

    model: LanguageModel
    #: Its settings.
    settings: LLMSettings
    replies: Replies

    def complete(self, system: str, messages: Sequence[Message], *, child: str = "") -> Reply:
        """As `LanguageModel.complete`. Requests for nobody in particular are not told apart, and are all sent."""
        if not child:
            return self.model.complete(system, messages)
        digest = digest_of(self.settings, system, messages, child)
        known = self.replies.get(digest)
        if known is not None:
            return Reply(**json.loads(known))
        reply = self.model.complete(system, messages, child=child)
        # In ASCII: a reply may hold halves of surrogate pairs.
        self.replies.keep(digest, json.dumps(asdict(reply), ensure_ascii=True))
        return reply

    def close(self) -> None:
        """Give up all requests."""
        end_requests(self.model)
