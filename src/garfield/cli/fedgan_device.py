"""`garfield fedgan device`: take part in a training with the images of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from garfield.cli.exit_codes import DONE
from garfield.cli.shared import TorchThreads, WholeNumber, names, print_line


def device(
    *,
    server: Annotated[
        list[str],
        Parameter(help="HOST:PORT of the server; of several, with commas, server-0 first."),
    ],
    name: Annotated[str, Parameter(help="Which device this is, such as device-3.")],
    data: Annotated[
        str, Parameter(help="Its own images: folder:DIR, with a folder a class, or a data set.")
    ],
    certificates: Annotated[
        Path | None,
        Parameter(metavar="DIR", help="Its certificate, by garfield certs. (none, on loopback)"),
    ] = None,
    image_side: Annotated[
        WholeNumber | None, Parameter(help="Scale and crop images to this side. (as they are)")
    ] = None,
    data_dir: Annotated[str | None, Parameter(help="Where data sets lie.")] = None,
    memory_mb: Annotated[
        float, Parameter(help="Memory that it offers.", validator=validators.Number(gt=0))
    ] = 1024.0,
    compute: Annotated[
        float,
        Parameter(
            help="How fast it computes; 1 for the full load.", validator=validators.Number(gt=0)
        ),
    ] = 1.0,
    noise_epsilon: Annotated[
        float | None,
        Parameter(
            help="Noise on the counts that it declares, differentially private by this epsilon "
            "each time that it is started. (none)",
            validator=validators.Number(gt=0),
        ),
    ] = None,
    dp_epsilon: Annotated[
        float | None,
        Parameter(
            help="Train the discriminator by DP-SGD, and stop when so much is spent. (no privacy)",
            validator=validators.Number(gt=0),
        ),
    ] = None,
    dp_delta: Annotated[float, Parameter(help="Its delta.")] = 1e-5,
    dp_clip: Annotated[float, Parameter(help="Norm that gradients are clipped to.")] = 1.0,
    dp_noise: Annotated[float, Parameter(help="Noise on their sum, in clips.")] = 1.0,
    account: Annotated[
        Path | None,
        Parameter(metavar="FILE", help="Where it keeps what it has spent; needed with a budget."),
    ] = None,
    secure_aggregation: Annotated[
        bool,
        Parameter(
            help="Take part only if networks leave it behind masks, and the server sees their sum.",
            show_default=False,
        ),
    ] = False,
    give_up_s: Annotated[
        float,
        Parameter(
            help="How long to wait while no server can be reached.",
            validator=validators.Number(gt=0),
        ),
    ] = 600.0,
    threads: TorchThreads = None,
) -> int:
    """Take part in a federated training with images that stay on this machine.

    The device opens the connection, so it may stand behind NAT. What it sends are samples per
    class, memory, compute, and the networks that it was asked to train. In a training without
    labels it may be asked for sums of features first, of five images at least; it says so.
    """
    from garfield.fedgan.nodes.names import device_number
    from garfield.transport.addresses import check_address

    number, servers = device_number(name), names(server)
    for address in servers:
        check_address("--server", address)
    import torch

    from garfield.fedgan.image_data import dataset_for
    from garfield.fedgan.nodes.apart import join_as_device, own_images
    from garfield.fedgan.nodes.device_terms import DeviceTerms
    from garfield.fedgan.settings import FedganSettings, PrivacySettings

    if threads is not None:
        torch.set_num_threads(threads)
    wanted = FedganSettings(data=data, data_dir=data_dir, image_side=image_side)
    terms = DeviceTerms(
        memory_mb, compute, noise_epsilon,
        PrivacySettings(dp_epsilon, dp_delta, dp_clip, dp_noise), account, secure_aggregation,
    )  # fmt: skip
    why = join_as_device(
        name, number, servers, lambda about: own_images(dataset_for(wanted), about), terms,
        certificates=certificates, give_up_s=give_up_s, tell=print_line,
    )  # fmt: skip
    print_line(f"{name} is done: {why}.")
    return DONE
