"""How large an experiment is: seconds for tests, minutes per run, or as in the paper. ε is never scaled."""

from dataclasses import dataclass, field, replace

from fedfdp.core.errors import SettingError, nearest

# Data sets with holders by nature: at every scale they are as their presets say.
SILOS = ("arizona-hospitals", "nyc-flights", "tennessee-schools", "us-unemployment", "palmer-penguins")
NATURAL = (*SILOS, "domain-digits")
PRETRAINED = "cifar10-pretrained"  # so is this one: without its features it would be CIFAR-10


@dataclass(frozen=True)
class Scale:
    """What differs from the paper's setting."""

    name: str
    description: str
    model: str  # unless a preset says so
    fraction: float
    plain_rounds: int  # rounds without privacy; with privacy: what ε allows
    plain_decay: float = 1.0  # without privacy: what η is multiplied by after each round
    most_private_rounds: int | None = None  # at most so many, with the least σ that ε allows for them unless `cut`
    cut: bool = False  # stop after that many rounds, with σ as it is and ε not spent
    most_epsilon: float | None = None  # for experiments that run until they reach a target
    source: str | None = None  # one data set instead of all
    clients: dict[int, int] | None = None  # how many take the place of the paper's 10, 20, 50
    most_evaluations: int | None = None  # of a run, where they would cost as much as its rounds
    # By data set, the preset that says data, features, model, q, σ and rounds.
    presets: dict[str, str] = field(default_factory=lambda: {name: name for name in (*NATURAL, PRETRAINED)})


_LAPTOP = Scale(
    "laptop",
    "all records; a linear model on the scattering transform, which is learnt from nothing, in place of the "
    "paper's CNN; q, C and rounds of the data set's preset, with the least σ that ε allows for them",
    model="linear",
    fraction=1.0,
    plain_rounds=100,
    plain_decay=0.97,
    most_evaluations=4,
    presets={
        "mnist": "mnist",
        "fashion-mnist": "fashion",
        "cifar10": "cifar10",
        **{name: name for name in (*NATURAL, PRETRAINED)},
    },
)

SCALES = {
    scale.name: scale
    for scale in (
        Scale(
            "smoke",
            "scikit-learn's digits in place of every data set, few clients, few rounds: shows that it runs, not more",
            model="small-cnn",
            fraction=1.0,
            plain_rounds=3,
            most_private_rounds=8,
            cut=True,
            source="digits",
            clients={10: 4, 20: 5, 50: 6},
            presets={},
        ),
        Scale(
            "small",
            "20 % of the records and the small CNN (26,010 weights on 28×28) in place of the paper's; q, C and ε as in "
            "the paper; at most 300 rounds, with the least σ that ε allows for them (the paper: σ = 2, more rounds); "
            "20 rounds without privacy",
            model="small-cnn",
            fraction=0.2,
            plain_rounds=20,
            most_private_rounds=300,
            most_epsilon=3.52,
        ),
        _LAPTOP,
        replace(
            _LAPTOP,
            name="brief",
            description=f"as `laptop`, but at most 80 rounds where that has 200: {_LAPTOP.description}",
            most_private_rounds=80,
        ),
        Scale(
            "paper",
            "all records, the paper's CNN, all the rounds that ε allows; 100 rounds without privacy (it gives none)",
            model="paper-cnn",
            fraction=1.0,
            plain_rounds=100,
        ),
    )
}


def find_scale(name: str) -> Scale:
    if name not in SCALES:
        raise SettingError("--scale", name, nearest(name, SCALES))
    return SCALES[name]
