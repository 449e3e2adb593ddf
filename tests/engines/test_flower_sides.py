"""A record, or a person, that was for training once is never for the test, whatever the owner adds or changes."""

import tarfile

import numpy as np
import pytest

pytest.importorskip("flwr")

from fedfdp.core.errors import RunError, SettingError
from fedfdp.deploy.backup import back_up, declare_restored
from fedfdp.deploy.node import open_node
from fedfdp.engines.flower.policy import load_node
from fedfdp.engines.flower.sides import SIDES
from fedfdp.privacy import Event

ROWS = np.random.default_rng(0).uniform(-1, 1, (500, 2)).astype(np.float32)


@pytest.fixture
def node(tmp_path):
    """Starts a node on these rows, charges a round, and gives the numbers of its training and test rows."""

    def start(rows, *, names=None, charged=True, evaluate=True, test=None, scale=1.0, **data):
        toml = 'name="north"\nserver="127.0.0.1:9"\nfolder="state"\nplain_text=true\n'
        toml += f"policy.epsilon=3.0\npolicy.evaluate={str(evaluate).lower()}\n"
        toml += '[data]\nfile="r.npz"\nclasses=2\n' + "".join(f"{name}={value!r}\n" for name, value in data.items())
        (tmp_path / "node.toml").write_text(toml)
        whole = {"x": ROWS[rows] * np.float32(scale), "y": np.zeros(len(rows), np.int64)}
        if names is not None:
            whole["person"] = np.array(names)
        if test is not None:
            whole |= {"x_test": ROWS[test], "y_test": np.zeros(len(test), np.int64)}
        np.savez(tmp_path / "r.npz", **whole)
        with open_node(load_node(tmp_path / "node.toml")) as node:
            if charged:
                node.ledger.charge(len(list(node.book.entries())), "r", [Event(0.1, (2.0,))], replayable=False)
                node.witness.follow()
            pool = np.asarray([*rows, *(test or ())])
            return tuple(set(pool[part.index.numpy()].tolist()) for part in (node.data.train, node.data.test))

    return start


def test_a_table_that_grows_or_is_sorted_otherwise_keeps_every_record_on_its_side(node, tmp_path):
    train, test = node(range(400))
    assert (len(train), len(test)) == (300, 100)
    assert (tmp_path / "state" / SIDES).stat().st_mode & 0o777 == 0o600
    assert node(range(399, -1, -1)) == (train, test)
    grown, tested = node([*range(450, 400, -1), *range(400)])
    assert train <= grown
    assert test <= tested
    assert len(tested) == 113  # a quarter of 450, rounded up
    assert not grown & tested


def test_another_fraction_is_for_records_that_come_later(node):
    train, test = node(range(400))
    assert node(range(400), test_fraction=0.5) == (train, test)
    less, same = node(range(440), test_fraction=0.1)
    assert (same, less) == (test, train | set(range(400, 440)))


def test_before_anything_was_released_it_is_drawn_anew(node):
    node(range(400), charged=False)
    assert len(node(range(400), test_fraction=0.5)[1]) == 200


def test_persons_are_known_by_name(node):
    names = [f"p{row // 4}" for row in range(400)]
    train, test = node(range(400), names=names, unit="person")
    assert len({row // 4 for row in test}) == 25
    assert not {row // 4 for row in train} & {row // 4 for row in test}
    grown, tested = node(range(398, 60, -1), names=names[398:60:-1], unit="person")  # some left, none is another's
    assert grown <= train
    assert tested <= test
    assert node(range(400), names=[f"new {name}" for name in names], unit="person", evaluate=False)[1] == set()


def test_equal_records_stay_together(node):
    train, test = node([*range(100), *range(100)], charged=False)
    assert len(test) == 25
    assert not train & test
    assert 0 not in node([0] * 90 + list(range(1, 11)))[1]  # more than a quarter of all: it fits in no test part


@pytest.mark.parametrize("change", ["another scale", "one corrected", "one gone, more come"])
def test_where_a_training_record_may_have_another_form_none_that_is_new_is_for_the_test(change, node):
    train, test = node(range(400))
    rest = sorted({*range(400)} - {min(train)})
    more = {"another scale": [min(train)], "one corrected": [450], "one gone, more come": range(400, 440)}
    scale, known = (0.5, set()) if change == "another scale" else (1.0, test)
    assert node([*rest, *more[change]], scale=scale, evaluate=False)[1] == known
    assert node(range(450), evaluate=False)[1] == test  # from then on, also where it is back


def test_given_test_records_that_were_trained_on_are_refused(node):
    node(range(300), test=range(300, 400))
    node(range(300), test=range(300, 450))  # more, never trained on
    with pytest.raises(SettingError, match=r"policy.evaluate = True: 40 test records were.* for training before; give"):
        node(range(40, 300), test=[*range(40), *range(300, 400)])
    node(range(40, 300), test=[*range(40), *range(300, 400)], evaluate=False)


def test_a_folder_that_knows_nothing_of_it_has_no_test_records(node, tmp_path):
    """As 0.1.0 left it: any record that is there may have been trained on."""
    node(range(400))
    (tmp_path / "state" / SIDES).unlink()
    with pytest.raises(SettingError, match=r"policy.evaluate = True: there are no test records; of all that are here"):
        node(range(400))
    assert node(range(400), evaluate=False) == (set(range(400)), set())
    (tmp_path / "state" / SIDES).write_bytes(b"{")
    with pytest.raises(RunError, match="sides is corrupt"):
        node(range(400))


def test_a_backup_has_it_and_after_a_restore_none_is_new(node, tmp_path):
    train, test = node(range(400))
    back_up(load_node(tmp_path / "node.toml"), tmp_path / "b.tgz")
    declare_restored(tmp_path / "node.toml", by_witness=True)
    found = node(range(450), charged=False)
    assert found == (train | set(range(400, 450)), test)
    with tarfile.open(tmp_path / "b.tgz") as packed:
        assert packed.getmember(SIDES).mode == 0o600
