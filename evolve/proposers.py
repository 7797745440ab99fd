"""Which proposer carries out which operator, decided by the settings."""

import importlib
from collections.abc import Mapping

from kbevolve.archive.records import Operator
from kbevolve.configs.errors import SettingsError
from kbevolve.configs.settings import Settings
from kbevolve.evolve.brief import Proposer
from kbevolve.evolve.llm import build_language_model
from kbevolve.evolve.tuner import TunablesProposer

#: Operators that write code, and so need a model or a third party's proposer.
WRITING = (Operator.MUTATE, Operator.REWRITE, Operator.CROSS, Operator.REPAIR)


def build_proposers(settings: Settings) -> Mapping[Operator, Proposer]:
    """Operator -> who carries it out. Without MUTATE the run is an offline one.

    Raises:
        SettingsError: the proposer asked for is unknown, or wants a model and none is configured.
    """
    tuner = TunablesProposer()
    writer = _writer(settings)
    if writer is None:
        return {Operator.TUNE: tuner, Operator.CROSS: tuner}
    return {**dict.fromkeys(WRITING, writer), Operator.TUNE: tuner}


def give_up(proposers: Mapping[Operator, Proposer]) -> None:
    """End requests that are under way, so that an interrupted run does not wait for answers nobody will read."""
    for proposer in {id(proposer): proposer for proposer in proposers.values()}.values():
        close = getattr(proposer, "close", None)
        if close is not None:
            close()


def proposer_words(settings: Settings) -> str:
    """Who proposes, for the display: the model's name, the third party's, or the tunables."""
    if ":" in settings.proposer:
        return settings.proposer
    if settings.proposer != "tunables" and (settings.llm.model or settings.llm.provider != "openai"):
        return settings.llm.model or settings.llm.provider
    return "tunables, no model"


def _writer(settings: Settings) -> Proposer | None:
    choice = settings.proposer
    if ":" in choice:
        return _third_party(choice)
    if choice not in ("auto", "tunables", "llm"):
        raise SettingsError(
            f"proposer = {choice!r}: neither auto, tunables, llm nor a dotted name such as package.module:Class"
        )
    model = build_language_model(settings.llm) if choice != "tunables" else None
    if model is not None:
        # Imported here because an offline run must not pay for the templates.
        from kbevolve.evolve.writer import LLMProposer

        return LLMProposer(model, settings.llm, precision=settings.evaluation.precision)
    if choice == "llm":
        raise SettingsError("proposer = 'llm' but no model is configured; add --model NAME (and --api-base URL)")
    return None


def _third_party(dotted: str) -> Proposer:
    module, _, attribute = dotted.partition(":")
    try:
        made: Proposer = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError) as error:
        raise SettingsError(
            f"proposer = {dotted!r}: {error}; it must name a class that can be imported and made without arguments"
        ) from None
    if not callable(getattr(made, "propose", None)):
        raise SettingsError(
            f"proposer = {dotted!r}: it has no method propose(brief); see kbevolve.evolve.brief.Proposer"
        )
    return made
