"""Process groups of torch that end when they are destroyed."""

from __future__ import annotations

from typing import Any


def init_process_group(backend: str, **how: Any) -> None:
    """Form torch's default group, after importing what would hold on to it for good.

    `torch._dynamo`, which an optimizer imports at its first step, has functions whose default
    argument is the group that there is at that moment. Such a group outlives
    `destroy_process_group`, and so do its threads: one that lets go of a tensor while Python ends
    aborts the process (pytorch/pytorch issue 190489; here one of 40 trainings of two ranks did, on
    a busy machine). Imported before there is a group, they hold nothing.
    """
    import torch._dynamo
    import torch.distributed

    torch.distributed.init_process_group(backend, **how)
