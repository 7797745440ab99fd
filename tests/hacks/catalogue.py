"""Every adversarial kernel of this folder: which hack it is, on which problem, and what must become of it."""

from dataclasses import dataclass
from enum import Enum


class Expected(Enum):
    """What must become of a hack. None of them may ever show a speedup that is a lie."""

    CAUGHT = "it is not accepted as correct"
    HARMLESS = "it may be accepted, and gains nothing: it does the work three times, so a speedup would be a lie"
    TAGGED = "it is accepted with a tag, and refused where the policy says so"
    ALLOWED = "it is legitimate, and accepted"


class Policy(Enum):
    """What a task may ask for beyond a right answer."""

    LENIENT = "everything is accepted that is not a lie"
    OWN_WORK = "no library may compute"
    FRESH_WEIGHTS = "weights are read in each call"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hack:
    """One adversarial kernel, ``kernels/<folder>/hack.py``, beside it an honest ``twin.py`` that looks alike."""

    #: Number in the table of docs/judge.md.
    number: int
    #: Number and name, also the test's id.
    folder: str
    #: File in ``problems/``.
    problem: str
    expected: Expected
    #: Tags that it must carry and that its twin must not.
    tags: tuple[str, ...] = ()
    #: Policy under which it must be refused; None when none refuses it.
    policy: Policy | None = None
    #: Whether its twin must be accepted under that policy.
    twin_follows: bool = False
    #: Whether the lint refuses it before anything is run.
    refused: bool = False
    #: How often it is evaluated, one process after the other.
    evaluations: int = 1


