"""The models of the thesis's Table 3.1, and one smaller: by name, in plain torch;
the first three in Keras too.

Every count of the table is met exactly; for its VGG19, by another depth than the name says.

| name       | image   | parameters  | Table 3.1               | what it is                    |
|------------|---------|-------------|-------------------------|-------------------------------|
| digits_mlp | 1×8×8   | 4,810       | not in it               | a perceptron for 8×8 digits   |
| mnist_cnn  | 1×28×28 | 79,510      | MNIST_CNN, 79,510       | two convolutions, two dense   |
| cifarnet   | 3×32×32 | 1,756,426   | CifarNet, 1,756,426     | two convolutions, three dense |
| inception  | 3×32×32 | 5,602,874   | Inception, 5,602,874    | GoogLeNet with batch norm     |
| resnet50   | 3×32×32 | 23,539,850  | ResNet50, 23,539,850    | pre-activated, 16 bottlenecks |
| resnet200  | 3×32×32 | 62,697,610  | ResNet200, 62,697,610   | pre-activated, 66 bottlenecks |
| vgg11      | 3×32×32 | 128,807,306 | VGG19, 128,807,306      | the model that has that count |
| vgg19      | 3×32×32 | 139,611,210 | VGG19, 10,803,904 fewer | the model of that name        |

`build` makes one, `build_in_keras` its twin for TensorFlow. The framework is imported
then, not before. No model holds dropout: a
gradient is a function of model and batch alone, so that it can be computed again,
bit for bit. Padding is always a number and pooling never rounds up, so that other
frameworks can lay out the same model.
"""

from garfield.models.model import MODELS, Model, build, build_in_keras, build_model

__all__ = ["MODELS", "Model", "build", "build_in_keras", "build_model"]
