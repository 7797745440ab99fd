import re
from random import Random

import pytest

from kbevolve.islands.source.native_tokens import native_form


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int a = 1;", "int  a=1 ;  // one"),
        ("int a = 1; int b;", "int a = 1;\n/* two */ int\tb;"),
        ("f(a, b)", "f ( a,b )"),
        ("x = a + 1.0f;", "x=a+1.0f;"),
        ("#pragma unroll\nfor(;;);", "#pragma unroll  // all\nfor (;;) ;"),
        ("#include <a.h>\nint x;", "#include <a.h>  // x\n\n\nint x;"),
        ('s = "// no comment"; int b;', 's = "// no comment";int b; // one'),
        ("/* a */ #define A 1\nint b = A;", "#define A 1  /* c */\nint b = A;"),
        ("#define A 1 \\\n  + 2\nint b;", "#define A 1   + 2\nint b;"),
        ("auto n = 1'000'000 + x;", "auto n = 1'000'000+x;"),
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
        ("#if __has_include(<a//b>)\n#endif", "#if __has_include(<a//c>)\n#endif"),
        ("%:define A(x) %:x\nA(1 2)", "%:define A(x) %:x\nA(1  2)"),
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


def test_any_comment_may_stand_wherever_a_blank_does_and_nowhere_else() -> None:
    rng = Random(0)
    # Outside of strings and of the preprocessor's lines.
    places = [
        place for place, character in enumerate(TEXT)
        if character == " " and '"' not in (line := TEXT[TEXT.rfind("\n", 0, place) + 1 :].partition("\n")[0])
        and "'" not in line and not line.startswith("#")
    ]  # fmt: skip
    assert len(places) > 40
    for _ in range(200):
        text = TEXT
        for place in sorted(rng.sample(places, 5), reverse=True):
            text = text[:place] + rng.choice(("  ", "\n", " /* a */ ", "\t// b\n", " /**/")) + text[place + 1 :]
        assert native_form(text) == native_form(TEXT)
    for place, character in enumerate(TEXT):
        if not character.isspace():
            assert native_form(TEXT[:place] + TEXT[place + 1 :]) != native_form(TEXT), TEXT[place - 9 : place + 9]


def test_tokens_are_those_that_the_blanks_part() -> None:
    """A text of tokens with a blank between any two has the form of its tokens: no blank is dropped that parts two."""
    pieces = [
        "a",
        "1",
        "1e",
        ".5",
        "+",
        "-",
        "<",
        ">",
        "=",
        "&",
        "/",
        "*",
        ":",
        ".",
        "(",
        ";",
        '"s"',
        "'c'",
        "0x1p",
        "#",
    ]
    forms: dict[str, tuple[str, ...]] = {}
    token = re.compile(r"\.?\d(?:[eEpP][+-]|[\w.])*|\w+|\"s\"|'c'|->|\+\+|--|<<|>>|<=|>=|==|&&|\+=|-=|\*=|/=|&=|::|\S")
    for one in pieces:
        for two in pieces:
            for gap in ("", " "):
                text = f"x {one}{gap}{two} y;"
                if "//" in text or "/*" in text or "#" in text:
                    continue
                tokens = tuple(token.findall(text))
                assert forms.setdefault(native_form(text), tokens) == tokens, text