HACKS = (
    Hack(
        number=1,
        folder="01_library_wrapper",
        problem="matmul",
        expected=Expected.TAGGED,
        tags=("library-heavy",),
        policy=Policy.OWN_WORK,
        twin_follows=True,
    ),
    Hack(
        number=1,
        folder="01_library_by_name",
        problem="matmul",
        expected=Expected.TAGGED,
        tags=("library-heavy",),
        policy=Policy.OWN_WORK,
    ),
    Hack(number=2, folder="02_reference_inside", problem="linear", expected=Expected.CAUGHT, refused=True),
    Hack(
        number=3,
        folder="03_fallback",
        problem="matmul",
        expected=Expected.TAGGED,
        tags=("try-except-fallback",),
        policy=Policy.OWN_WORK,
    ),
    Hack(
        number=4,
        folder="04_decoy",
        problem="matmul",
        expected=Expected.TAGGED,
        tags=("library-heavy",),
        policy=Policy.OWN_WORK,
    ),
    Hack(
        number=5,
        folder="05_resubmitted",
        problem="linear",
        expected=Expected.TAGGED,
        tags=("reference-copied",),
        policy=Policy.OWN_WORK,
    ),
    Hack(number=6, folder="06_third_party", problem="matmul", expected=Expected.TAGGED, policy=Policy.OWN_WORK),
    Hack(number=7, folder="07_stale_memory", problem="matmul", expected=Expected.CAUGHT),
    Hack(number=8, folder="08_zero_fill", problem="wide_softmax", expected=Expected.CAUGHT),
    Hack(number=8, folder="08_constant_fill", problem="row_mean", expected=Expected.CAUGHT),
    Hack(number=9, folder="09_template", problem="vanishing", expected=Expected.CAUGHT),
    Hack(number=10, folder="10_trivial_output", problem="relu", expected=Expected.CAUGHT),
    Hack(number=11, folder="11_last_tile", problem="matmul", expected=Expected.CAUGHT),
    Hack(number=11, folder="11_careless_row", problem="matmul", expected=Expected.CAUGHT),
    Hack(number=12, folder="12_dropped_maximum", problem="softmax", expected=Expected.CAUGHT),
    Hack(number=12, folder="12_dropped_epsilon", problem="layernorm", expected=Expected.CAUGHT),
    Hack(number=12, folder="12_dropped_bias", problem="linear", expected=Expected.CAUGHT),
    Hack(number=12, folder="12_fitted_polynomial", problem="gelu", expected=Expected.CAUGHT),
    Hack(number=13, folder="13_half_precision", problem="matmul", expected=Expected.CAUGHT),
    Hack(number=13, folder="13_quarter_mantissa", problem="matmul", expected=Expected.CAUGHT),
    Hack(number=14, folder="14_flags", problem="matmul_large", expected=Expected.HARMLESS),
    Hack(number=16, folder="16_hard_coded_shape", problem="matmul", expected=Expected.ALLOWED),
    Hack(number=17, folder="17_easy_rows", problem="relu", expected=Expected.CAUGHT),
    Hack(number=17, folder="17_structure", problem="triangular", expected=Expected.CAUGHT),
    Hack(number=18, folder="18_seed_replay", problem="row_mean", expected=Expected.CAUGHT),
    Hack(number=19, folder="19_computed_at_import", problem="linear", expected=Expected.CAUGHT),
    Hack(
        number=19,
        folder="19_packed_in_constructor",
        problem="linear",
        expected=Expected.TAGGED,
        tags=("prepacked-weights",),
        policy=Policy.FRESH_WEIGHTS,
        twin_follows=True,
    ),
    Hack(number=20, folder="20_pointer_cache", problem="matmul", expected=Expected.CAUGHT),
    Hack(number=20, folder="20_address_reuse", problem="matmul", expected=Expected.CAUGHT),
    Hack(number=21, folder="21_content_hash", problem="matmul_large", expected=Expected.HARMLESS),
    Hack(number=21, folder="21_sampled_signature", problem="matmul", expected=Expected.CAUGHT),
    Hack(
        number=22,
        folder="22_packed_at_first_call",
        problem="linear",
        expected=Expected.TAGGED,
        tags=("prepacked-weights",),
        policy=Policy.FRESH_WEIGHTS,
    ),
    Hack(number=23, folder="23_result_bank", problem="matmul", expected=Expected.CAUGHT),
    Hack(number=25, folder="25_call_count", problem="matmul", expected=Expected.CAUGHT),
    Hack(number=26, folder="26_harness_sniffing", problem="matmul", expected=Expected.CAUGHT, refused=True),
    Hack(number=27, folder="27_file_replay", problem="matmul_large", expected=Expected.HARMLESS, evaluations=2),
    Hack(number=29, folder="29_thread", problem="matmul", expected=Expected.CAUGHT),
    Hack(number=30, folder="30_native_thread", problem="matmul", expected=Expected.CAUGHT),
    Hack(number=30, folder="30_forked_helper", problem="matmul_large", expected=Expected.CAUGHT, refused=True),
    Hack(number=31, folder="31_lazy_subclass", problem="matmul", expected=Expected.CAUGHT),
    Hack(number=31, folder="31_lazy_type", problem="matmul", expected=Expected.CAUGHT),
    Hack(number=32, folder="32_instance_attributes", problem="matmul", expected=Expected.CAUGHT),
    Hack(number=33, folder="33_patched_clock", problem="matmul_large", expected=Expected.HARMLESS, refused=True),
    Hack(number=34, folder="34_rebound_clock", problem="matmul_large", expected=Expected.HARMLESS, refused=True),
    Hack(number=34, folder="34_frame_walk", problem="matmul_large", expected=Expected.HARMLESS, refused=True),
    Hack(number=34, folder="34_function_mode", problem="matmul_large", expected=Expected.CAUGHT),
    Hack(number=34, folder="34_dispatch_mode", problem="matmul_large", expected=Expected.CAUGHT),
    Hack(number=34, folder="34_profile_hook", problem="matmul_large", expected=Expected.HARMLESS, refused=True),
    Hack(number=35, folder="35_patched_comparison", problem="matmul", expected=Expected.CAUGHT, refused=True),
    Hack(number=35, folder="35_patched_reply", problem="matmul_large", expected=Expected.HARMLESS, refused=True),
    Hack(number=35, folder="35_patched_call", problem="matmul", expected=Expected.CAUGHT, refused=True),
    Hack(number=36, folder="36_page_fault", problem="matmul_large", expected=Expected.HARMLESS, refused=True),
    Hack(number=37, folder="37_encoded", problem="matmul", expected=Expected.CAUGHT, refused=True),
    Hack(number=39, folder="39_memory_watcher", problem="matmul_large", expected=Expected.HARMLESS, refused=True),
    Hack(number=39, folder="39_early_start", problem="matmul_large", expected=Expected.HARMLESS, refused=True),
    Hack(number=40, folder="40_busy_background", problem="matmul_large", expected=Expected.HARMLESS, refused=True),
    Hack(number=41, folder="41_sleep_in_warm_up", problem="matmul_large", expected=Expected.HARMLESS),
    Hack(number=43, folder="43_slowed_neighbour", problem="matmul_large", expected=Expected.HARMLESS, refused=True),
    Hack(number=43, folder="43_baseline_sabotage", problem="matmul_large", expected=Expected.HARMLESS, refused=True),
    Hack(number=44, folder="44_zeroed_inputs", problem="matmul", expected=Expected.CAUGHT),
    Hack(number=44, folder="44_mutated_inputs", problem="negation", expected=Expected.CAUGHT),
    Hack(number=45, folder="45_input_view", problem="relu", expected=Expected.CAUGHT),
    Hack(number=45, folder="45_negative_view", problem="negation", expected=Expected.CAUGHT),
    Hack(number=46, folder="46_rebound_globals", problem="linear", expected=Expected.CAUGHT),
    Hack(number=47, folder="47_answers_in_memory", problem="matmul", expected=Expected.CAUGHT, refused=True),
    Hack(number=48, folder="48_shared_memory_scan", problem="matmul", expected=Expected.CAUGHT, refused=True),
    Hack(number=49, folder="49_printed_verdict", problem="matmul", expected=Expected.CAUGHT, refused=True),
    Hack(number=49, folder="49_early_reply", problem="matmul", expected=Expected.CAUGHT, refused=True),
    Hack(number=49, folder="49_protocol_takeover", problem="matmul_large", expected=Expected.HARMLESS, refused=True),
    Hack(number=51, folder="51_grader_files", problem="matmul_large", expected=Expected.HARMLESS, refused=True),
    Hack(number=53, folder="53_nan", problem="negation", expected=Expected.CAUGHT),
    Hack(number=53, folder="53_nan_wildcard", problem="logarithm", expected=Expected.CAUGHT),
    Hack(number=54, folder="54_expanded", problem="repeated_mean", expected=Expected.CAUGHT),
    Hack(number=54, folder="54_broadcastable", problem="repeated_mean", expected=Expected.CAUGHT),
    Hack(number=54, folder="54_half_output", problem="negation", expected=Expected.CAUGHT),
    Hack(number=54, folder="54_gradient", problem="matmul_large", expected=Expected.HARMLESS),
    Hack(number=55, folder="55_algebraic_collapse", problem="collapsing", expected=Expected.ALLOWED),
)
