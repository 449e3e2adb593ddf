import pytest

from fedfdp.algorithms import FedFair, FedFDP
from fedfdp.core.errors import BudgetError, SettingError
from fedfdp.privacy import accounting
from fedfdp.runs import config, layers


def test_every_preset_is_valid_and_round_trips():
    for name in layers.presets():
        loaded = config.load(name)
        assert config.from_dict(loaded.to_dict()) == loaded


def test_the_papers_presets_are_the_papers_setting():
    c = config.load("paper-mnist")
    assert isinstance(c.algorithm, FedFDP)
    assert (c.algorithm.lr, c.algorithm.lam, c.algorithm.coefficients) == (1.0, 0.1, "paper")
    assert (c.algorithm.loss_at, c.algorithm.loss_bound, c.algorithm.loss_clip) == ("local", "mean", 2.5)
    p = c.privacy
    assert (p.epsilon, p.delta, p.sigma, p.sigma_loss, p.q, p.clip) == (3.52, 1e-5, 2.0, 5.0, 0.05, 0.1)
    assert (c.data.clients, c.data.partition, c.data.beta, c.data.test_fraction) == (10, "dirichlet", 0.1, 0.25)
    plain = config.load("paper-cifar10-nonprivate")
    assert isinstance(plain.algorithm, FedFair)
    assert (plain.privacy, plain.algorithm.lr, plain.algorithm.local_epochs, plain.rounds) == (None, 0.1, 1, 100)


def test_any_one_of_epsilon_sigma_and_rounds_is_solved():
    base = ["privacy.q=0.05", "privacy.sigma_loss=5.0"]
    rounds = config.load("default", [*base, "privacy.epsilon=3.52", "privacy.sigma=2.0"]).resolved()
    assert rounds.rounds == 763
    values = layers.layered("default", [*base, "rounds=763", "privacy.sigma=2.0"])
    values["privacy"].pop("epsilon")
    # the paper's ε from the other side: between what 762 and 764 rounds would cost
    assert config.from_dict(values).resolved().privacy.epsilon == pytest.approx(3.52, abs=5e-3)
    values = layers.layered("default", [*base, "rounds=763", "privacy.epsilon=3.52"])
    values["privacy"].pop("sigma")
    assert config.from_dict(values).resolved().privacy.sigma == pytest.approx(2.0, rel=2e-3)


def test_fewer_rounds_than_the_budget_allows_are_fine_and_more_are_not():
    assert config.load("default", ["rounds=5"]).resolved().rounds == 5
    with pytest.raises(SettingError, match=r"rounds = 764: at most 763 rounds fit epsilon = 3.52"):
        config.load("default", ["rounds=764"]).resolved()


