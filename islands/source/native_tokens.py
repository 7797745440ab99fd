"""C++ or CUDA without comments, indentation and repeated blanks.

Where comments cannot be found by tokens alone (raw strings, trigraphs, a quote that never ends), and where the program
may see its own lines or file, the text stays as it is. Names stay: only a compiler knows whether one is local.
"""

import re

#: The program may see its lines or its file, or comments are not found by tokens alone.
_UNCLEAR = re.compile(
    r'R"|[\r\f\v\0]|\\[ \t]+\n|\?\?[=/\'()!<>-]|#[ \t]*include[^"\n]*<[^>\n]*(?://|/\*|[ \t]{2})|'
    r"__LINE__|__FILE__|__BASE_FILE__|__FILE_NAME__|__TIMESTAMP__|source_location|__builtin_(?:LINE|FILE|FUNCTION|COLUMN)|"
    r"__has_include|__has_embed|\bincbin\b|\bembed\b|#[ \t]*(?:line|import|include_next)\b"
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TOKEN = re.compile(
    r"""(?P<blank>(?:[ \t\n]|//[^\n]*|/\*.*?\*/)+)
    |(?P<kept>[A-Za-z_$][\w$]*|\.?[0-9](?:'\w|[\w.])*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<open>["']|/\*)""",
    re.DOTALL | re.VERBOSE | re.ASCII,
)


def native_form(text: str) -> str:
    """What is compiled of a whole native file: of two texts of one form a compiler makes the same program."""
    joined = text.replace("\\\n", "")
    if _UNCLEAR.search(joined) or any(found["open"] for found in _TOKEN.finditer(joined)):
        return f"\x00{text}"
    return _TOKEN.sub(_without_comments, joined).strip()


def _without_comments(token: re.Match[str]) -> str:
    # A line's end may end a line of the preprocessor, unless it is inside a comment.
    return token[0] if token["blank"] is None else "\n" if "\n" in _COMMENT.sub("", token[0]) else " "
