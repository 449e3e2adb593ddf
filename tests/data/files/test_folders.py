"""One file or folder for each holder, folders of images, and nothing from outside the given folder."""

import numpy as np
import pytest
import torch
from PIL import Image

from fedfdp.core.errors import DataError, SettingError
from fedfdp.data.files import images
from fedfdp.data.files.read import read_inputs, read_records
from fedfdp.data.from_files import place_of
from fedfdp.data.schema import Facts
from own_files import CSV, facts

PETS = Facts(classes=("cat", "dog"))


def drawn(path, value, size=(3, 2), mode="L"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path)
    return path


def without_site(text):
    return "\n".join(line.split(",", 1)[1] for line in text.splitlines()) + "\n"


@pytest.fixture
def pets(tmp_path):
    """Two holders; greyscale images of 3 × 2 whose every pixel is the given value."""
    drawn(tmp_path / "pets" / "north" / "cat" / "1.png", 0)
    drawn(tmp_path / "pets" / "north" / "dog" / "1.png", 255)
    drawn(tmp_path / "pets" / "south" / "dog" / "1.png", 51)
    return tmp_path / "pets"


def test_a_file_for_each_holder(tmp_path):
    lines = CSV.splitlines(keepends=True)
    (tmp_path / "south.csv").write_text(without_site(lines[0] + lines[3]))
    (tmp_path / "north.csv").write_text(without_site(lines[0] + lines[1] + lines[2]))
    got = read_records(facts(holder=None), tmp_path)
    assert (got.holders, got.owner.tolist(), got.y.tolist()) == (("north", "south"), [0, 0, 1], [0, 1, 0])
    (tmp_path / "one.csv").write_text(CSV)
    assert torch.equal(got.x, read_records(facts(), tmp_path / "one.csv").x)


def test_a_folder_with_one_file_for_each_holder(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        np.savez(tmp_path / name / "records.npz", x=np.ones((2, 2)), y=[0, 1])
    got = read_records(Facts(classes=2), tmp_path)
    assert (got.holders, got.owner.tolist()) == (("a", "b"), [0, 0, 1, 1])


def test_images_by_holder_and_class(pets):
    got = read_records(PETS, pets)
    assert got.x.shape == (3, 1, 2, 3)
    assert got.x[:, 0, 0, 0].tolist() == pytest.approx([-1.0, 1.0, -0.6])
    assert (got.y.tolist(), got.holders, got.owner.tolist()) == ([0, 1, 1], ("north", "south"), [0, 0, 1])


def test_images_by_class_alone_have_no_holder_and_colours_keep_their_place(tmp_path):
    drawn(tmp_path / "cat" / "1.png", (255, 0, 51), mode="RGB")
    got = read_records(PETS, tmp_path)
    assert (got.holders, got.x.shape) == (None, (1, 3, 2, 3))
    assert got.x[0, :, 1, 2].tolist() == pytest.approx([1.0, -1.0, -0.6])


def test_loose_images_can_be_predicted_on(tmp_path, pets):
    assert read_inputs(PETS, pets / "north" / "cat").shape == (1, 1, 2, 3)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda p: drawn(p / "south" / "dog" / "2.png", 0, size=(4, 2)),
            r"2.png: 4×2 grey, where 1.png is 3×2 grey; re",
        ),
        (lambda p: drawn(p / "south" / "dog" / "2.png", 0, mode="RGB"), r"2.png: 3×2 RGB, where 1.png is 3×2 grey"),
        (lambda p: drawn(p / "south" / "dog" / "2.png", 0, mode="1"), r"2.png: colour mode 1; save it as greyscale"),
        (lambda p: (p / "south" / "dog" / "2.png").write_bytes(b""), r"2.png: empty \(0 bytes\)"),
        (lambda p: (p / "south" / "dog" / "2.png").write_bytes(b"text"), r"2.png: not an image that can be read"),
        (lambda p: drawn(p / "south" / "cow" / "1.png", 0), r"cow: a folder that is no class; .*known: cat, dog"),
        (lambda p: (p / "west").mkdir(), r"west: an empty holder: no file and no folder of images"),
        (lambda p: (p / "west" / "cat").mkdir(parents=True), r"west: an empty holder"),
    ],
)
def test_wrong_images(pets, spoil, said):
    spoil(pets)
    with pytest.raises(DataError, match=said):
        read_records(PETS, pets)


def test_a_cut_image_and_one_of_too_many_pixels(pets, monkeypatch):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8)
    path = pets / "north" / "cat" / "1.png"
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(DataError, match=r"1.png: damaged|not an image"):
        read_inputs(PETS, path.parent)
    monkeypatch.setattr(images, "MOST_PIXELS", 5)
    with pytest.raises(DataError, match=r"1.png: 3×2 pixels, at most 5 are read"):
        read_inputs(PETS, pets / "north" / "dog")


def test_images_need_their_classes(pets):
    with pytest.raises(SettingError, match=r"data.classes = None: image folders are named by class"):
        read_records(Facts(), pets)


def test_links_that_lead_out_are_refused_and_those_within_are_not(tmp_path, pets):
    secret = drawn(tmp_path / "elsewhere" / "1.png", 0)
    (pets / "north" / "dog" / "2.png").symlink_to(pets / "north" / "dog" / "1.png")
    assert len(read_records(PETS, pets).x) == 4
    (pets / "north" / "dog" / "3.png").symlink_to(secret)
    with pytest.raises(DataError, match=rf"3.png: leads outside of {pets}, to {secret}; put the file itself there"):
        read_records(PETS, pets)
    (pets / "north" / "dog" / "3.png").unlink()
    (pets / "west").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="west: leads outside"):
        read_records(PETS, pets)


def test_a_source_below_a_folder_cannot_climb_out(tmp_path):
    (tmp_path / "given").mkdir()
    (tmp_path / "secret.csv").write_text(CSV)
    with pytest.raises(DataError, match=r"leads outside of .*given, to .*secret.csv"):
        place_of("../secret.csv", str(tmp_path / "given"))
    assert place_of("a.csv", str(tmp_path / "given")) == tmp_path / "given" / "a.csv"


def test_wrong_folders(tmp_path):
    with pytest.raises(DataError, match="holds nothing that can be read"):
        read_records(facts(holder=None), tmp_path)
    text = without_site(CSV)
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(SettingError, match=r"data.holder = 'site': .* has a file for each holder; leave it out"):
        read_records(facts(), tmp_path)
    (tmp_path / "b.csv").write_text(text.splitlines()[0] + "\n")
    with pytest.raises(DataError, match=r"b.csv: an empty holder: no records"):
        read_records(facts(holder=None), tmp_path)
    (tmp_path / "b.csv").write_text(text.replace("age", "years", 1))
    with pytest.raises(DataError, match=r"b.csv: no column 'age'"):
        read_records(facts(holder=None), tmp_path)
    (tmp_path / "b.csv").rename(tmp_path / "a.tsv")
    with pytest.raises(DataError, match="two files of the same name"):
        read_records(facts(holder=None), tmp_path)


def test_holders_whose_patterns_match_different_columns(tmp_path):
    (tmp_path / "a.csv").write_text("v1,v2,y\n1,2,0\n")
    (tmp_path / "b.csv").write_text("v1,y\n1,0\n")
    with pytest.raises(DataError, match=r"b.csv: records of shape \(1,\), where a.csv has \(2,\); give every holder"):
        read_records(Facts(label="y", classes=2, columns={"v*": [0, 4]}), tmp_path)
