"""Tables, verdicts and figures of results made by hand."""

from dataclasses import replace

import pytest

from fedfdp.experiments import tuning
from fedfdp.experiments.figures import draw
from fedfdp.experiments.render import blocks, markdown, statistic, text
from fedfdp.experiments.results import Cell, Found, Results, Statistic, claims
from fedfdp.experiments.runner import narrowed
from fedfdp.experiments.scales import SCALES
from fedfdp.experiments.specs import experiments


def found(seed: int, accuracy: float | None, psi: float | None, **changes: object) -> Found:
    plain = Found(seed, f"hash{seed}", 763, 3.5199, 16.0, "mnist", accuracy, psi, 0.002, 1e9, 0.9, 30.0)
    return replace(plain, **changes)


def table3(ours: tuple[tuple[float, float], ...], average: tuple[tuple[float, float], ...]) -> Results:
    experiment = narrowed(experiments()["table3"], datasets=["mnist"], methods=["fedavg", "fedfdp"])
    (column,), rows = experiment.columns, {row.key: row for row in experiment.rows}
    cells = tuple(
        Cell(rows[key], column, tuple(found(seed, *values) for seed, values in enumerate(runs)))
        for key, runs in (("fedavg", average), ("fedfdp", ours))
    )
    return Results(experiment, SCALES["small"], tuple(range(len(ours))), cells)


THREE = table3(((0.95, 0.001), (0.96, 0.002), (0.97, 0.003)), ((0.95, 0.004), (0.95, 0.004), (0.95, 0.004)))


def test_mean_and_sample_deviation():
    """0.95, 0.96, 0.97: mean 0.96, Σ(x − 0.96)²/(3 − 1) = 1e-4."""
    assert THREE.cells[1].of("accuracy") == Statistic(pytest.approx(0.96), pytest.approx(0.01))
    assert THREE.cells[1].of("psi") == Statistic(pytest.approx(0.002), pytest.approx(0.001))
    one = table3(((0.9, 0.1),), ((0.8, 0.1),))
    assert one.cells[0].of("accuracy") == Statistic(0.8, None)


def test_a_seed_without_the_measure_leaves_no_mean():
    cell = Cell(THREE.cells[0].row, THREE.cells[0].column, (found(0, 0.9, 0.1), found(1, 0.8, None)))
    assert cell.of("psi") is None
    assert cell.of("accuracy") is not None


@pytest.mark.parametrize(
    ("name", "dataset", "said", "unsaid"),
    [
        ("pretrained", "cifar10-pretrained", "public pretraining", "scattering"),
        ("fair", "palmer-penguins", "holders by nature", "scattering"),
        ("table3", "mnist", "scattering", "public pretraining"),
    ],
)
def test_the_notes_say_what_the_features_were_learnt_from(name, dataset, said, unsaid):
    experiment = narrowed(experiments()[name], datasets=[dataset], methods=["fedavg"])
    cell = Cell(experiment.rows[0], experiment.columns[0], (found(0, 0.9, 0.1),))
    notes = " ".join(Results(experiment, SCALES["laptop"], (0,), (cell,)).notes())
    assert said in notes
    assert unsaid not in notes


def test_the_table_sets_measured_beside_printed_and_marks_the_best():
    (block,) = blocks(THREE)
    rows = {row[0]: dict(zip(block.headers, row, strict=True)) for row in block.rows}
    ours, average = rows["FedFDP ours"], rows["FedAvg"]
    assert ours["accuracy %"] == "**96.00 ± 1.00**"
    assert ours["Ψ test"] == "**2.0e-3 ± 1.0e-3**"
    assert ours["paper: acc. %"] == "–"
    assert average["accuracy %"] == "95.00 ± 0.00"
    assert average["paper: acc. %"] == "93.40 ± 0.47"
    assert average["paper: Ψ"] == "1.1e11 ± 5.0e9"
    assert (average["η"], average["rounds"], average["ε"], average["config"]) == ("16", "763", "3.520", "hash0")


def test_the_claim_needs_half_the_psi_and_no_lower_accuracy():
    (claim,) = claims(THREE)
    assert claim.holds
    assert (claim.psi, claim.best_psi) == (pytest.approx(0.002), pytest.approx(0.004))
    (more_psi,) = claims(table3(((0.96, 0.0021),), ((0.95, 0.004),)))
    assert not more_psi.holds
    (less_accurate,) = claims(table3(((0.949, 0.001),), ((0.95, 0.004),)))
    assert not less_accurate.holds
    assert "is 0.60 × FedAvg's 4.0e-3" in markdown(table3(((0.96, 0.0024),), ((0.95, 0.004),)))


def test_text_and_page_carry_scale_seeds_and_contradictions():
    for shown in (text(THREE, width=200), markdown(THREE)):
        assert "scale small, seeds 0, 1, 2" in shown
        assert "20 % of the records" in shown
        assert "94.13 for the same setting in table 5" in shown
        assert "Half the Ψ at no lower accuracy: yes" in shown
    assert "96.00 ± 1.00 *" in text(THREE, width=200)


def test_everything_is_in_the_json():
    document = THREE.to_dict()
    assert (document["scale"], document["seeds"]) == ("small", [0, 1, 2])
    average = document["cells"][0]
    assert average["paper"] == {"value": 93.40, "value_spread": 0.47, "psi": 1.1e11, "psi_spread": 0.5e10}
    assert average["runs"][2] == {
        **{
            "seed": 2,
            "config": "hash2",
            "rounds": 763,
            "epsilon": 3.5199,
            "lr": 16.0,
            "tuned_on": "mnist",
            "tuned_for": "",
            "own": {},
        },
        **{"accuracy": 0.95, "psi": 0.004, "psi_train": 0.002, "psi_local": 1e9, "worst_accuracy": 0.9},
        "seconds": 30.0,
    }


