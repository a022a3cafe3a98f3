"""Feature extraction inside Swift's proxy, as the thesis's first implementation (section 5.5).

A POST to an object with the header `X-Garfield-Split` and an extraction request as its body is
answered with features. The proxy reads the object with the requester's own rights, by a
sub-request, and runs the layers where it stands. Swift's processes are green-threaded: while
layers run, that process answers nobody else, which is why the server of `split.server` runs
beside the proxy. Only for comparing the two (Table 5.1, benchmarks/split_in_proxy.py).

    EmbeddedSwift(directory, middleware="garfield.split.embedded.in_proxy:filter_factory")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from garfield.core.errors import GarfieldError, RequestRefused
from garfield.split.wire import (
    MAX_REQUEST,
    ExtractRequest,
    as_body,
    decode_request,
    encode_features,
)

HEADER = "X-Garfield-Split"
_ENVIRON = "HTTP_X_GARFIELD_SPLIT"
THREADS = 1


def filter_factory(global_conf: Mapping[str, str], **local_conf: str) -> Callable[[Any], Any]:
    """A paste filter factory."""
    return InProxy


class InProxy:
    """A WSGI filter that answers extraction requests, and hands on all others."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "POST" or _ENVIRON not in environ:
            return self._app(environ, start_response)  # type: ignore[no-any-return]
        try:
            request = _request(environ)
            status, data = self._object(environ)
            if status != 200:
                start_response(f"{status} From the store", [("Content-Length", "0")])
                return [b""]
            pieces = list(_features(request, data))
        except RequestRefused as refused:
            body = as_body(refused)
            start_response(f"{refused.status} Refused", [("Content-Length", str(len(body)))])
            return [body]
        except GarfieldError as problem:
            text = str(problem).encode()
            start_response("422 Refused", [("Content-Length", str(len(text)))])
            return [text]
        length = str(sum(map(len, pieces)))
        start_response("200 OK", [("Content-Length", length)])
        return pieces

    def _object(self, environ: Mapping[str, Any]) -> tuple[int, bytes]:
        """The object that the request is made to, as its requester may read it."""
        from swift.common.wsgi import make_subrequest

        asked = make_subrequest(dict(environ), method="GET", swift_source="garfield")
        reply = asked.get_response(self._app)
        return int(reply.status_int), bytes(reply.body)


def _request(environ: Mapping[str, Any]) -> ExtractRequest:
    length = int(environ.get("CONTENT_LENGTH") or 0)
    if length > MAX_REQUEST:
        raise RequestRefused(f"A request has at most {MAX_REQUEST} bytes.", "too-large", 413)
    return decode_request(environ["wsgi.input"].read(length))


def _features(request: ExtractRequest, data: bytes) -> Iterable[bytes]:
    """As `split.server.extraction` computes them, in this process."""
    import numpy as np
    import torch

    from garfield.split.objects import open_object
    from garfield.split.server.extraction import made_prefix, run_prefix
    from garfield.split.transforms import Transforms

    torch.set_num_threads(THREADS)
    stored = open_object(request.object_name, data, request.sha256)
    indices = range(stored.count) if request.samples is None else request.samples
    transforms = Transforms.from_json(request.transforms)
    prefix = made_prefix(request, request.split, None)
    parts = []
    for lo in range(0, len(indices), request.batch):
        chosen = indices[lo : lo + request.batch]
        ids = [request.first_sample_id + index for index in chosen]
        images = transforms.apply(stored.images(chosen), ids, request.seed, request.epoch)
        parts.append(run_prefix(prefix, images, request.dtype))
    labels = [int(stored.labels[index]) for index in indices]
    return encode_features(np.concatenate(parts), labels, {"cos_batch": request.batch})
