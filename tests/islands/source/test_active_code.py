"""Only what is compiled counts: comments, docstrings and branches that are switched off do not."""

from kbevolve.islands.source.active_code import active_code

SOURCE = '''"""Uses wgmma, in words."""
FUSED = 0
CPP = r"""
#define PACK 0  // tune: 0, 1
#define TILE 32
#define MODE 2
#if PACK
packed();
#elif TILE > 16 && MODE == 2
tiled();
#else
naive();
#endif
#ifdef __AVX512F__
wide();
#else
narrow();
#endif
/* mma.sync */ int x; // __shfl
"""


def forward(x):
    if FUSED:
        return fused(x)
    else:
        return split(x)  # uses cp.async
'''


def test_dead_branches_and_words_are_dropped() -> None:
    text = active_code(SOURCE)
    assert "tiled()" in text.native
    assert not any(word in text.native for word in ("packed()", "naive()", "mma.sync", "__shfl"))
    assert "split(x)" in text.python
    assert not any(word in text.python for word in ("fused(x)", "wgmma", "cp.async", "tiled"))


def test_what_the_text_does_not_decide_stays() -> None:
    text = active_code(SOURCE)
    assert "wide()" in text.native
    assert "narrow()" in text.native


def test_switching_a_branch_on_changes_what_is_seen() -> None:
    text = active_code(SOURCE.replace("PACK 0", "PACK 1").replace("FUSED = 0", "FUSED = 1"))
    assert "packed()" in text.native
    assert "tiled()" not in text.native
    assert "fused(x)" in text.python


def test_text_that_is_not_python_is_native() -> None:
    assert active_code("int main() { return 0; }").native == "int main() { return 0; }"


def test_unbalanced_directives_do_no_harm() -> None:
    assert "x" in active_code('C = """\n#endif\n#else\nx;\n#if (\ny;\n"""').native


def test_endless_expressions_are_seen_as_they_stand() -> None:
    long = "CODE = " + " + ".join(f'"a[{number}] = __ldg(b);\\n"' for number in range(3000))
    for text in (long, "if x:\n  pass\n" + "".join(f"elif x == {number}:\n  __ldg\n" for number in range(1200))):
        found = active_code(text)  # as it stands, or split where the interpreter's limit allows it
        assert "__ldg" in found.native + found.python
