"""NumPy archives: the values, the public ranges, and everything an archive can lie about."""

import io
import struct
import zipfile

import numpy as np
import pytest
import torch

from fedfdp.core.errors import DataError, SettingError
from fedfdp.data.files import arrays, paths
from fedfdp.data.files.read import read_inputs, read_records
from fedfdp.data.schema import Facts

X, Y = np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 1, 2, 0])


def saved(path, compressed=False, **members):
    (np.savez_compressed if compressed else np.savez)(path, **members)
    return path


def test_floats_are_taken_as_they_are_unless_a_range_is_given(tmp_path):
    path = saved(tmp_path / "d.npz", x=X, y=Y)
    assert torch.equal(read_records(Facts(classes=3), path).x, torch.tensor(X, dtype=torch.float32))
    ranged = read_records(Facts(classes=3, range=(0.0, 10.0)), path)
    assert torch.allclose(ranged.x[:, 0], torch.tensor([-1.0, -0.6, -0.2, 0.2, 0.6, 1.0]))
    assert ranged.x[5].tolist() == [1.0, 1.0]  # 11 is clamped to 10
    assert ranged.y.tolist() == Y.tolist()


def test_bytes_have_a_range_by_themselves_and_whole_numbers_are_tokens(tmp_path):
    pixels = np.array([[0, 255], [51, 204]], np.uint8)
    got = read_records(Facts(classes=2), saved(tmp_path / "u.npz", x=pixels, y=[0, 1]))
    assert torch.allclose(got.x, torch.tensor([[-1.0, 1.0], [-0.6, 0.6]]))
    tokens = read_records(Facts(classes=2), saved(tmp_path / "t.npz", x=np.array([[7, 8], [9, 1]]), y=[0, 1]))
    assert (tokens.x.dtype, tokens.x.tolist()) == (torch.int64, [[7, 8], [9, 1]])


IDS, MASK = np.array([[7, 300], [9, 1]]), np.array([[1, 1], [1, 0]])


def of_several(path, *, mask, facts=None, **more):
    inputs = ("ids", "attention_mask", *more)
    members = {"ids": IDS, "attention_mask": mask, **more}
    return read_records(Facts(classes=2, inputs=inputs, **(facts or {})), saved(path, **members, y=[0, 1])).x.parts


def test_of_several_inputs_only_numbers_and_images_are_scaled(tmp_path):
    """A range, and the range that bytes have by themselves, never reach token numbers or masks."""
    image = np.array([0, 255], np.uint8).reshape(2, 1, 1, 1)
    for kind in (np.int64, np.int8, bool, np.float32):
        ids, mask, row, seen = of_several(
            tmp_path / "d.npz",
            mask=MASK.astype(kind),
            facts={"range": (0.0, 10.0)},
            row=np.array([[0.0], [10.0]]),
            image=image,
        )
        assert ids.tolist() == IDS.tolist()
        assert mask.tolist() == MASK.tolist()
        assert row.tolist() == [[-1.0], [1.0]]
        assert seen.flatten().tolist() == [-1.0, 1.0]
    assert of_several(tmp_path / "d.npz", mask=MASK.astype(bool), image=image)[2].flatten().tolist() == [-1.0, 1.0]


def test_a_mask_of_bytes_is_refused(tmp_path):
    said = (
        r"array 'attention_mask' holds uint8, but no images; "
        r"save a mask as bool, token numbers as int64, other values as float32$"
    )
    with pytest.raises(DataError, match=said):
        of_several(tmp_path / "d.npz", mask=MASK.astype(np.uint8))
    with pytest.raises(DataError, match=said):
        of_several(tmp_path / "d.npz", mask=MASK.astype(np.uint8).reshape(2, 1, 1, 2))
    with pytest.raises(DataError, match=r"array 'row' holds int8, but no images"):
        of_several(tmp_path / "d.npz", mask=MASK, row=MASK.astype(np.int8), facts={"range": (0.0, 10.0)})


