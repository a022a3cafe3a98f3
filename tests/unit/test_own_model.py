"""One call that trains the user's own model on their own data, in simulation."""

import sys

import numpy as np
import pytest
import torch
from torch import nn

import garfield
from garfield.core.errors import ConfigError, InputError, RunError, UnknownName
from garfield.launch.own_objects import learning_data
from garfield.report import summary_table
from garfield.runs import user_files

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 6))
WEIGHTS = RNG.normal(size=(6, 3))
LABELS, NUMBERS = (X @ WEIGHTS).argmax(1), X @ WEIGHTS[:, 0]
QUICK = {"workers": 5, "steps": 30, "learning_rate": 0.1, "evaluate_every": 10, "simulate": True}


class Net(nn.Module):
    def __init__(self, outputs=3):
        super().__init__()
        self.inner = nn.Linear(6, 16)
        self.norm = nn.BatchNorm1d(16)
        self.outer = nn.Linear(16, outputs)

    def forward(self, x):
        return self.outer(torch.relu(self.norm(self.inner(x))))


def one_number():
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))


def train(tmp_path, **given):
    asked = {"model": Net, "data": (X, LABELS), "out": tmp_path / "run", "progress": False}
    return garfield.train(**{**QUICK, **asked, **given})


@pytest.fixture
def no_pictures(monkeypatch):
    """Without pictures, which take longer than such a run."""
    monkeypatch.setattr("garfield.report.plots.draw_all", lambda *_: [])


@pytest.mark.slow  # with the import of pandas, and pictures
def test_a_run_has_a_summary_a_frame_a_picture_and_the_users_model(tmp_path):
    torch.manual_seed(3)
    before = (torch.get_rng_state(), torch.get_num_threads())
    run = train(tmp_path, gar="median", byzantine_workers=1, worker_attack="reverse")
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.get_num_threads() == before[1]
    summary = run.summary
    assert (summary["metric"], summary["larger_is_better"]) == ("accuracy", True)
    assert summary["score"] == summary["accuracy"] > 0.6
    frame = run.frame()
    assert frame["step"].tolist() == list(range(1, 31))
    assert frame["accuracy"].dropna().tolist()[-1] == summary["accuracy"]
    assert frame["loss"].notna().sum() == 3
    model = run.model()
    assert type(model) is Net
    assert not model.training
    data = learning_data((X, LABELS), 0, "data")
    with torch.no_grad():
        right = (model(torch.from_numpy(data.x_test)).argmax(1).numpy() == data.y_test).mean()
    assert right == pytest.approx(summary["accuracy"])
    run.plot(tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 1000
    opened = garfield.TrainingRun.open(run.directory)
    assert opened.summary == summary
    assert torch.equal(opened.model().inner.weight, model.inner.weight)
    assert f"accuracy {100 * summary['accuracy']:.1f} % after 30 steps" in repr(opened)


def test_numbers_are_learned_and_judged_by_how_far_off_they_are(tmp_path):
    run = train(tmp_path, model=one_number, data=(X, NUMBERS), learning_rate=0.02)
    assert (run.summary["metric"], run.summary["larger_is_better"]) == ("mse", False)
    assert run.summary["accuracy"] is None
    assert run.summary["best_score"] <= run.summary["score"] < np.var(NUMBERS) / 2
    assert run.summary["score"] == pytest.approx(run.summary["loss"], rel=1e-4)
    assert run.frame()["mse"].dropna().tolist()[-1] == run.summary["score"]
    assert (run.directory / "score.png").is_file()
    assert "smaller is better" in summary_table._lines(run.summary)["mse"]


def test_tokens_are_learned_with_a_target_for_each(tmp_path, no_pictures):
    tokens = RNG.integers(0, 7, size=(200, 4))

    def tagger():
        return nn.Sequential(nn.Embedding(7, 12), nn.Linear(12, 2), Swapped())

    run = train(tmp_path, model=tagger, data=(tokens, tokens % 2), learning_rate=0.3)
    assert run.summary["accuracy"] > 0.95
    assert run.settings.learning.model == "memory:tagger"


class Swapped(nn.Module):
    """(samples, places, classes) as cross-entropy wants it."""

    def forward(self, x):
        return x.transpose(1, 2)


def test_loss_metric_and_optimizer_may_be_the_users_own(tmp_path, no_pictures):
    seen = []

    def relative_error(outputs, targets):
        seen.append(len(outputs))
        return (outputs[:, 0] - targets).abs().sum() / targets.abs().sum()

    def rate(parameters, lr):
        return torch.optim.RMSprop(parameters, lr=lr / 10)

    run = train(
        tmp_path, model=one_number, data=(X, NUMBERS), optimizer=rate, metric=relative_error,
        loss=lambda outputs, y: nn.functional.huber_loss(outputs[:, 0], y), larger_is_better=False,
    )  # fmt: skip
    assert (run.summary["metric"], run.summary["larger_is_better"]) == ("relative_error", False)
    assert run.summary["best_score"] == min(run.frame()["relative_error"].dropna())
    assert seen[-1] == 24  # the whole test set at once
    other = train(
        tmp_path / "b", model=one_number, data=(X, NUMBERS[:, None]), optimizer="adam",
        metric="rmse",
        loss=nn.SmoothL1Loss, momentum=0.0, learning_rate=0.01,
    )  # fmt: skip
    assert other.settings.learning.loss == "torch.nn.modules.loss:SmoothL1Loss"
    assert other.summary["metric"] == "rmse"


def test_a_module_that_exists_is_copied_and_stays_as_it_is(tmp_path, no_pictures):
    net = Net()
    before = net.inner.weight.clone()
    run = train(tmp_path, model=net, steps=3)
    assert torch.equal(net.inner.weight, before)
    moved = (run.model().inner.weight - before).detach().abs().max()
    assert 0 < float(moved) < 0.5  # from where it began
    with pytest.raises(ConfigError, match="Net lay in the memory of the Python process"):
        garfield.TrainingRun.open(run.directory).model()
    assert type(garfield.TrainingRun.open(run.directory, model=net).model()) is Net
    with pytest.raises(
        ConfigError, match=r"instance of Net.*model=\"mine\.py:Net\".*simulate=True"
    ):
        train(tmp_path / "b", model=net, simulate=False)


def test_a_resumed_run_ends_at_the_bits_of_one_never_stopped(tmp_path, no_pictures):
    def dropped():
        return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

    given = {"model": dropped, "optimizer": "adam", "learning_rate": 0.01}
    whole = train(tmp_path, steps=12, **given)
    half = train(tmp_path / "b", steps=6, **given)
    rest = train(
        tmp_path, steps=12, resume=half.directory, out=None, model=dropped, learning_rate=0.01
    )
    assert rest.summary["resumed_at"] == [6]
    for one, other in zip(whole.model().parameters(), rest.model().parameters(), strict=True):
        assert torch.equal(one, other)
    with pytest.raises(ConfigError, match="A resumed run keeps its data"):
        train(tmp_path, steps=20, resume=half.directory, model=dropped, data=(X, LABELS[::-1]))


def test_the_same_seed_draws_the_same_dropout(tmp_path, no_pictures):
    def dropped():
        return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))

    torch.manual_seed(1)
    first = train(tmp_path, model=dropped, steps=4, threads=1).model()
    torch.manual_seed(2)
    again = train(tmp_path / "b", model=dropped, steps=4, threads=2).model()
    assert torch.equal(first[0].weight, again[0].weight)


