"""The papers' convolutional networks, with Keras' padding where it is theirs; and a small one."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import nn

from coterie.models.spec import ModelSpec, Shape, image, large_enough

# In FlexCFL's code only the FEMNIST network carries L2, on its two dense layers. Dropout has no
# effect on scoring, which is done in evaluation mode.

Width = Annotated[int, Field(ge=1)]


def cnn_mnist() -> ModelSpec:
    """MNIST CNN: conv3(32) pool conv3(64) pool dropout 0.5 -> classes.

    Source: the authors' code of FlexCFL.

    Example:
        >>> cnn_mnist().parameters
        50186
    """

    def build(shape: Shape, classes: int) -> nn.Module:
        channels, height, width = image(shape, "cnn_mnist")
        # Convolutions are padded; the two pooling layers halve, rounded down.
        height = height // 4
        width = width // 4
        large_enough(height, width, shape, "cnn_mnist")
        return nn.Sequential(
            *(nn.Conv2d(channels, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64 * height * width, classes)),
        )

    return ModelSpec(build, (), "two convolutions, dropout")


def cnn_fashion(hidden: Width = 1024) -> ModelSpec:
    """Fashion-MNIST CNN: conv5(32) pool conv5(64) pool 1024 relu -> classes.

    With ``hidden = 2048`` it is LEAF's network.

    Args:
        hidden: width of the dense layer.

    Source: the authors' code of FlexCFL.

    Example:
        >>> cnn_fashion().parameters, cnn_fashion(hidden=2048).count((1, 28, 28), 62)
        (3274634, 6603710)
    """
    return _two_convolutions("cnn_fashion", hidden, 10)


def cnn_leaf(hidden: Width = 2048) -> ModelSpec:
    """LEAF's FEMNIST CNN, as in FedGSP: conv5(32) pool conv5(64) pool 2048 relu -> classes.

    Args:
        hidden: width of the dense layer.

    Source: LEAF's ``models/femnist/cnn.py``. FedGSP prints 6.3 million parameters, which are its
    mebibytes divided by 4.

    Example:
        >>> cnn_leaf().parameters, cnn_leaf().classes
        (6603710, 62)
    """
    return _two_convolutions("cnn_leaf", hidden, 62)


def _two_convolutions(name: str, hidden: int, classes: int) -> ModelSpec:
    def build(shape: Shape, classes: int) -> nn.Module:
        channels, height, width = image(shape, name)
        # As in TensorFlow's `same` padding, which is symmetric for a stride of 1.
        height = height // 4
        width = width // 4
        large_enough(height, width, shape, name)
        return nn.Sequential(
            *(nn.Conv2d(channels, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(64 * height * width, hidden), nn.ReLU()),
            nn.Linear(hidden, classes),
        )

    return ModelSpec(build, (), f"two convolutions, {hidden} hidden units", classes=classes)


def cnn_rfedavg() -> ModelSpec:
    """MNIST CNN of RFedAvg, without padding: conv5(10) pool conv5(20) pool 50 relu -> classes.

    The paper gives the kinds of layers and not their sizes; these are those of a widespread MNIST
    example.

    Example:
        >>> cnn_rfedavg().parameters
        21840
    """

    def build(shape: Shape, classes: int) -> nn.Module:
        channels, height, width = image(shape, "cnn_rfedavg")
        height = _after_two_pools(height)
        width = _after_two_pools(width)
        large_enough(height, width, shape, "cnn_rfedavg")
        return nn.Sequential(
            *(nn.Conv2d(channels, 10, 5), nn.MaxPool2d(2), nn.ReLU()),
            *(nn.Conv2d(10, 20, 5), nn.MaxPool2d(2), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(20 * height * width, 50), nn.ReLU(), nn.Linear(50, classes)),
        )

    return ModelSpec(build, (), "two small convolutions, 50 hidden units")


def cnn_small(first: Width = 8, second: Width = 16) -> ModelSpec:
    """A small CNN for many rounds on a laptop: conv5/2(8) pool conv3(16) pool -> classes.

    It is from no paper, and intended for FEMNIST by writer. The first convolution has stride 2, and
    a step on five 28x28 images takes half the time of LeNet-5's on ten CIFAR-10 images.

    Args:
        first: channels of the first convolution.
        second: channels of the second one.

    Example:
        >>> cnn_small().parameters, cnn_small().count((1, 28, 28), 10)
        (10366, 2826)
    """

    def build(shape: Shape, classes: int) -> nn.Module:
        channels, height, width = image(shape, "cnn_small")
        # Stride 2 rounds up, the two poolings round down.
        height = _halved_up(height) // 4
        width = _halved_up(width) // 4
        large_enough(height, width, shape, "cnn_small")
        return nn.Sequential(
            *(nn.Conv2d(channels, first, 5, stride=2, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(first, second, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(second * height * width, classes)),
        )

    return ModelSpec(build, (), "two small convolutions", classes=62)


def cnn_femnist() -> ModelSpec:
    """FEMNIST CNN: twice conv3 conv3 conv5/2 dropout 0.4, then 128 relu dropout 0.4 -> classes.

    The first three convolutions have 32 channels, the others 64.

    Source: the authors' code of FlexCFL. Its two dense layers carry L2.

    Example:
        >>> cnn_femnist().parameters
        325578
    """

    def build(shape: Shape, classes: int) -> nn.Module:
        channels, height, width = image(shape, "cnn_femnist")
        layers: list[nn.Module] = []
        for wide in (32, 64):
            # The two convolutions of 3 are not padded, the one of 5 is.
            height = height - 4
            width = width - 4
            large_enough(height, width, shape, "cnn_femnist")
            layers += [nn.Conv2d(channels, wide, 3), nn.ReLU()]
            layers += [nn.Conv2d(wide, wide, 3), nn.ReLU()]
            layers += [
                same_padding((height, width), 5, 2),
                nn.Conv2d(wide, wide, 5, stride=2),
                nn.ReLU(),
            ]
            layers.append(nn.Dropout(0.4))
            channels = wide
            height = _halved_up(height)
            width = _halved_up(width)
        return nn.Sequential(
            *layers,
            *(nn.Flatten(), nn.Linear(64 * height * width, 128), nn.ReLU(), nn.Dropout(0.4)),
            nn.Linear(128, classes),
        )

    decay = ("17.weight", "20.weight")
    return ModelSpec(build, decay, "six convolutions, 128 hidden units, dropout")


def _after_two_pools(side: int) -> int:
    # A convolution of 5 takes 4 pixels off, a pooling layer halves.
    return ((side - 4) // 2 - 4) // 2


def _halved_up(side: int) -> int:
    return -(-side // 2)


def same_padding(size: tuple[int, int], kernel: int, stride: int) -> nn.ZeroPad2d:
    """TensorFlow's ``same`` padding: an odd total puts the extra row and column at the end. torch's
    own would shift what a stride of 2 sees."""
    top, bottom = _same_side(size[0], kernel, stride)
    left, right = _same_side(size[1], kernel, stride)
    return nn.ZeroPad2d((left, right, top, bottom))


def _same_side(side: int, kernel: int, stride: int) -> tuple[int, int]:
    outputs = -(-side // stride)
    total = max((outputs - 1) * stride + kernel - side, 0)
    return total // 2, total - total // 2


def lenet5(padding: Annotated[int, Field(ge=0, le=4)] = 0) -> ModelSpec:
    """LeNet-5: conv5(6) pool conv5(16) pool 120 84 -> classes, with relu and max pooling.

    Args:
        padding: padding of the first convolution; 2 extends 28x28 images to the original's 32x32.

    Source: PACFL's "simple-cnn" has these sizes, for 32x32 images.

    Example:
        >>> lenet5().parameters, lenet5().count((1, 28, 28), 10)
        (62006, 44426)
        >>> lenet5(padding=2).count((1, 28, 28), 10)
        61706
    """

    def build(shape: Shape, classes: int) -> nn.Module:
        channels, height, width = image(shape, "lenet5")
        height = _after_two_pools(height + 2 * padding)
        width = _after_two_pools(width + 2 * padding)
        large_enough(height, width, shape, "lenet5")
        return nn.Sequential(
            *(nn.Conv2d(channels, 6, 5, padding=padding), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(16 * height * width, 120), nn.ReLU()),
            *(nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes)),
        )

    return ModelSpec(build, (), "LeNet-5", shape=(3, 32, 32))


# Channels of each block, and convolutions before its pooling layer.
BLOCKS = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


def vgg16(hidden: Annotated[int, Field(ge=1)] = 512) -> ModelSpec:
    """VGG-16: 13 conv3 with relu in 5 max-pooled blocks, two dense layers of 512 -> classes.

    Sixteen layers with weights, as the name says. The published network has dense layers of 4,096
    for images of 224x224; for 32x32 a dense layer sees 512 values, so its dense layers have 512
    units. It has no dropout and no normalisation.

    Args:
        hidden: units of the two dense layers before the last.

    Source: Simonyan, Zisserman, "Very deep convolutional networks for large-scale image
    recognition", 2014, column D.

    Example:
        >>> vgg16().parameters, vgg16(hidden=4096).count((3, 224, 224), 1000)
        (15245130, 138357544)
    """

    def build(shape: Shape, classes: int) -> nn.Module:
        channels, height, width = image(shape, "vgg16")
        # The convolutions are padded, so only the poolings shrink an image.
        height = height // 2 ** len(BLOCKS)
        width = width // 2 ** len(BLOCKS)
        large_enough(height, width, shape, "vgg16")
        layers: list[nn.Module] = []
        for wide, count in BLOCKS:
            for _ in range(count):
                layers += [nn.Conv2d(channels, wide, 3, padding=1), nn.ReLU()]
                channels = wide
            layers.append(nn.MaxPool2d(2))
        return nn.Sequential(
            *layers,
            *(nn.Flatten(), nn.Linear(channels * height * width, hidden), nn.ReLU()),
            *(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, classes)),
        )

    return ModelSpec(build, (), "VGG-16", shape=(3, 32, 32))
