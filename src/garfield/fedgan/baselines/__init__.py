"""What federated GANs are compared with.

`centralized.py` trains the same GAN on all the data at one place; `md_gan.py` is MD-GAN, one
generator at a server and a discriminator on every device; `md_gan_training.py` runs all of it in
one process and counts its bytes, `md_gan_nodes.py` over the library's transport. FL-vanilla and
FedAvg are settings of a federated training.

Whatever an iteration draws, noise, batches and dropout, depends on the seed, the place and the
iteration alone (`randomness.py`): what is computed again comes out the same.
"""

from garfield.fedgan.baselines.centralized import CentralizedTraining
from garfield.fedgan.baselines.md_gan import MdGanDevice, MdGanServer, Messages
from garfield.fedgan.baselines.md_gan_training import MdGanTraining, Traffic

__all__ = [
    "CentralizedTraining",
    "MdGanDevice",
    "MdGanServer",
    "MdGanTraining",
    "Messages",
    "Traffic",
]
