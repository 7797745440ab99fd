"""Which kernels' time a tunable can change, and whether two files have it from one template."""

from kbevolve.archive.records import Launch
from kbevolve.configs.templates import template
from kbevolve.evolve.proposers.seeds.split_products import with_split_products
from kbevolve.evolve.proposers.tuning.reach import shares, templates
from kbevolve.evolve.proposers.tuning.tunables import with_values

FILE = """\
FAST_0 = 1  # tune: 0, 1
FAST_1 = 1  # tune: 0, 1
TILE = 64  # tune: 32, 64
ROWS = 4  # tune: 4, 8
SPARE = 1  # tune: 1, 2

gemm, row_norm = compiled("gemm"), compiled("row_norm")

def product(a):
    gemm[(a // TILE,)](a, BM=TILE)

def norm(a):
    row_norm[(ROWS,)](a)

class Runner:
    def call(self, a):
        (product if FAST_0 else extern_kernels.mm)(a)
        norm(a)
        (product if FAST_1 else extern_kernels.mm)(a)
"""


def launch(name: str, share: float, *, library: bool = False) -> Launch:
    return Launch(name=name, share=share, microseconds=1.0, launches=1.0, library=library)


def test_a_tunable_can_change_the_kernels_that_its_functions_launch() -> None:
    found = shares(FILE, [launch("gemm_0d1d", 0.8), launch("row_norm", 0.15), launch("other", 0.05)])
    assert {name: round(share, 3) for name, share in found.items()} == {
        "FAST_0": 0.4, "FAST_1": 0.4, "TILE": 0.8, "ROWS": 0.15,
    }  # fmt: skip
    assert "SPARE" not in found, "no function mentions it, so nothing is known of it"


def test_a_condition_that_chose_the_library_can_change_its_time() -> None:
    source = with_values(FILE, {"FAST_0": "0", "FAST_1": "0"})
    found = shares(source, [launch("sm90_xmma_gemm", 0.9, library=True), launch("row_norm", 0.1)])
    assert {name: round(share, 3) for name, share in found.items()} == {
        "FAST_0": 0.45, "FAST_1": 0.45, "TILE": 0.45, "ROWS": 0.1,
    }  # fmt: skip


def test_without_a_profile_or_python_nothing_is_known() -> None:
    assert shares(FILE, []) == {}
    assert shares("#define TILE 4  // tune: 4, 8\nint f() { return TILE; }\n", [launch("gemm", 1.0)]) == {}


def test_a_template_is_known_by_the_functions_that_mention_its_tunables() -> None:
    one, other = templates(FILE), templates(FILE.replace("norm(a)\n        (", "norm(2 * a)\n        ("))
    assert one["TILE"] == other["TILE"]
    assert one["FAST_0"] != other["FAST_0"], "it is declared in the problem's own code"
    assert one["TILE"] != templates(FILE.replace("BM=TILE", "BM=2 * TILE"))["TILE"]
    assert one["TILE"] != templates(FILE.replace("# tune: 32, 64", "# tune: 64, 128"))["TILE"]
    assert one == templates(with_values(FILE, {"TILE": "32", "ROWS": "8"}))


def test_the_tiles_of_split_products_are_a_template_of_two_files() -> None:
    calls = [
        f"class Runner:\n    def call(self, a, b):\n        extern_kernels.mm({a}, b, out=a)\n" for a in ("a", "a[0]")
    ]
    sources = [with_split_products(call) for call in calls]
    one, other = (templates(source or "") for source in sources)
    tiles = {name for name in templates(template("split_products"))}
    assert tiles
    assert {name for name in one if one[name] == other[name]} == tiles
    found = shares(sources[0] or "", [launch("split_gemm", 0.9), launch("triton_poi_fused_0", 0.1)])
    assert found["PRODUCT_0"] == found["SPLIT_N"] == 0.9
