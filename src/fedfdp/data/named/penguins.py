"""Palmer penguins: the species of 342 penguins of three islands, by their measures."""

from collections.abc import Sequence

from fedfdp.data.named.entry import Card, Table
from fedfdp.data.named.layout import Layout, Rows, cells
from fedfdp.data.named.origins import Pypi
from fedfdp.data.schema import Facts

FACTS = Facts(
    holder="island",
    label="species",
    classes=("Adelie", "Chinstrap", "Gentoo"),
    columns={
        "bill_length_mm": [30, 60],
        "bill_depth_mm": [12, 22],
        "flipper_length_mm": [170, 235],
        "body_mass_g": [2500, 6500],
        "sex": {"categories": ["female", "male", "unknown"], "missing": "unknown"},
    },
)
_KEPT = ("island", "species", "bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g", "sex")


def _read(files: Sequence[bytes]) -> Rows:
    # Two penguins were not measured.
    measured = (row for row in cells(files[0]) if row["bill_length_mm"] not in ("", "NA"))
    return Rows.of(_KEPT, ([row[name] for name in _KEPT] for row in measured))


PENGUINS = Table(
    name="palmer-penguins",
    aliases=("penguins",),
    records=342,
    shape=(7,),
    classes=3,
    sha256="ba7c27ae07070d157d3ab48bf7cf21ef5204251777cdb77c1c45fa00101ca4cd",
    facts=FACTS,
    layouts=(Layout("the table", ("penguins.csv",), _read),),
    origins=(Pypi("palmerpenguins", "0.1.6", "5c3be9af84dd703a25f1aaeadeac6ac770cfd38c1620d00089f581c023129ee0"),),
    card=Card(
        source="Gorman, Williams and Fraser (2014), Palmer Station LTER; package palmerpenguins",
        licence="CC0",
        column="island",
        holders="3 islands of the Palmer Archipelago; one of them has a single species",
    ),
)
