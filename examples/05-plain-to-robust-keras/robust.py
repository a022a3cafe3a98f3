"""Train a small Keras network on images of clothes: alone (plain.py), or as peers (robust.py)."""

import keras

from garfield import run_as_peers
from garfield.data import load


def images(split):
    data = load("fashion-small")
    return data.images(split).transpose(0, 2, 3, 1), data.labels(split)


def main(peer):
    keras.utils.set_random_seed(1)
    x, y = map(peer.share, images("train"))
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(8, 5, strides=2, activation="relu"),
            keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    optimizer = keras.optimizers.SGD(learning_rate=0.03, momentum=0.9)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    peer.robust(model, gar="multi-krum", f=1)
    model.fit(x, y, batch_size=32, epochs=6, verbose=2)
    _, accuracy = model.evaluate(*images("test"), verbose=0)
    print(f"final accuracy {accuracy:.3f}")


if __name__ == "__main__":
    run_as_peers(main, 6, liars={5: "reverse"})
