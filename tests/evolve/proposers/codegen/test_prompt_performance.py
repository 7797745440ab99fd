"""Prompts show the measurements of the parent, and what is wrong with a file to repair."""

from pathlib import Path

from kbevolve.archive.parts import grouped
from kbevolve.archive.records import Evaluation, Kernel, Launch, Operator, Profile, Verdict
from kbevolve.configs.playbook import load_playbook
from kbevolve.configs.problem import parse_problem
from kbevolve.evolve.proposers.codegen import prompts
from kbevolve.evolve.state.attempts import Failure
from kbevolve.islands.island import Member
from tests.evolve.doubles import brief_of

PROBLEM = parse_problem(
    "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n", name="p", path=Path("p.py")
)
KERNEL = Kernel.from_source('import torch\nSOURCE = "__global__ void f() {}"\nclass ModelNew(torch.nn.Module): ...\n')


def evaluation(verdict: Verdict, profile: Profile | None = None, message: str = "") -> Evaluation:
    speedup = 1.5 if verdict is Verdict.CORRECT else None
    return grouped(
        Evaluation,
        kernel=KERNEL.id,
        problem=PROBLEM.id,
        device="cuda/H",
        precision="fp32",
        verdict=verdict,
        message=message,
        speedup=speedup,
        profile=profile,
        precision_class="fp32",
        time_ms=2.0,
    )


def prompt(profile: Profile | None) -> str:
    member = Member(kernel=KERNEL, evaluation=evaluation(Verdict.CORRECT, profile), niche="m0")
    brief = brief_of(Operator.MUTATE, member, problem=PROBLEM, device_type="cuda", device="a GPU")
    return prompts.ideas(brief, load_playbook().ideas[:2], load_playbook())


def test_the_parents_profile_is_shown_below_its_source() -> None:
    launch = Launch(name="f", share=1.0, microseconds=1900.0, launches=1.0, registers=96)
    text = prompt(Profile(launches=(launch,), roofline_share=0.4, bottleneck="far from the roofline (40 %): latency"))
    shown = text[text.index("The kernel to improve") :]
    assert (
        "```\nMeasured on this device:\nEffective: 40 % of the roofline at fp32.\n"
        "Where the time of a call goes:\n- 100 % f: 1.9 ms, 96 registers\n"
        "Bottleneck (a guess): far from the roofline (40 %): latency.\n"
    ) in shown


def test_a_parent_without_profile_leaves_no_empty_heading() -> None:
    assert "Measured on" not in prompt(None)


def test_a_repair_begins_with_how_far_the_file_got() -> None:
    found = evaluation(Verdict.WRONG, message="wrong values: every 32nd row")
    text = prompts.repair(Failure(kernel=KERNEL, evaluation=found))
    assert "It ran, and its result is wrong.\nwrong values: every 32nd row\n" in text


def test_a_repair_of_rounding_asks_for_no_other_indices() -> None:
    rounded, mistaken = (
        prompts.repair(Failure(kernel=KERNEL, evaluation=evaluation(Verdict.WRONG, message=message)))
        for message in ("not accurate enough on large inputs", "wrong values on large inputs")
    )
    assert rounded.startswith("That file does not work: not accurate enough.")
    assert "parts of a split" in rounded
    assert "masks" not in rounded
    assert mistaken.startswith("That file does not work: wrong.")
    assert "tails, masks, barriers" in mistaken
