"""The idx format, by hand."""

import pytest

from fedfdp.data.named.mnist import idx


def test_idx_by_hand():
    content = bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6])
    assert idx(content).tolist() == [[1, 2, 3], [4, 5, 6]]
    for broken in (b"", content[:-1], b"\0\0\x0d" + content[3:]):
        with pytest.raises(ValueError, match=r"idx|reshape"):
            idx(broken)
