"""Tables by name: each from a few rows as its package has them; and, marked slow, the real ones."""

import io
import tarfile
import zipfile

import pytest
import torch

from fedfdp.core.errors import DataError
from fedfdp.data import Federation, load
from fedfdp.data.named import catalog, flights, hospitals, penguins, pydataset, schools, unemployment
from fedfdp.data.named.catalog import CATALOG
from fedfdp.data.named.entry import Table
from fedfdp.data.named.layout import Rows
from fedfdp.data.named.load import get
from fedfdp.data.predictions import meaning, read_inputs
from fedfdp.data.schema import Facts

TABLES = [entry for entry in CATALOG.values() if isinstance(entry, Table)]

PENGUINS = b"""species,island,bill_length_mm,bill_depth_mm,flipper_length_mm,body_mass_g,sex,year
Adelie,Torgersen,39,17,181,3500,male,2007
Adelie,Torgersen,NA,NA,NA,NA,NA,2007
Gentoo,Biscoe,60,12,235,6500,female,2008
Chinstrap,Dream,45,22,170,2500,NA,2009
"""
FLIGHTS = b"""year,month,day,dep_delay,arr_delay,carrier,origin,distance,hour,tailnum
2013,1,1,2,14,UA,EWR,1400,5,N1
2013,1,6,200,15,AA,LGA,5000,24,N2
2013,12,31,NA,NA,AA,JFK,300,9,N3
"""
AZPRO = b'"","los","procedure","sex","age75","admit","hospital"\n"1",60,1,0,0,1,5.19999980926514\n"2",15,0,1,1,0,2.5\n'
STAR = b""""","tmathssk","treadssk","classk","totexpk","sex","freelunk","race","schidkn"
"2",483,470,"small.class",15,"girl","no","white",3
"3",484,300,"regular",0,"boy","yes","black",80
"""
BENEFITS = (
    b"stateur,statemb,state,age,tenure,joblost,nwhite,school12,sex,bluecol,smsa,married,dkids,dykids,yrdispl,rr,head,ui\n"
    b"20,300,42,65,45,other,no,no,male,yes,yes,no,no,no,10,1,yes,yes\n"
)


def small(monkeypatch, tmp_path, entry, content):
    """The table of these contents, in place of the real one."""
    monkeypatch.setenv("FEDFDP_DATA", str(tmp_path / "cache"))
    rows = entry.layouts[-1].read([content])
    changed = {"records": len(rows), "sha256": rows.digest()}
    fields = {name: getattr(entry, name) for name in entry.__dataclass_fields__}
    monkeypatch.setitem(catalog.CATALOG, entry.name, Table(**{**fields, **changed}))
    (tmp_path / "files").mkdir(exist_ok=True)
    (tmp_path / "files" / entry.layouts[-1].files[0]).write_bytes(content)
    get(entry.name, folder=tmp_path / "files")
    return load(entry.name)


def test_penguins(monkeypatch, tmp_path):
    data = small(monkeypatch, tmp_path, penguins.PENGUINS, PENGUINS)
    # Bill 39 of 30 to 60 is −0.4, depth 17 of 12 to 22 is 0, flipper 181 of 170 to 235, mass 3500 of 2500 to 6500.
    assert data.x[0].tolist() == pytest.approx([-0.4, 0, 2 * 11 / 65 - 1, -0.5, 0, 1, 0])
    assert data.x[1].tolist() == [1, -1, 1, 1, 1, 0, 0]
    assert data.x[2].tolist() == [0, 1, -1, -1, 0, 0, 1]  # its sex is unknown
    assert data.y.tolist() == [0, 2, 1]  # the penguin that was not measured is left out
    assert data.column("island").tolist() == ["Torgersen", "Biscoe", "Dream"]
    assert data.class_names == ("Adelie", "Chinstrap", "Gentoo")
    held = Federation.partition(data, how="column", column="island", test_fraction=0)
    assert held.names == ("Biscoe", "Dream", "Torgersen")
    assert held.labels == ("Adelie", "Chinstrap", "Gentoo")


def test_flights(monkeypatch, tmp_path):
    data = small(monkeypatch, tmp_path, flights.FLIGHTS, FLIGHTS)
    assert data.y.tolist() == [0, 1]  # 14 minutes is not late, 15 is; without an arrival there is no record
    month, weekday = data.x[:, :12], data.x[:, 12:19]
    assert month.argmax(1).tolist() == [0, 0]
    assert weekday.argmax(1).tolist() == [1, 6]  # New Year 2013 was a Tuesday, the 6th a Sunday
    assert data.x[1, 19:].tolist() == [1, 0, 0, 1, 1, 1]  # a delay of 200 minutes counts as 90
    assert data.column("carrier").tolist() == ["UA", "AA"]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("flights.csv", FLIGHTS)
    unzipped, plain = flights.FLIGHTS.layouts
    assert unzipped.read([packed.getvalue()]) == plain.read([FLIGHTS])
    with pytest.raises(ValueError, match="not a zip"):
        unzipped.read([b"torn"])