def test_inputs_for_the_test_are_not_cut_to_those_for_training(tmp_path):
    path = saved(tmp_path / "d.npz", x=IDS, y=[0, 1], x_test=IDS + 0.9, y_test=[0, 1])
    with pytest.raises(DataError, match=r"'x_test' holds float64, 'x' int64; save both in the same type$"):
        read_records(Facts(classes=2), path)
    mixed = saved(tmp_path / "d.npz", x=X, y=Y, x_test=IDS, y_test=[0, 1])
    assert read_records(Facts(classes=3), mixed).x[6:].tolist() == IDS.tolist()


@pytest.mark.parametrize(("train", "test"), [("u1", "f4"), ("u1", "i8"), ("f4", "u1"), ("?", "u1")])
def test_inputs_are_all_scaled_alike(tmp_path, train, test):
    """Bytes are scaled to −1 and 1; beside other numbers one part of the records would be, and the other not."""
    x = np.arange(4).reshape(2, 2) % 2
    path = saved(tmp_path / "d.npz", x=x.astype(train), y=[0, 1], x_test=x.astype(test), y_test=[0, 1])
    with pytest.raises(DataError, match=r"'x_test' holds .*; save both in the same type$"):
        read_records(Facts(classes=2), path)
    folder = tmp_path / "holders"
    folder.mkdir()
    for name, kind in (("north", train), ("south", test)):
        saved(folder / f"{name}.npz", x=x.astype(kind), y=[0, 1])
    with pytest.raises(DataError, match=r"south\.npz: (arrays of another type|records of shape)"):
        read_records(Facts(classes=2), folder)


def test_targets_beyond_whole_numbers_of_64_bits_are_refused(tmp_path):
    y = np.array([[2**64 - 100], [1]], np.uint64)  # as int64 the first would be −100, which counts nowhere
    path = saved(tmp_path / "d.npz", x=IDS, y=y)
    with pytest.raises(DataError, match=r"array 'y' holds numbers above 9223372036854775807; save int64$"):
        read_records(Facts(classes=2, task="tokens"), path)


def test_token_numbers_beyond_64_bits_and_complex_targets_are_refused(tmp_path):
    large = np.array([[2**63 + 5], [1]], np.uint64)  # as int64 the first would be negative
    with pytest.raises(DataError, match=r"array 'x' holds numbers above 9223372036854775807; save int64$"):
        read_records(Facts(classes=2), saved(tmp_path / "d.npz", x=large, y=[0, 1]))
    path = saved(tmp_path / "d.npz", x=X[:2], y=np.array([1j, 2.0]))
    with pytest.raises(DataError, match=r"array 'y' holds complex numbers; save real ones$"):
        read_records(Facts(), path)


def test_a_mask_is_known_by_a_word_of_its_name(tmp_path):
    """`unmasked` is another word: its numbers are scaled like all others."""
    named = {"mask": MASK, "pixel_mask": MASK, "padMask2": MASK, "unmasked": MASK}
    inputs = {name: values.astype(np.float32) for name, values in named.items()}
    facts = Facts(classes=2, inputs=tuple(inputs), range=(0.0, 1.0))
    parts = read_records(facts, saved(tmp_path / "d.npz", **inputs, y=[0, 1])).x.parts
    assert [part.tolist() for part in parts] == [*[MASK.tolist()] * 3, [[1.0, 1.0], [1.0, -1.0]]]


def test_a_label_that_is_nearly_one_is_none(tmp_path):
    """In single precision it would be 1."""
    path = saved(tmp_path / "d.npz", x=X[:2], y=np.array([[0.0, 1.0000000001], [1.0, 0.0]]))
    with pytest.raises(DataError, match="multi-label needs a 0 or 1 for each label"):
        read_records(Facts(task="multi-label"), path)


