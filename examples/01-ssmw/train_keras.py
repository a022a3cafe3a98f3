"""Listing 3.1 with a Keras model: one trusted server and nine workers, two of which lie.

Run it with: python examples/01-ssmw/train_keras.py
"""

import keras
import tensorflow as tf

from garfield import ATTACKS, ByzantineWorker, GARs, Plan, Server, Worker, run_locally
from garfield.data import load

nw, fw = 9, 2
workers = [f"worker-{i}" for i in range(nw)]
num_iter, comp_acc_freq = 60, 20


def model():
    keras.utils.set_random_seed(1)
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((1, 8, 8)),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )


def batches(split, part=slice(None)):
    data = load("digits")
    pairs = (data.images(split)[part], data.labels(split)[part])
    return tf.data.Dataset.from_tensor_slices(pairs).shuffle(2000).batch(32)


def main(name, transport):
    if name in workers:
        part = slice(workers.index(name), None, nw)  # every worker has a share of its own
        if name in workers[-fw:]:
            lies = Plan(attack=ATTACKS["reverse"])
            worker = ByzantineWorker(
                model(), batches("train", part), transport=transport, servers=["server"], plan=lies
            )
        else:
            worker = Worker(
                model(), batches("train", part), transport=transport, servers=["server"]
            )
        worker.serve()
        return

    module, gar = model(), GARs["multi-krum"]
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    ps = Server(
        module, optimizer, transport=transport, workers=workers, f_w=fw, test=batches("test")
    )
    for i in range(num_iter):
        gradients = ps.get_gradients(i, nw)
        aggr_grad = gar(gradients=gradients, f=fw)
        ps.update_model(aggr_grad)
        if i % comp_acc_freq == 0:
            acc = ps.compute_accuracy()
            print(f"step {i}: accuracy {acc:.3f}")
    print(f"final accuracy {ps.compute_accuracy():.3f}")


if __name__ == "__main__":
    run_locally(main, ["server", *workers])