def test_the_fingerprint_is_of_what_is_computed():
    base = config.load("default").fingerprint()
    assert config.load("default", ["eval_every=3", "threads=1", "name=x"]).fingerprint() == base
    for change in ("seed=1", "algorithm.lr=2", "privacy.q=0.1", "data.beta=1", "server.average=0"):
        assert config.load("default", [change]).fingerprint() != base


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("privacy.q=0", r"privacy.q = 0.0: a sampling rate from 1e-09 to 1; "),
        ("privacy.q=1.5", r"privacy.q = 1.5: "),
        ("privacy.q=nan", r"privacy.q = nan: "),
        ("privacy.sigma=-1", r"privacy.sigma = -1.0: a noise multiplier from 1e-12 to 1e\+09; "),
        ("privacy.sigma=0", r"privacy.sigma = 0.0: "),
        ("privacy.clip=-0.1", r"privacy.clip = -0.1: a bound on a gradient's norm from 1e-12 to 1e\+12; "),
        ("privacy.clip=inf", r"privacy.clip = inf: "),
        ("privacy.delta=1", r"privacy.delta = 1.0: a probability in \(0, 1\)"),
        ("algorithm.lam=-1", r"algorithm.lam = -1.0: a fairness λ from 0 to 1e\+06; "),
        ("algorithm.kappa=0.5", r"algorithm.kappa = 0.5: the largest weight of a record from 1 to 1e\+06; "),
        ("algorithm.lr=0", r"algorithm.lr = 0.0: a step size from 1e-20 to 1e\+06; "),
        ("algorithm.local_steps=0", r"algorithm.local_steps = 0: a number of steps from 1 to 1e\+06; "),
        ("algorithm.lambda=1", r"algorithm.lambda = 1: no such setting; did you mean 'lam'\?"),
        ("algorithm.coefficients=papr", r"algorithm.coefficients = 'papr': input should be 'paper', 'bounded' or"),
        ("algorithm.name=fedfpd", r"algorithm.name = 'fedfpd': did you mean 'fedfdp'\?"),
        ("algorithm.name=nowhere:Nothing", r"algorithm.name = 'nowhere:Nothing': cannot be imported"),
        ("algorithm.name=math:sqrt", r"algorithm.name = 'math:sqrt': not a class derived from"),
        ("algorithm.name=fedfair", r"algorithm.name = 'fedfair': not private: .*; take fedfdp"),
        ("privcy.q=0.1", r"privcy = .*: no such setting; did you mean 'privacy'\?"),
        ("privacy.epsilo=1", r"privacy.epsilo = 1: no such setting; did you mean 'epsilon'\?"),
        ("model.lora.r=2", r"^model.lora.r = 2: no such setting; known: alpha, rank, targets$"),
        ("model.lora={rank=2,target=[]}", r"^model.lora.target = \[\]: no such setting; did you mean 'targets'\?"),
        ("model.lora.rank=two", r"^model.lora.rank = 'two': a whole number$"),
        ("model.lora=true", r"^model.lora = True: settings by name, as { name = value }$"),
        ("data.estimate.sigm=2", r"^data.estimate.sigm = 2: no such setting; did you mean 'sigma'\?"),
        ("privacy=5", r"privacy = 5: a section of settings"),
        ("data.clients=1", r"data.clients = 1: 2 or more"),
        ("data.clients=ten", r"data.clients = 'ten': a whole number"),
        ("rounds=0", r"rounds = 0: 1 or more"),
        ("eval_every=0", r"eval_every = 0: 1 or more"),
        ("rounds", r"--set = 'rounds': expected section.setting=value"),
    ],
)
def test_bad_settings_get_one_clear_line(change, message):
    with pytest.raises(SettingError, match=message) as caught:
        config.load("default", [change]).resolved()
    assert "\n" not in str(caught.value)


def test_a_budget_below_one_round_names_what_one_would_cost():
    with pytest.raises(BudgetError, match=r"privacy.epsilon = 0.01: a single round with sigma = 2, q = 0.05 costs 0\."):
        config.load("default", ["privacy.epsilon=0.01"]).resolved()


def test_none_leaves_a_setting_to_be_solved():
    """ε = 3.52 over 300 rounds: the least σ that fits, below the preset's 2, which pays for 763."""
    left_open = config.load("default", ["privacy.sigma=none", "rounds=300"])
    assert left_open.privacy.sigma is None
    assert config.from_dict(left_open.to_dict()) == left_open
    solved = left_open.resolved().privacy
    assert 1.2 < solved.sigma < 2.0
    events = [(solved.q, (solved.sigma, solved.sigma_loss))]
    spent = accounting.epsilon([accounting.Event(q, s, 300) for q, s in events], solved.delta, accountant="pld")
    assert 3.5 < spent <= 3.52
    assert config.load("paper-mnist-nonprivate", ["rounds=none"]).rounds is None
    assert config.load("default", ["algorithm.lr=none"]).algorithm.lr is None


def test_a_setting_that_older_runs_do_not_know_counts_only_if_it_was_chosen():
    """Else none of them could be resumed: their folder, ledger and coordinator hold the hash of their settings."""
    old = config.load("digits", [])
    assert "lr_decay" not in config.algorithm_settings(old.algorithm)
    new = config.load("digits", ["algorithm.lr_decay=0.9"])
    assert config.algorithm_settings(new.algorithm)["lr_decay"] == 0.9
    assert old.fingerprint() != new.fingerprint()
    assert old.to_dict()["algorithm"]["lr_decay"] == 1.0


@pytest.mark.parametrize(
    ("setting", "kind"),
    [("privacy.q", "a number"), ("rounds", "a whole number"), ("privacy.budgets", "a number")],
)
def test_true_is_no_number(setting, kind):
    """It would be 1: all records in every batch."""
    given = "{client-0=true}" if setting == "privacy.budgets" else "true"
    with pytest.raises(SettingError, match=rf"{setting} = .*True.*: {kind}$"):
        config.load("digits", [f"{setting}={given}"])
