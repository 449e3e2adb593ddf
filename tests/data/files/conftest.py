import pytest

from fedfdp.data.files.read import read_records
from own_files import facts


@pytest.fixture
def read(tmp_path):
    """The records of a file that is written with the given text or bytes."""

    def call(content, about=None, name="holders.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_records(about or facts(), path)

    return call
