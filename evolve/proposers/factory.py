"""Which proposer carries out which operator, by the settings."""

import importlib
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kbevolve.archive.records import Operator
from kbevolve.configs.errors import SettingsError
from kbevolve.configs.prices import read_prices
from kbevolve.configs.settings import Settings
from kbevolve.evolve.llm.client import ModelMaker, build_language_model, end_requests
from kbevolve.evolve.llm.rate_limit import RateLimit
from kbevolve.evolve.proposers.base import Proposer
from kbevolve.evolve.proposers.model_choice import ModelChoice
from kbevolve.evolve.proposers.tuning.proposer import TunablesProposer
from kbevolve.islands.policy import HOTTEST, WARM

if TYPE_CHECKING:
    from kbevolve.evolve.proposers.interactive import Interaction

#: Operators that write code, and so need a model or a third party's proposer.
WRITING = (Operator.MUTATE, Operator.REWRITE, Operator.CROSS, Operator.REPAIR)


def build_proposers(
    settings: Settings, make: ModelMaker = build_language_model, interaction: "Interaction | None" = None
) -> Mapping[Operator, Proposer]:
    """Operator -> its proposer. Without MUTATE the run is offline: it asks no model.

    Args:
        settings: all settings.
        make: makes the language models, e.g. those of a recording.
        interaction: answers of people and agents, which precede those of models; None for a new run.

    Raises:
        SettingsError: the proposer is unknown, or needs a model and none is configured.
    """
    tuner = TunablesProposer()
    if settings.search.strategy == "openevolve":
        theirs = _openevolve(settings, make)
        return {Operator.MUTATE: theirs} if theirs else {Operator.TUNE: tuner}
    writer = _writer(settings, make, interaction)
    if writer is None:
        return {Operator.TUNE: tuner, Operator.CROSS: tuner}
    return {**dict.fromkeys(WRITING, writer), Operator.TUNE: TunablesProposer(explores=False)}


def give_up(proposers: Mapping[Operator, Proposer]) -> None:
    """Cancel the requests of all proposers, each once."""
    for proposer in {id(proposer): proposer for proposer in proposers.values()}.values():
        end_requests(proposer)


def proposer_words(settings: Settings) -> str:
    """The proposer in words: the models with their weights, the third party's class, or the tunables."""
    if ":" in settings.proposer:
        return settings.proposer
    if settings.proposer != "tunables" and settings.llm.models:
        return ", ".join(f"{model.name} ({model.weight:g})" for model in settings.llm.models)
    if settings.proposer != "tunables" and (settings.llm.model or settings.llm.provider != "openai"):
        return settings.llm.model or settings.llm.provider
    return "people and agents, through `kbevolve ask`" if settings.proposer == "ask" else "tunables, no model"


def _writer(settings: Settings, make: ModelMaker, interaction: "Interaction | None") -> Proposer | None:
    choice = settings.proposer
    if ":" in choice:
        return _third_party(choice)
    if choice not in ("auto", "tunables", "llm", "ask"):
        raise SettingsError(
            f"proposer = {choice!r}: neither auto, tunables, llm, ask nor a dotted name such as package.module:Class"
        )
    if choice == "ask" and interaction is None:
        raise SettingsError("proposer = 'ask': start such a run with `kbevolve ask --problem NAME`")
    writer = _model_writer(settings, make, interaction) if choice != "tunables" else None
    if writer is None and choice == "llm":
        raise SettingsError("proposer = 'llm' but no model is configured; add --model NAME (and --api-base URL)")
    return writer


def _model_writer(settings: Settings, make: ModelMaker, interaction: "Interaction | None") -> Proposer | None:
    """The proposer that asks the models of the settings, and people; None when there are neither."""
    rate_limit = RateLimit.of(settings.llm)
    writers: dict[str, dict[float, Proposer]] = {}
    for one in settings.llm.each():
        for factor in (1.0, WARM):
            own = one.model_copy(update={"temperature": min(HOTTEST, factor * one.temperature)})
            model = make(own, rate_limit)
            if model is not None or (interaction is not None and settings.proposer == "ask"):
                # Imported here because an offline run must not pay for the templates.
                from kbevolve.evolve.proposers.codegen.proposer import LLMProposer
                from kbevolve.evolve.proposers.interactive import InteractiveProposer, NoModel

                writer = LLMProposer(
                    model or NoModel(),
                    own,
                    precision=settings.evaluation.precision,
                    libraries=settings.evaluation.allow_library,
                )
                proposer = InteractiveProposer(interaction=interaction, writer=writer) if interaction else writer
                writers.setdefault(one.model or one.provider, {})[factor] = proposer
    if not writers:
        return None
    return ModelChoice(
        proposers=writers,
        weights={model.name: model.weight for model in settings.llm.models},
        bandit=settings.llm.model_choice == "bandit",
        prices=read_prices(settings.budget.prices),
    )


def _openevolve(settings: Settings, make: ModelMaker) -> Proposer | None:
    """OpenEvolve, which asks the models itself; None when the settings name none."""
    if settings.proposer == "tunables":
        return None
    if settings.proposer not in ("auto", "llm"):
        raise SettingsError(
            f"proposer = {settings.proposer!r}, but strategy openevolve asks models itself; name one with --model "
            "NAME, or take another strategy"
        )
    from kbevolve.evolve.proposers.openevolve.proposer import openevolve_proposer

    return openevolve_proposer(settings, make)


def _third_party(dotted: str) -> Proposer:
    module, _, attribute = dotted.partition(":")
    # Last, so that a file here replaces no package. PYTHONPATH would show this folder to kernels, too.
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)
    try:
        made: Proposer = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError) as error:
        raise SettingsError(
            f"proposer = {dotted!r}: {error}; it must name a class that can be imported, from this folder or an "
            "installed package, and made without arguments"
        ) from None
    if not callable(getattr(made, "propose", None)):
        raise SettingsError(
            f"proposer = {dotted!r}: it has no method propose(brief); see kbevolve.evolve.proposers.base.Proposer"
        )
    return made
