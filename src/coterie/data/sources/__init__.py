"""Where samples come from: one factory a source, `SOURCES` by name.

A source is called as ``source(root, **options)``, with the data folder and the options of the table
``[data]`` of a configuration, and gives `Samples`. To add one, write its file next to these and name
it in `SOURCES`; another image dataset is a record in `image_datasets` and a short factory.
"""

from collections.abc import Callable
from types import MappingProxyType

from coterie.data.samples import Samples
from coterie.data.sources.files import file, hub, nodes
from coterie.data.sources.generated import drift_stream, synthetic
from coterie.data.sources.image_datasets import (
    cifar10,
    digits,
    emnist_letters_aj,
    fashion_mnist,
    femnist,
    mnist,
    svhn,
)
from coterie.data.sources.image_folder import image_folder
from coterie.data.sources.saved import saved
from coterie.data.sources.tabular_datasets import beijing_air, heart_disease, parkinsons
from coterie.data.sources.text import sent140, sent140_tokens

__all__ = ["SOURCES"]

SOURCES: MappingProxyType[str, Callable[..., Samples]] = MappingProxyType(
    {
        "digits": digits,
        "synthetic": synthetic,
        "drift_stream": drift_stream,
        "mnist": mnist,
        "fashion_mnist": fashion_mnist,
        "femnist": femnist,
        "emnist_letters_aj": emnist_letters_aj,
        "cifar10": cifar10,
        "svhn": svhn,
        "sent140": sent140,
        "sent140_tokens": sent140_tokens,
        "heart_disease": heart_disease,
        "parkinsons": parkinsons,
        "beijing_air": beijing_air,
        "file": file,
        "hub": hub,
        "image_folder": image_folder,
        "nodes": nodes,
        "saved": saved,
    }
)
