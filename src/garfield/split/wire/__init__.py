"""What a client and a server of a split training say to each other: JSON, and raw tensors.

A request is one JSON object, small and bounded (`requests`); whose rights it is made with stands
beside it, in the HTTP header `ACCESS_HEADER`, so that bodies may be logged. The answer to an
extraction is a stream of rows (`features`), and who refuses says why (`refusals`). Pure: no
sockets, no clock.
"""

from garfield.split.wire.features import (
    FeatureHeader,
    FeatureReader,
    Features,
    decode_features,
    encode_features,
    end_frame,
    error_frame,
    row_frames,
)
from garfield.split.wire.refusals import MAX_FRAME, Refusal, as_body, as_refusal, from_body
from garfield.split.wire.requests import (
    MAX_REQUEST,
    ExtractRequest,
    Model,
    ProfileRequest,
    TrainRequest,
    decode_request,
    encode_request,
)

__all__ = [
    "ACCESS_HEADER",
    "MAX_FRAME",
    "MAX_REQUEST",
    "ExtractRequest",
    "FeatureHeader",
    "FeatureReader",
    "Features",
    "Model",
    "ProfileRequest",
    "Refusal",
    "TrainRequest",
    "as_body",
    "as_refusal",
    "decode_features",
    "decode_request",
    "encode_features",
    "encode_request",
    "end_frame",
    "error_frame",
    "from_body",
    "row_frames",
]

ACCESS_HEADER = "X-Garfield-Access"
