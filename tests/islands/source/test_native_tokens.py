import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbevolve.islands.source.embedded_native import native_form


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int a = 1;", "  int  a = 1;  // one"),
        ("int a = 1;\nint b;", "int a = 1;\n\n/* two */ int\tb;\n"),
        ("#pragma unroll\nfor(;;);", "#pragma unroll  // all\n  for(;;);"),
        ("#include <a.h>\nint x;", "#include <a.h>  // x\n\n\nint x;"),
        ('s = "// no comment"; int b;', 's = "// no comment";  int b; // one'),
        ("/* a */ #define A 1\nint b = A;", "#define A 1  /* c */\nint b = A;"),
        ("#define A 1 \\\n  + 2\nint b;", "#define A 1   + 2\nint b;"),
        ("auto n = 1'000'000 + x;", "auto n = 1'000'000 + x;  // it's"),
    ],
)
def test_comments_and_blanks_do_not_count(one: str, other: str) -> None:
    assert native_form(one) == native_form(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('s = "a // b";', 's = "a";'),
        ('s = "a /* b */ c";', 's = "a  c";'),
        ("c = '\"'; /* \" */", "c = '\"'; // \" \n + 1"),
        ("a - -b", "a --b"),
        ("a - -b", "a - - b + 0"),
        ("a + +b", "a ++ b"),
        ("a > > b", "a >> b"),
        ("a & &b", "a && b"),
        ("int ab;", "int a b;"),
        ("x = 1 .5;", "x = 1.5;"),
        ("x = 0x1e +2;", "x = 0x1e+2;"),
        ("x = L 'a';", "x = L'a';"),
        ("#define F(x) x\nF(1)", "#define F (x) x\nF(1)"),
        ("#define A\nint b;", "#define A int b;"),
        ("#define A /* \n */ 1\nA", "#define A \n 1\nA"),
        ("// a \\\nint b;\nint c;", "// a\nint b;\nint c;"),
        ("#define S(x) #x\nS(a + b)", "#define S(x) #x\nS(a+b)"),
        ("int a = __LINE__;", "\nint a = __LINE__;"),
        ('auto s = R"(// a)";', 'auto s = R"(// b)";'),
        ('auto s = R"(a\n b)";', 'auto s = R"(a\n  b)";'),
        ("#include <a//b>\nint c;", "#include <a//c>\nint c;"),
        ("#if 0\nit's // it's\n#endif", "#if 0\nit's // its\n#endif"),
        ("int a; /* never ends", "int a; /* never ends at all"),
        ('s = "never ends\n// a', 's = "never ends\n// b'),
        ("a = b /*c*/ / d;", "a = b // d;"),
        ("#error one", "#error two"),
        ("#define A 1 // two", "#define A 12"),
        ("int n = 1'000; auto s = \"x' // y\";", "int n = 1'000; auto s = \"x' // z\";"),
        ("#include <a  b>", "#include <a b>"),
        ("__LI\\\nNE__", "\n__LI\\\nNE__"),
        ("#if __has_include(<a//b>)\n#endif", "#if __has_include(<a//c>)\n#endif"),
        ("int a ??/\n= 1; // ??/\nb();", "int a = 1;"),
        ('asm(".incbin \\"kernel.cu\\""); // a', 'asm(".incbin \\"kernel.cu\\""); // b'),
    ],
)
def test_what_a_compiler_sees_does(one: str, other: str) -> None:
    assert native_form(one) != native_form(other)


TEXT = r"""
#include <cuda_fp16.h>
#define TILE 32
template <int N> __device__ __forceinline__ float sum(const float* __restrict__ x, float a = -1.5e-3f) {
  float s = 0.f; const char* t = "a \" // b"; char q = '\'';
#pragma unroll
  for (int i = 0; i < N; ++i) s += x[i] * a - -(x[i] >> 1) ? a-- - b : c->d / *p;
  kernel<<<grid, TILE>>>(x); asm volatile("mov.b32 %0, {%1, %2}; // \n" : "=r"(y) : "l"(z) );
  return s;
}
"""


#: Where a blank stands outside of strings.
BLANKS = [
    at for at, character in enumerate(TEXT)
    if character == " " and not set("\"'") & set(TEXT[TEXT.rfind("\n", 0, at) + 1 :].partition("\n")[0])
]  # fmt: skip


@given(st.sets(st.sampled_from(BLANKS)), st.sampled_from(("  ", "\t", " /* a */ ", " /* a\n'b */")))
@pytest.mark.slow
def test_a_comment_may_stand_wherever_a_blank_does(places: set[int], comment: str) -> None:
    text = "".join(comment if at in places else character for at, character in enumerate(TEXT))
    assert native_form(text) == native_form(TEXT)


@given(st.sampled_from([at for at, character in enumerate(TEXT) if not character.isspace()]))
def test_every_other_character_counts(at: int) -> None:
    assert native_form(TEXT[:at] + TEXT[at + 1 :]) != native_form(TEXT)


@given(st.text(alphabet="ab1 .+-/*<>'\"\\\n#;", max_size=30), st.text(alphabet="ab1 '\"*\t", max_size=9))
def test_a_comment_at_a_line_end_never_changes_the_form_of_what_is_clear(text: str, words: str) -> None:
    form, noted = native_form(f"{text}\nint x;"), native_form(f"{text} // {words}\nint x;")
    open_or_joined = text.endswith("\\") or "\x00" in form + noted
    assert open_or_joined or form == noted