def test_holders_a_given_split_and_names_of_classes(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "PIECE", 32)  # two rows at a time
    path = saved(tmp_path / "d.npz", x=X, y=np.array(list("abacbc")), who=np.array(list("nnssns")))
    got = read_records(Facts(classes=("a", "b", "c"), holder="who"), path)
    assert (got.y.tolist(), got.holders, got.owner.tolist()) == ([0, 1, 0, 2, 1, 2], ("n", "s"), [0, 0, 1, 1, 0, 1])
    split = read_records(Facts(classes=3), saved(tmp_path / "s.npz", x=X, y=Y, x_test=X[:2], y_test=Y[:2]))
    assert (len(split.x), split.test.tolist()) == (8, [False] * 6 + [True] * 2)


def test_order_in_memory_and_compression_do_not_matter(tmp_path):
    wide = np.arange(24.0).reshape(6, 4)
    plain = read_records(Facts(classes=3), saved(tmp_path / "a.npz", x=wide, y=Y)).x
    turned = read_records(Facts(classes=3), saved(tmp_path / "b.npz", compressed=True, x=np.asfortranarray(wide), y=Y))
    assert torch.equal(plain, turned.x)


def test_regression_with_several_targets_and_inputs_alone(tmp_path):
    got = read_records(Facts(), saved(tmp_path / "d.npz", x=X, y=X / 2))
    assert (got.classes, torch.equal(got.y, got.x / 2)) == (None, True)
    assert torch.equal(read_inputs(Facts(), saved(tmp_path / "x.npz", x=X)), got.x)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"x": X}, r"no array 'y'"),
        ({"z": X, "y": Y}, r"no array 'x'"),
        ({"x": X, "y": Y[:5]}, r"6 records in 'x', 5 in 'y'"),
        ({"x": X, "y": Y + 1}, r"row 5, column 'y': label '3' is no class; known: 0, 1, 2"),
        ({"x": np.where(X == 5, np.nan, X), "y": Y}, r"row 3 of 'x': NaN or infinite"),
        ({"x": np.where(X == 5, np.inf, X), "y": Y}, r"row 3 of 'x': NaN or infinite"),
        ({"x": np.array([list("ab")] * 6), "y": Y}, r"array 'x' holds <U1; save numbers"),
        ({"x": X, "y": Y, "x_test": X[:, :1], "y_test": Y}, r"'x_test' has records of shape \(1,\), 'x' of \(2,\)"),
        ({"x": np.array(3.0), "y": Y}, r"array 'x' is a single value"),
        ({"x": X[:0], "y": Y[:0]}, r"an empty holder: no records"),
        ({"x": X, "y": np.stack([Y, Y], 1)}, r"array 'y' has shape \(6, 2\); it needs one value for each record"),
    ],
)
def test_wrong_arrays(tmp_path, members, said):
    with pytest.raises(DataError, match=rf"d.npz[:,].*{said}"):
        read_records(Facts(classes=3), saved(tmp_path / "d.npz", **members))


LABELS, PLACES = np.array([[1, 0]] * 6), np.array([[0, -100]] * 6)


@pytest.mark.parametrize(
    ("task", "y", "said"),
    [
        ("multi-label", LABELS * 1.9, r"has shape \(6, 2\); multi-label needs a 0 or 1 for each label"),
        ("multi-label", LABELS[:, 0], r"has shape \(6,\); multi-label needs a 0 or 1 for each label"),
        ("multi-label", np.where(LABELS, np.nan, 1.0), r"row 1 of 'y': NaN or infinite; fill it in or drop the row"),
        ("tokens", PLACES + 0.9, r"is float64; 3 classes need whole numbers 0 to 2"),
        ("segmentation", PLACES * 1.0, r"is float64; 3 classes need whole numbers 0 to 2"),
        ("tokens", PLACES[:, 0], r"has shape \(6,\); tokens needs a class for every place"),
        ("tokens", PLACES.astype("U"), r"holds <U21; save numbers"),
    ],
)
def test_targets_are_checked_as_those_from_python(tmp_path, task, y, said):
    with pytest.raises(DataError, match=rf"d.npz(: array 'y' |, ){said}$"):
        read_records(Facts(classes=3, task=task), saved(tmp_path / "d.npz", x=X, y=y))