class NoMean(nn.Module):
    def forward(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets, reduction="none")


class TwoOutputs(Net):
    def forward(self, x):
        return super().forward(x), x


class Needs(Net):
    def __init__(self, hidden):
        super().__init__()


def broken(outputs, targets):
    return outputs.nothing


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"data": (X[:, :5], LABELS)}, ConfigError,
         r"Net does not take the data: inputs are float32 \(32, 5\)\. RuntimeError.*mat1 and mat2 "
         r".*test_own_model\.py:\d+\)"),
        ({"data": (X, LABELS + 1)}, InputError,
         r"labels to train on are not within 0\.\.2: they run from 1 to 3, and .*Net has 3 out"),
        ({"data": (X, LABELS - 1)}, InputError, r"they run from -1 to 1"),
        ({"loss": NoMean}, ConfigError, r"NoMean gave a Tensor of shape \(32,\).*\.mean\(\)"),
        ({"loss": broken}, ConfigError, r"AttributeError: .*test_own_model\.py:\d+\)"),
        ({"loss": "mse"}, ConfigError, r"shape \(32, 3\) and targets \(32,\)\. The model must"),
        ({"loss": lambda outputs, y: outputs.detach().sum()}, ConfigError, "has no gradient"),
        ({"loss": lambda outputs, y: outputs.sum() * np.nan}, ConfigError, "first batch is nan"),
        ({"model": one_number, "data": (X, NUMBERS), "loss": nn.HuberLoss}, ConfigError,
         r"float32 \(32, 1\) and targets of float32 \(32,\)\. UserWarning: Using a target"),
        ({"metric": lambda outputs, y: outputs}, InputError, r"gave a Tensor of shape \(8, 3\)"),
        ({"metric": broken}, InputError, r"The metric broken failed: AttributeError"),
        ({"model": TwoOutputs}, ConfigError, "gave a tuple .* It must give one tensor"),
        ({"model": Needs}, ConfigError, "needs hidden to be made.*def net"),
        ({"model": dict}, ConfigError, "made a dict. It must make a torch.nn.Module"),
        ({"optimizer": lambda parameters: 3}, ConfigError, "made a int. It must make a torch"),
        ({"optimizer": "adm"}, UnknownName, "adm is not an optimizer. Did you mean adam"),
        ({"metric": "acuracy"}, UnknownName, "Did you mean accuracy"),
        ({"model": "digit_mlp"}, UnknownName, "Did you mean digits_mlp"),
        ({"model": "nothing.py:Net"}, ConfigError, r"There is no file .*nothing\.py"),
        ({"model": "no_such_module:Net"}, ConfigError, "module no_such_module cannot be imported"),
        ({"model": f"{__file__}:Nett"}, UnknownName, r"Nett is not defined in .* mean Net\?"),
        ({"worker": 3}, UnknownName, "worker is not a setting. Did you mean workers"),
        ({"data": (X, NUMBERS), "model": one_number, "byzantine_workers": 1,
          "worker_attack": "label-flip"}, ConfigError, "label-flip turns the labels of classes"),
        ({"app": "liubei", "optimizer": "adam", "momentum": 0.0, "servers": 4}, ConfigError,
         "liubei's filters assume plain SGD"),
        ({"framework": "tensorflow", "model": "digits_mlp", "data": "digits", "loss": "mse"},
         ConfigError, "are for torch alone"),
        ({"framework": "tensorflow"}, ConfigError, "is not written for TensorFlow"),
        ({"batch": 500}, ConfigError, r"batch must be within 1\.\.216"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told_before_anything_starts(tmp_path, given, error, message):
    with pytest.raises(error, match=f"(?s){message}"):
        train(tmp_path, **given)
    assert not (tmp_path / "run").exists()


def test_a_model_that_fails_in_the_middle_is_told_with_its_line(tmp_path, no_pictures):
    class Failing(Net):
        left = 40

        def forward(self, x):
            Failing.left -= 1
            return super().forward(x) if Failing.left > 0 else 1 / 0

    with pytest.raises(RunError, match=r"ZeroDivisionError.*test_own_model\.py:\d+.*is in .*run"):
        train(tmp_path, model=Failing)
    opened = garfield.TrainingRun.open(tmp_path / "run")
    assert "ZeroDivisionError" in opened.summary["failed"]


def test_a_model_that_diverged_is_a_result(tmp_path, no_pictures):
    run = train(
        tmp_path, model=one_number, data=(X, NUMBERS), learning_rate=1e12, metric="mae", steps=10
    )
    assert run.summary["diverged"]
    assert run.summary["metric"] == "mae"


@pytest.mark.parametrize(
    "app", ["vanilla", "crash-tolerant", "msmw", "decentralized", "aggregathor", "draco", "guanyu",
            "liubei"],
)  # fmt: skip
def test_every_application_takes_them(app, tmp_path, no_pictures):
    several = {"msmw": 4, "guanyu": 4, "liubei": 4, "crash-tolerant": 2}
    given = {"servers": several.get(app, 1), "workers": 6, "steps": 4}
    if app == "liubei":
        given |= {"momentum": 0.0, "gather_every": 2}
    run = train(tmp_path, app=app, model=one_number, data=(X, NUMBERS), **given)
    assert run.summary["steps"] == 4
    assert run.summary["metric"] == "mse"


def test_a_file_is_imported_once_and_may_import_what_lies_beside_it(tmp_path):
    (tmp_path / "beside_it.py").write_text("WIDTH = 3\n")
    (tmp_path / "mine.py").write_text("from beside_it import WIDTH\nclass A:\n    class B: pass\n")
    found = user_files.found(f"{tmp_path}/mine.py:A.B")
    assert user_files.reference_of(found) == f"{tmp_path}/mine.py:A.B"
    assert user_files.found(f"{tmp_path}/mine.py:WIDTH") == 3
    assert user_files.reference_of(lambda: 3) is None
    assert user_files.reference_of(nn.Linear) == "torch.nn.modules.linear:Linear"
    sys.path.remove(str(tmp_path))
