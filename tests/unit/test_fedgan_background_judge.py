"""A judge beside a training: of the generator as it was, the same noise, nothing disturbed."""

import json

import pytest
import torch

from garfield.core.errors import InputError
from garfield.fedgan.judging import (
    BackgroundJudge,
    GeneratorEvaluation,
    asked_labels,
    drawn_images,
    judge_for,
)
from garfield.fedgan.networks import gan_for

IMAGE = (1, 28, 28)


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    return judge_for("fashion-small", cache=tmp_path_factory.mktemp("judging"))


@pytest.fixture(scope="module")
def gan():
    return gan_for("lsgan(width=0.0625)", IMAGE)


def test_a_judgement_is_of_the_generator_as_it_was_and_of_the_same_noise(judge, gan):
    generator, _ = gan.build(1)
    state = torch.random.get_rng_state()
    with BackgroundJudge(judge, gan, n=200, seed=3, few_are_enough=True) as beside:
        assert beside.result() is None
        beside.begin(generator, {"round": 7})
        with torch.no_grad():
            for parameter in generator.parameters():
                parameter.fill_(float("nan"))  # what training does to it meanwhile
        about, found = beside.result(patiently=True)
        assert not beside.busy()
        assert beside.result() is None
    assert about == {"round": 7}
    assert found.n == 200
    generator, _ = gan.build(1)
    expected = judge.score(drawn_images(gan, generator, 200, 3), few_are_enough=True)
    assert found == expected
    assert torch.equal(state, torch.random.get_rng_state())
    assert generator.training


def test_what_goes_wrong_is_told_to_whoever_takes_the_result(judge, gan):
    generator, _ = gan.build(1)
    with torch.no_grad():
        generator.dense.weight.fill_(float("nan"))
    with BackgroundJudge(judge, gan, n=100, few_are_enough=True) as beside:
        beside.begin(generator, {})
        with pytest.raises(InputError, match="the generator has diverged"):
            beside.result(patiently=True)
        beside.begin(gan.build(2)[0], {"round": 8})  # and the next one is judged
        assert beside.result(patiently=True)[0] == {"round": 8}


def test_a_conditional_generator_is_asked_for_every_class_equally_often(judge):
    gan = gan_for("lsgan(width=0.0625)", IMAGE, classes=10)
    assert torch.bincount(asked_labels(gan, 50)).tolist() == [5] * 10
    assert asked_labels(gan_for("lsgan(width=0.0625)", IMAGE), 50) is None
    generator, _ = gan.build(0)
    pieces = list(drawn_images(gan, generator, 50, 0, batch=20))
    assert [len(piece) for piece in pieces] == [20, 20, 10]
    with BackgroundJudge(judge, gan, n=50, few_are_enough=True) as beside:
        beside.begin(generator, {}, train_classifier=True)
        _, found = beside.result(patiently=True)
    assert found.labels_by.value == "the generator"


def test_what_a_training_is_told_are_plain_numbers(judge):
    gan = gan_for("lsgan(width=0.0625)", IMAGE)
    generator, _ = gan.build(1)
    evaluation = GeneratorEvaluation(judge, n=100, seed=3)
    during = evaluation(gan, generator, last=False)
    assert (
        during["fid"] == judge.score(drawn_images(gan, generator, 100, 3), few_are_enough=True).fid
    )
    assert during["fid_label"].startswith("FID (small CNN; only 100 generated images")
    assert "accuracy_trained_on_generated" not in during
    after = evaluation(gan, generator, last=True)
    assert 0 <= after["accuracy_trained_on_generated"] <= 1
    assert after["labels_by"] == "a frozen classifier"
    assert json.loads(json.dumps(after))["modes"] == during["modes"]
