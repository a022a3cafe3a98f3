"""Models of `garfield.models` once more, in Keras: the same numbers, the same gradients.

They take the same arrays as their twins, (batch, channels, height, width), and put the
channels last themselves, as TensorFlow computes. What they are made of is in
`garfield.models`; a file is imported when its first model is built.
"""