def test_targets_of_every_kind_of_number_are_read(tmp_path):
    """As bytes, as yes and no, or in another order of bytes: the same labels, and the same classes of places."""
    for kind in (np.uint8, bool, ">i4", np.float16, np.longdouble):
        got = read_records(Facts(task="multi-label"), saved(tmp_path / "d.npz", x=X, y=LABELS.astype(kind))).y
        assert (got.dtype, got.tolist()) == (torch.float32, LABELS.tolist())
    for kind in (np.int8, ">i4", np.int64):
        got = read_records(Facts(task="tokens", classes=3), saved(tmp_path / "d.npz", x=X, y=PLACES.astype(kind))).y
        assert (got.dtype, got.tolist()) == (torch.int64, PLACES.tolist())


def test_whole_labels_without_classes_are_refused(tmp_path):
    with pytest.raises(SettingError, match=r"data.label = 'y': what may occur in it has to be public"):
        read_records(Facts(), saved(tmp_path / "d.npz", x=X, y=Y))


class Boom:
    def __reduce__(self):
        return (exec, ("raise SystemExit('unpickled')",))


def test_pickled_objects_are_never_loaded(tmp_path):
    path = saved(tmp_path / "d.npz", x=np.array([Boom(), Boom()], object), y=[0, 1])
    with pytest.raises(DataError, match=r"array 'x' holds pickled objects, which are never loaded"):
        read_records(Facts(classes=2), path)


def header(shape, dtype="<f4"):
    text = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def test_an_archive_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    """8 MB of zeros in 8 kB, with the threshold lowered instead of the bomb made larger."""
    monkeypatch.setattr(arrays, "HARMLESS", 2**18)
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x.npy", header((2**21, 1)) + bytes(2**23))
    read = []
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *a, **k: read.append(a))
    with pytest.raises(DataError, match=r"bomb.npz: unpacks from 0.0 MB to 8.0 MB: an archive bomb\?"):
        read_records(Facts(classes=2), path)
    assert not read


def test_an_archive_larger_than_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "most_bytes", lambda: 100)
    with pytest.raises(DataError, match=r"d.npz: what it unpacks to would take .* in memory"):
        read_records(Facts(classes=3), saved(tmp_path / "d.npz", x=X, y=Y))


def test_a_header_that_promises_more_than_the_archive_holds(tmp_path):
    path = tmp_path / "d.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x.npy", header((10**12, 30)) + bytes(64))
    with pytest.raises(DataError, match=r"array 'x' is not as long as its header says"):
        read_records(Facts(classes=2), path)


def test_an_archive_whose_directory_lies_about_its_sizes(tmp_path):
    """The directory says 16 bytes fewer than there are: what is read ends there, and the checksum does not fit."""
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x.npy", header((8, 2)) + bytes(range(64)))
    data, size = stored.getvalue(), struct.pack("<I", 64 + len(header((8, 2))))
    lying = struct.pack("<I", 48 + len(header((8, 2))))
    (tmp_path / "d.npz").write_bytes(data.replace(size, lying))
    with pytest.raises(DataError, match=r"d.npz: (array 'x' is not as long|not a whole .npz archive)"):
        read_records(Facts(classes=2), tmp_path / "d.npz")


def test_damaged_archives(tmp_path):
    whole = saved(tmp_path / "d.npz", x=X, y=Y).read_bytes()
    for damaged in (whole[:-30], b"PK" + whole[:40], bytes(100), whole.replace(X.tobytes(), (X + 1).tobytes())):
        (tmp_path / "d.npz").write_bytes(damaged)
        with pytest.raises(DataError, match=r"d.npz: not a whole .npz archive .*copy or write it again"):
            read_records(Facts(classes=3), tmp_path / "d.npz")
