"""Which proposer carries out which operator, decided by the settings."""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kbevolve.archive.records import Operator
from kbevolve.configs.errors import SettingsError
from kbevolve.configs.prices import read_prices
from kbevolve.configs.settings import LLMSettings, Settings
from kbevolve.evolve.llm.client import LanguageModel, ModelMaker, build_language_model, end_requests
from kbevolve.evolve.llm.rate_limit import RateLimit
from kbevolve.evolve.proposers.base import Proposer
from kbevolve.evolve.proposers.model_choice import ByTemperature, SeveralModels
from kbevolve.evolve.proposers.tuning.proposer import TunablesProposer
from kbevolve.islands.policy import HOTTEST, WARM

if TYPE_CHECKING:
    from kbevolve.evolve.proposers.interactive import Outside

#: Operators that write code, and so need a model or a third party's proposer.
WRITING = (Operator.MUTATE, Operator.REWRITE, Operator.CROSS, Operator.REPAIR)


def build_proposers(
    settings: Settings, make: ModelMaker = build_language_model, outside: "Outside | None" = None
) -> Mapping[Operator, Proposer]:
    """Operator -> who carries it out. Without MUTATE the run is an offline one.

    Args:
        settings: all settings.
        make: makes the language models, e.g. those of a recording.
        outside: what people and agents have told, which counts before any model is asked; None for a run that is new.

    Raises:
        SettingsError: the proposer asked for is unknown, or wants a model and none is configured.
    """
    tuner = TunablesProposer()
    if settings.search.strategy == "openevolve":
        guest = _openevolve(settings, make)
        return {Operator.MUTATE: guest} if guest else {Operator.TUNE: tuner}
    writer = _writer(settings, make, outside)
    if writer is None:
        return {Operator.TUNE: tuner, Operator.CROSS: tuner}
    return {**dict.fromkeys(WRITING, writer), Operator.TUNE: tuner}


def give_up(proposers: Mapping[Operator, Proposer]) -> None:
    """End the requests of all proposers, each once."""
    for proposer in {id(proposer): proposer for proposer in proposers.values()}.values():
        end_requests(proposer)


def proposer_words(settings: Settings) -> str:
    """Who proposes, for the display: the models' names with their weights, the third party's, or the tunables."""
    if ":" in settings.proposer:
        return settings.proposer
    if settings.proposer != "tunables" and settings.llm.models:
        return ", ".join(f"{model.name} ({model.weight:g})" for model in settings.llm.models)
    if settings.proposer != "tunables" and (settings.llm.model or settings.llm.provider != "openai"):
        return settings.llm.model or settings.llm.provider
    return "whoever `kbevolve ask` asks" if settings.proposer == "ask" else "tunables, no model"


def _writer(settings: Settings, make: ModelMaker, outside: "Outside | None") -> Proposer | None:
    choice = settings.proposer
    if ":" in choice:
        return _third_party(choice)
    if choice not in ("auto", "tunables", "llm", "ask"):
        raise SettingsError(
            f"proposer = {choice!r}: neither auto, tunables, llm, ask nor a dotted name such as package.module:Class"
        )
    if choice == "ask" and outside is None:
        raise SettingsError("proposer = 'ask': such a run is begun by `kbevolve ask --problem NAME`")
    writer = _model_writer(settings, make, outside) if choice != "tunables" else None
    if writer is not None:
        return writer
    if choice == "llm":
        raise SettingsError("proposer = 'llm' but no model is configured; add --model NAME (and --api-base URL)")
    return None


def _model_writer(settings: Settings, make: ModelMaker, outside: "Outside | None") -> Proposer | None:
    """The proposer that asks the models of the settings; None when there is nobody to ask."""
    rate_limit = RateLimit.of(settings.llm)
    writers: dict[str, Proposer] = {}
    for one in settings.llm.each():
        warm = {warmth: _at(one, warmth) for warmth in (1.0, WARM)}
        asking = {
            warmth: asked
            for warmth, own in warm.items()
            if (asked := _asking(make(own, rate_limit), own, settings, outside)) is not None
        }
        if asking:
            writers[one.model or one.provider] = ByTemperature(proposers=asking)
    if not writers:
        return None
    if len(writers) == 1:
        return next(iter(writers.values()))
    weights = {model.name: model.weight for model in settings.llm.models}
    prices = read_prices(settings.budget.prices)
    bandit = settings.llm.model_choice == "bandit"
    return SeveralModels(proposers=writers, weights=weights, bandit=bandit, prices=prices)


def _at(model: LLMSettings, warmth: float) -> LLMSettings:
    return model.model_copy(update={"temperature": min(HOTTEST, warmth * model.temperature)})


def _asking(
    model: LanguageModel | None, own: LLMSettings, settings: Settings, outside: "Outside | None"
) -> Proposer | None:
    if model is None and (outside is None or settings.proposer != "ask"):
        return None
    # Imported here because an offline run must not pay for the templates.
    from kbevolve.evolve.proposers.codegen.proposer import LLMProposer
    from kbevolve.evolve.proposers.interactive import OutsideProposer

    precision = settings.evaluation.precision
    if outside is not None:
        return OutsideProposer(outside=outside, settings=own, precision=precision, model=model)
    return LLMProposer(model, own, precision=precision) if model else None


def _openevolve(settings: Settings, make: ModelMaker) -> Proposer | None:
    """OpenEvolve, which asks the models by itself; None when the settings name none."""
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
    try:
        made: Proposer = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError) as error:
        raise SettingsError(
            f"proposer = {dotted!r}: {error}; it must name a class that can be imported and made without arguments"
        ) from None
    if not callable(getattr(made, "propose", None)):
        raise SettingsError(
            f"proposer = {dotted!r}: it has no method propose(brief); see kbevolve.evolve.proposers.base.Proposer"
        )
    return made
