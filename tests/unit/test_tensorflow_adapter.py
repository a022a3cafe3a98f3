"""A Keras model or tf.Module behaves as any other model of a node."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import keras  # noqa: E402
from keras import layers  # noqa: E402

from garfield.adapters.adapt import adapt  # noqa: E402
from garfield.core.errors import ConfigError  # noqa: E402
from garfield.models import build_in_keras  # noqa: E402
from tests.keras_models import images, varied  # noqa: E402


def small(**compiled):
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((6,)), layers.Dense(5, "tanh"), layers.Dense(3)])
    if compiled:
        model.compile(**compiled)
    return model


def vector_of(adapter):
    out = np.empty(adapter.size + adapter.tail, np.float32)
    adapter.read(out)
    return out


def gradient_of(adapter, batch):
    out = np.empty(adapter.size + adapter.tail, np.float32)
    loss = adapter.gradient(batch, out)
    return out, loss


def test_a_tf_module_will_do():
    class Line(tf.Module):
        def __init__(self):
            super().__init__()
            self.w = tf.Variable(tf.ones((6, 3)), name="w")
            self.scale = tf.Variable(2.0, name="scale")
            self.seen = tf.Variable(tf.zeros(6), trainable=False, name="seen")

        def __call__(self, x):
            self.seen.assign(tf.reduce_mean(x, 0))
            return self.scale * (x @ self.w)

    adapter = adapt(Line(), optimizer=keras.optimizers.SGD(0.1))
    assert (adapter.size, adapter.tail) == (19, 6)
    batch = images(6)
    before, (gradient, first) = vector_of(adapter), gradient_of(adapter, batch)
    np.testing.assert_allclose(gradient[19:], batch[0].mean(axis=0), atol=1e-6)
    adapter.step(gradient[:19])
    np.testing.assert_allclose(vector_of(adapter)[:19], (before - 0.1 * gradient)[:19], atol=1e-6)
    assert gradient_of(adapter, batch)[1] < first


# -- memory ----------------------------------------------------------------------------------


def test_a_vector_that_changes_later_does_not_change_the_model():
    adapter = adapt(small())
    vector = np.ones(adapter.size, np.float32)
    adapter.write(vector)
    vector[:] = 7
    assert (vector_of(adapter) == 1).all()


def test_what_a_user_has_read_from_a_variable_stays_as_it_was():
    model = small()
    adapter = adapt(model)
    adapter.write(np.ones(adapter.size, np.float32))
    kept = tf.identity(model.trainable_variables[0].value)
    adapter.write(np.zeros(adapter.size, np.float32))
    assert (kept.numpy() == 1).all()


def test_a_read_only_vector_that_starts_anywhere_can_be_written():
    adapter = adapt(small())
    for skip in range(4):
        vector = np.arange(skip + adapter.size, dtype=np.float32)[skip:]
        vector.flags.writeable = False
        adapter.write(vector)
        np.testing.assert_array_equal(vector_of(adapter), vector)


def test_negative_variances_are_not_believed():
    adapter = adapt(varied())
    adapter.write(np.full(adapter.size + adapter.tail, -1.0, np.float32))
    tail = vector_of(adapter)[adapter.size :]
    assert (tail[:4] == -1).all()  # means may be anything
    assert (tail[4:] == 0).all()


# -- loss and optimizer ------------------------------------------------------------------------


def test_a_step_is_the_optimizers_own():
    batch = images(6)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    plain, optimizer = small(), keras.optimizers.Adam(0.05)
    for _ in range(3):
        with tf.GradientTape() as tape:
            value = loss(batch[1], plain(batch[0]))
        optimizer.apply(tape.gradient(value, plain.trainable_variables), plain.trainable_variables)
    adapter = adapt(small(), optimizer=keras.optimizers.Adam(0.05))
    for _ in range(3):
        adapter.step(gradient_of(adapter, batch)[0][: adapter.size])
    np.testing.assert_allclose(vector_of(adapter), vector_of(adapt(plain)), atol=1e-6)


def test_a_compiled_model_brings_its_loss_and_optimizer():
    inputs, targets = images(6)
    one_hot = np.eye(3, dtype=np.float32)[targets]
    model = small(optimizer=keras.optimizers.SGD(0.5), loss="mse")
    adapter = adapt(model)
    before = vector_of(adapter)
    gradient, loss = gradient_of(adapter, (inputs, one_hot))
    assert loss == pytest.approx(float(np.mean((model(inputs).numpy() - one_hot) ** 2)), rel=1e-5)
    adapter.step(gradient)
    np.testing.assert_allclose(vector_of(adapter), before - 0.5 * gradient, atol=1e-6)
    accuracy, _ = adapter.evaluate([(inputs, one_hot)])
    assert accuracy == np.mean(model(inputs).numpy().argmax(axis=1) == targets)


def test_penalties_of_layers_are_part_of_the_loss():
    model = keras.Sequential(
        [keras.Input((6,)), layers.Dense(3, kernel_regularizer=keras.regularizers.L2(0.5))]
    )
    batch = images(6)
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    penalty = 0.5 * float(np.sum(np.square(model.layers[0].kernel.numpy())))
    expected = float(cross_entropy(batch[1], model(batch[0]))) + penalty
    assert gradient_of(adapt(model), batch)[1] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("last", [layers.Softmax(), layers.Activation("softmax")])
def test_a_model_that_ends_in_a_softmax_gives_probabilities(last):
    logits = small()
    model = keras.Sequential([*logits.layers, last])
    batch = images(6)
    expected, loss = gradient_of(adapt(logits), batch)
    found, same = gradient_of(adapt(model), batch)
    assert loss == pytest.approx(same, rel=1e-4)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_schedule_sets_the_rate_of_every_step():
    adapter = adapt(
        small(), optimizer=keras.optimizers.SGD(9.0), scheduler=lambda step: 1 / (1 + step)
    )
    start = vector_of(adapter)
    for _ in range(3):
        adapter.step(np.ones(adapter.size, np.float32))
    np.testing.assert_allclose(vector_of(adapter), start - (1 + 1 / 2 + 1 / 3), atol=1e-5)


def test_training_goes_on_from_a_saved_state_as_if_nothing_had_happened():
    batch = images(6)

    def steps(adapter, count):
        for _ in range(count):
            adapter.step(gradient_of(adapter, batch)[0])

    whole, first, second = (adapt(small(), optimizer=keras.optimizers.Adam(0.05)) for _ in range(3))
    steps(whole, 6)
    steps(first, 3)
    second.write(vector_of(first))
    second.restore(first.state())
    steps(second, 3)
    np.testing.assert_array_equal(vector_of(second), vector_of(whole))


def test_a_state_of_another_optimizer_is_refused():
    state = adapt(small(), optimizer=keras.optimizers.Adam(0.05)).state()
    with pytest.raises(ConfigError, match="another optimizer"):
        adapt(small(), optimizer=keras.optimizers.SGD(0.1, momentum=0.9)).restore(state)


def test_frozen_layers_take_no_part():
    model = varied()
    whole = adapt(model)
    model.get_layer("convolution").trainable = False
    rest = adapt(model)
    assert whole.size - rest.size == 4 * 3 * 3 * 3 + 4
    assert rest.tail == whole.tail


def test_gradients_of_embeddings_are_dense_and_unused_weights_have_none():
    class Words(keras.Model):
        def __init__(self):
            super().__init__()
            self.words, self.unused = layers.Embedding(9, 4), layers.Dense(2)
            self.unused.build((None, 4))
            self.out = layers.Dense(3)

        def call(self, x):
            return self.out(tf.reduce_mean(self.words(x), axis=1))

    model = Words()
    model(np.zeros((1, 2), np.int32))
    adapter = adapt(model)
    gradient, _ = gradient_of(adapter, (np.array([[1, 2], [2, 5]]), np.array([0, 1])))
    assert adapter.layout[0][1] == (9, 4)
    assert np.isfinite(gradient).all()
    assert np.count_nonzero(gradient[:36].reshape(9, 4).any(axis=1)) == 3  # words 1, 2 and 5


def test_batches_of_any_size_are_taken():
    adapter = adapt(small())
    inputs, targets = images(6)
    whole = gradient_of(adapter, (inputs, targets))[0]
    parts = [gradient_of(adapter, (inputs[a:b], targets[a:b]))[0] for a, b in ((0, 4), (4, 16))]
    np.testing.assert_allclose(whole, (4 * parts[0] + 12 * parts[1]) / 16, atol=1e-6)


# -- refusals ----------------------------------------------------------------------------------


def test_a_model_that_is_not_built_yet_is_refused():
    with pytest.raises(ConfigError, match="Give it an Input layer, or call it on a batch"):
        adapt(keras.Sequential([layers.Dense(3)]))


def test_half_precision_weights_are_refused_by_name():
    model = keras.Sequential([keras.Input((6,)), layers.Dense(3, dtype="float16", name="thin")])
    with pytest.raises(ConfigError, match=r"thin/kernel is float16.*float32"):
        adapt(model)


def test_a_server_needs_an_optimizer():
    adapter = adapt(small())
    with pytest.raises(ConfigError, match="Pass one, or compile the model"):
        adapter.step(np.zeros(adapter.size, np.float32))


def test_a_model_that_is_written_for_torch_alone_is_refused():
    with pytest.raises(ConfigError, match=r"resnet50 is not written for TensorFlow.*cifarnet"):
        build_in_keras("resnet50")
