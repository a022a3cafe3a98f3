"""A Keras user's own fit or loop: what is exchanged around each of the optimizer's steps."""

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import keras

from garfield import ConfigError, Peer
from garfield.adapters.tensorflow_adapter import TensorFlowAdapter, tf
from garfield.adapters.user_loop import adapt_user_loop
from garfield.transport.simulated import Simulation

X = np.random.default_rng(0).standard_normal((16, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)
RATE = 0.1


def compiled(**options):
    keras.utils.set_random_seed(1)
    layers = [keras.Input((3,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(2)]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(RATE), loss, **options)
    return model


def vector(model):
    adapter = TensorFlowAdapter(model)
    out = np.empty(adapter.size, np.float32)
    adapter.read(out)
    return out


def by_fit(model):
    model.fit(X, Y, batch_size=16, epochs=2, shuffle=False, verbose=0)


def by_loop(model):
    for _ in range(2):
        with tf.GradientTape() as tape:
            loss = model.loss(Y, model(X, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))


every_way = pytest.mark.parametrize("train", [by_fit, by_loop])


def around(model, change):
    """Exchange as `change` says; what the model was before and after each step."""
    adapter, seen = adapt_user_loop(model, None), []

    def before():
        own = np.empty(adapter.size, np.float32)
        adapter.own_gradient(own)
        seen.append(vector(model))
        adapter.step(change(own))

    adapter.around_step(before, lambda: seen.append(vector(model)))
    return seen


@every_way
def test_gradients_that_come_back_as_they_were_change_nothing(train):
    expected, model = compiled(), compiled()
    by_fit(expected)
    around(model, lambda own: own)
    train(model)
    np.testing.assert_allclose(vector(model), vector(expected), atol=1e-6)


@every_way
def test_the_step_is_along_what_was_exchanged_and_lies_between_the_two_calls(train):
    model = compiled()
    start = vector(model)
    seen = around(model, lambda own: np.arange(len(own), dtype=np.float32))
    train(model)
    move = RATE * np.arange(len(start))
    for count, found in zip((0, 1, 1, 2), seen, strict=True):
        np.testing.assert_allclose(found, start - count * move, atol=1e-5)
    assert int(model.optimizer.iterations) == 2


def test_what_is_written_after_a_step_is_what_the_next_one_starts_from():
    model = compiled()
    adapter = adapt_user_loop(model, None)
    own = []

    def before():
        adapter.step(np.zeros(adapter.size, np.float32))
        own.append(vector(model))

    adapter.around_step(before, lambda: adapter.write(own[-1] + 1))
    start = vector(model)
    by_fit(model)
    np.testing.assert_allclose(vector(model), start + 2, atol=1e-6)


def test_a_variable_without_a_gradient_counts_as_zero():
    model = compiled()
    adapter, own = adapt_user_loop(model, None), []

    def before():
        own.append(np.empty(adapter.size, np.float32))
        adapter.own_gradient(own[-1])
        adapter.step(own[-1])

    adapter.around_step(before, lambda: None)
    ones = [tf.ones(v.shape) for v in model.trainable_variables]
    model.optimizer.apply([*ones[:-1], None], model.trainable_variables)
    assert own[0].tolist() == [1.0] * (adapter.size - 2) + [0.0] * 2


def test_fit_runs_eagerly_from_then_on():
    model = compiled(jit_compile=True)
    by_fit(model)
    seen = around(model, lambda own: own)
    by_fit(model)
    assert model.run_eagerly
    assert len(seen) == 4


def test_an_optimizer_called_inside_of_a_graph_is_refused():
    model = compiled()
    around(model, lambda own: own)
    with pytest.raises(ConfigError, match=r"called inside of a tf\.function"):
        tf.function(lambda: by_loop(model), autograph=False)()


def test_a_share_of_a_dataset_is_every_nth_sample():
    names = ["peer-0", "peer-1", "peer-2"]
    peers = [Peer(Simulation().transport(name), names) for name in names]
    data = tf.data.Dataset.range(11)
    shares = [[int(x) for x in peer.share(data)] for peer in peers]
    assert shares == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


def test_without_an_optimizer_there_is_no_step_to_act_in():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with pytest.raises(ConfigError, match="compile the model with one"):
        adapt_user_loop(model, None)