def test_hospitals(monkeypatch, tmp_path):
    data = small(monkeypatch, tmp_path, hospitals.HOSPITALS, AZPRO)
    assert data.column("hospital").tolist() == ["hospital-5.2", "hospital-2.5"]
    assert data.y.tolist() == [1, 0]
    assert data.x.tolist() == [[1, 1, 0, 1, 0, 0, 1], [0, 0, 1, 0, 1, 1, 0]]


def test_schools(monkeypatch, tmp_path):
    data = small(monkeypatch, tmp_path, schools.SCHOOLS, STAR)
    assert data.column("school").tolist() == ["school-03", "school-80"]
    assert data.y.tolist() == [0, 1]
    assert data.x.tolist() == [[0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1], [-1, 1, 0, 0, -1, 1, 0, 0, 1, 1, 0, 0]]


def test_unemployment(monkeypatch, tmp_path):
    data = small(monkeypatch, tmp_path, unemployment.UNEMPLOYMENT, BENEFITS)
    assert data.column("state").tolist() == ["state-42"]
    assert data.y.tolist() == [1]
    assert data.x[0, :4].tolist() == [1, 1, 1, 1]


def test_a_table_inside_pydatasets_archive():
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        member = tarfile.TarInfo("resources/rdata/csv/COUNT/azpro.csv")
        member.size = len(AZPRO)
        tar.addfile(member, io.BytesIO(AZPRO))
    archived, plain = pydataset.layouts("COUNT", "azpro", hospitals.HOSPITALS.layouts[1].read)
    assert archived.read([packed.getvalue()]) == plain.read([AZPRO])
    with pytest.raises(ValueError, match=r"truncated|empty|could not be opened"):
        archived.read([b"torn"])


def test_a_changed_cell_is_refused_and_a_damaged_cache_is_told(monkeypatch, tmp_path):
    small(monkeypatch, tmp_path, penguins.PENGUINS, PENGUINS)
    changed = tmp_path / "changed"
    changed.mkdir()
    (changed / "penguins.csv").write_bytes(PENGUINS.replace(b"3500", b"3501"))
    with pytest.raises(DataError, match="SHA-256 differs"):
        load("penguins", folder=changed)
    (changed / "penguins.csv").write_bytes(PENGUINS.replace(b"Gentoo,Biscoe,60", b"Gentoo,Biscoe,NA"))
    with pytest.raises(DataError, match="holds 2 rows, not 3"):
        load("penguins", folder=changed)
    monkeypatch.setitem(catalog.CATALOG, "palmer-penguins", _without_origins(catalog.CATALOG["palmer-penguins"]))
    path = tmp_path / "cache" / "palmer-penguins.csv"
    path.write_bytes(path.read_bytes()[:-3])
    said = []
    with pytest.raises(DataError, match="palmer-penguins cannot be had"):
        load("penguins", progress=said.append)
    assert "is not whole" in said[0]


def _without_origins(entry):
    fields = {name: getattr(entry, name) for name in entry.__dataclass_fields__}
    return Table(**{**fields, "origins": ()})


def test_predictions_read_a_table_by_the_same_facts(tmp_path):
    assert meaning(Facts(), "palmer-penguins").classes == ("Adelie", "Chinstrap", "Gentoo")
    (tmp_path / "new.csv").write_text(
        "sex,body_mass_g,flipper_length_mm,bill_depth_mm,bill_length_mm\nmale,4500,202.5,17,45\n"
    )
    assert read_inputs(Facts(), "palmer-penguins", tmp_path / "new.csv").tolist() == [[0, 0, 0, 0, 0, 1, 0]]


@pytest.mark.parametrize("entry", TABLES, ids=lambda entry: entry.name)
def test_facts_fit_the_entry(entry):
    assert entry.card.column == entry.facts.holder
    assert entry.classes == len(entry.labels)
    assert entry.name in _presets()


def _presets():
    from fedfdp.runs.layers import presets

    return presets()


def test_rows_have_one_form():
    rows = Rows.of(("a", "b"), [("1", "x,y"), ("", "z")])
    assert rows.text == b'a,b\n1,"x,y"\n,z\n'
    assert len(rows) == 2


@pytest.mark.slow
@pytest.mark.parametrize("entry", TABLES, ids=lambda entry: entry.name)
def test_the_real_one_from_its_package(entry, tmp_path):
    data = load(entry.name, cache=tmp_path)
    assert tuple(data.x.shape) == (entry.records, *entry.shape)
    assert data.x.dtype == torch.float32
    assert float(data.x.abs().max()) <= 1
    held = len(set(data.column(entry.card.column).tolist()))
    assert held == {"palmer-penguins": 3, "nyc-flights": 16, "arizona-hospitals": 17, "tennessee-schools": 79}.get(
        entry.name, 51
    )
