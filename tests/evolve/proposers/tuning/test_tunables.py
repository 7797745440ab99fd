"""Declared tunables: found, and changed without changing anything else."""

from kbevolve.evolve.proposers.tuning.tunables import Tunable, declared, skeleton, values_of, with_values

SOURCE = '''BLOCK = 64  # tune: 32, 64, 128
ORDER = kij  # tune: ijk, kij (a bare word)
plain = 3  # not one
CPP = r"""
#define UNROLL 4  // tune: 1, 2, 4, 8
#define FIXED 7
  #define PACK 0 // tune: 0, 1; packs B
#define LONE 5  // tune: 5
"""
'''


def test_python_and_native_declarations_are_found_in_order() -> None:
    assert declared(SOURCE) == (
        Tunable(name="BLOCK", value="64", choices=("32", "64", "128")),
        Tunable(name="ORDER", value="kij", choices=("ijk", "kij")),
        Tunable(name="UNROLL", value="4", choices=("1", "2", "4", "8")),
        Tunable(name="PACK", value="0", choices=("0", "1")),
    )


def test_a_value_outside_its_choices_becomes_a_choice() -> None:
    assert declared("N = 3  # tune: 1, 2")[0].choices == ("3", "1", "2")


def test_setting_values_changes_nothing_else() -> None:
    changed = with_values(SOURCE, {"UNROLL": "8", "BLOCK": "32", "FIXED": "9", "absent": "1"})
    before, after = SOURCE.split("\n"), changed.split("\n")
    assert [line for line in after if line not in before] == [
        "BLOCK = 32  # tune: 32, 64, 128",
        "#define UNROLL 8  // tune: 1, 2, 4, 8",
    ]
    assert values_of(changed) == {"BLOCK": "32", "ORDER": "kij", "UNROLL": "8", "PACK": "0"}


def test_carriage_returns_are_kept() -> None:
    assert with_values("N = 1  # tune: 1, 2\r\nx = 0\r\n", {"N": "2"}) == "N = 2  # tune: 1, 2\r\nx = 0\r\n"


def test_settings_of_one_kernel_share_a_skeleton() -> None:
    assert skeleton(SOURCE) == skeleton(with_values(SOURCE, {"UNROLL": "1"}))
    assert skeleton(SOURCE) != skeleton(SOURCE.replace("FIXED 7", "FIXED 8"))