@pytest.mark.parametrize(
    ("value", "measure", "shown"),
    [
        (Statistic(0.12345, None), "accuracy", "12.35"),
        (Statistic(3.519, 0.0101), "epsilon", "3.52 ± 0.01"),
        (Statistic(2.3e10, 1e9), "psi", "2.3e10 ± 1.0e9"),
        (Statistic(0.0, None), "psi", "0.0e0"),
        (None, "psi", "–"),
    ],
)
def test_numbers(value, measure, shown):
    assert statistic(value, measure) == shown


@pytest.mark.parametrize("name", ["table3", "table7", "figure-lambda", "figure-tradeoff"])
def test_figures_are_drawn_also_where_a_target_was_missed(tmp_path, name):
    experiment = narrowed(experiments()[name], datasets=["mnist"])
    cells = tuple(
        Cell(row, column, (found(0, 0.5 + 0.01 * i, None if i == 1 else 0.1 / (1 + i)),))
        for column in experiment.columns
        for i, row in enumerate(experiment.rows)
    )
    results = Results(experiment, SCALES["smoke"], (0,), cells)
    draw(results, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    assert all(len(block.headers) == len(row) for block in blocks(results) for row in block.rows)


def test_a_row_looks_alike_in_every_panel_and_is_in_the_legend_wherever_it_is_shown(monkeypatch, tmp_path):
    """Of table 7 one method reaches every target but the last."""
    drawn = []
    monkeypatch.setattr("fedfdp.experiments.figures.save_figure", lambda figure, file, setting: drawn.append(figure))
    experiment = narrowed(experiments()["table7"], datasets=["mnist"])
    cells = tuple(
        Cell(row, column, (found(0, 0.9, None if i == 1 and number == 3 else 0.1),))
        for number, column in enumerate(experiment.columns)
        for i, row in enumerate(experiment.rows)
    )
    draw(Results(experiment, SCALES["smoke"], (0,), cells), tmp_path / "figure.png")
    *panels, last = drawn[0].axes
    looks = [{c.get_label(): (c[0].get_color(), c[0].get_marker()) for c in p.containers} for p in (*panels, last)]
    missing = experiment.rows[1].label
    assert missing in looks[0]
    assert looks[3] == {label: look for label, look in looks[0].items() if label != missing}
    legend = last.get_legend()
    assert {text.get_text() for text in legend.get_texts()} == set(looks[0])


def test_tuning_takes_the_highest_accuracy_then_the_lower_psi():
    experiment = narrowed(
        experiments()["tune-private"], datasets=["mnist"], methods=["fedavg"], at=["2", "4", "8", "16", "32"]
    )
    reached = {2.0: (0.80, 0.1), 4.0: (0.90, 0.3), 8.0: (0.90, 0.2), 16.0: (None, None), 32.0: (0.5, 0.01)}
    cells = tuple(Cell(experiment.rows[0], c, (found(100, *reached[c.x]),)) for c in experiment.columns)
    results = Results(experiment, SCALES["small"], (100,), cells)
    assert tuning.chosen(results)["mnist"]["fedavg"].column.x == 8.0
    assert "fedavg = 8.0  # 90.00%, Ψ 2.0e-01" in tuning.to_toml(results)


def test_fair_methods_take_the_fairest_settings_near_their_best_accuracy():
    """90.4 % is the best; 90.0 % is within half a point of it and has the lowest Ψ, 89.8 % is not."""
    experiment = narrowed(experiments()["tune-fair"], datasets=["nyc-flights"], methods=["term"])
    cells = [
        Cell(row, column, (found(100, accuracy, psi),))
        for row, reached in zip(experiment.rows, ((0.904, 0.3), (0.90, 0.1), (0.898, 0.01)), strict=True)
        for column, (accuracy, psi) in zip(
            experiment.columns, (reached, (0.5, 0.0), (None, None), (None, None)), strict=True
        )
    ]
    results = Results(experiment, SCALES["brief"], (100,), tuple(cells))
    assert tuning.chosen(results)["nyc-flights"]["term"].row.key == "term-2"
    assert tuning.to_toml(results).splitlines() == [
        "[private.nyc-flights]  # scale brief, seed 100, "
        "lowest Ψ within 0.5 points of the best accuracy, η in {2, 8, 32, 128}",
        "term = { lr = 2.0, t = 2.0 }  # 90.00%, Ψ 1.0e-01",
    ]


def test_own_settings_are_tried_at_the_best_step_size_alone():
    """η = 8 is best for t = 2, so t = 0.5 and t = 5 are tried there; `local` has no setting of its own."""
    experiment = narrowed(experiments()["tune-fair"], datasets=["nyc-flights"], methods=["term", "local"])
    asked = []

    def run(part):
        cells = [Cell(row, c, (found(100, 0.9 - abs(c.x - 8) / 100, 0.1),)) for row in part.rows for c in part.columns]
        asked.append([(row.key, column.x) for row in part.rows for column in part.columns])
        return Results(part, SCALES["brief"], (100,), tuple(cells))

    results = tuning.in_turn(experiment, run)
    grid = [2.0, 8.0, 32.0, 128.0]
    assert asked == [[(key, x) for key in ("term-2", "local") for x in grid], [("term-0.5", 8.0), ("term-5", 8.0)]]
    assert len(results.cells) == 10
    assert len(blocks(results)[0].rows) == 10
