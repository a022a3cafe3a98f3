"""Loaders, datasets and arrays, all as batches."""

import numpy as np
import pytest

from garfield.adapters.user_data import evaluation_batches, training_batches
from garfield.core.errors import InputError

X, Y = np.arange(80, dtype=np.float32).reshape(40, 2), np.arange(40)


def test_arrays_are_cut_into_batches_in_an_order_drawn_for_every_epoch():
    data = training_batches((X, Y))
    epochs = [[data.batch(step) for step in pair] for pair in ((0, 1), (2, 3))]
    for epoch in epochs:
        assert [len(targets) for _, targets in epoch] == [32, 8]
        assert sorted(np.concatenate([targets for _, targets in epoch])) == list(range(40))
        for inputs, targets in epoch:
            np.testing.assert_array_equal(inputs, X[targets])
    assert not np.array_equal(epochs[0][0][1], epochs[1][0][1])
    np.testing.assert_array_equal(data.batch(0)[1], epochs[0][0][1])  # a function of the step


def test_an_iterable_is_begun_again_when_it_ends():
    data = training_batches([(X[:4], Y[:4]), (X[4:], Y[4:]), (X[:1], Y[:1])])
    assert [len(data.batch(step)[1]) for step in range(5)] == [4, 36, 1, 4, 36]


def test_two_batches_are_not_taken_for_arrays():
    data = training_batches([(X[:4], Y[:4]), (X[4:], Y[4:])])
    assert [len(data.batch(step)[1]) for step in range(3)] == [4, 36, 4]


def test_what_knows_the_batch_of_a_step_is_asked_for_it():
    class Mine:
        def batch(self, step):
            return X[step], Y[step]

    assert training_batches(Mine()).batch(7)[1] == 7


def test_a_tensorflow_dataset_is_iterated_although_it_has_a_method_called_batch():
    tf = pytest.importorskip("tensorflow")
    data = training_batches(tf.data.Dataset.from_tensor_slices((X, Y)).batch(25))
    assert [len(data.batch(step)[1]) for step in range(3)] == [25, 15, 25]


def test_arrays_to_test_on_are_taken_in_order():
    [(inputs, targets)] = evaluation_batches((X, Y))
    np.testing.assert_array_equal(inputs, X)
    np.testing.assert_array_equal(targets, Y)
    batches = [(X, Y)]
    assert evaluation_batches(batches) is batches


def test_arrays_that_do_not_match_are_refused():
    with pytest.raises(InputError, match="40 inputs but 39 targets"):
        training_batches((X, Y[1:]))
