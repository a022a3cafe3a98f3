"""Weights and graphs of a model, as a tenant may have written them."""

from __future__ import annotations

import json

from hypothesis import strategies as st
from torch import nn

from garfield.core.errors import InputError, ObjectDamaged
from garfield.split.models.cutting import Piece, layer
from garfield.split.models.graph import from_json
from garfield.split.models.operators import OPERATORS
from garfield.split.models.weights import pack_weights, read_weights
from tests.fuzz.target import fuzzed

WEIGHTS = pack_weights(Piece([layer("a", nn.Linear(2, 2)), layer("b", nn.BatchNorm2d(2))]))
GRAPH = {
    "format": "garfield-graph", "version": 1, "input": [3, 4, 4], "output": 2,
    "nodes": [
        {
            "op": "linear", "name": "a", "from": [0],
            "in_features": 4, "out_features": 2, "bias": True,
        },
        {"op": "relu", "from": [1]},
    ],
}  # fmt: skip

_numbers = st.sampled_from([0, 1, 2, 3, 4, -1, 1 << 20, 1 << 70, True, None, 0.5, "none", "a"])
_values = _numbers | st.lists(_numbers, max_size=4)
_nodes = st.sampled_from([*OPERATORS]).flatmap(
    lambda op: st.fixed_dictionaries(
        {
            "op": st.just(op),
            "from": st.lists(st.integers(-1, 4), max_size=3),
            **dict.fromkeys(OPERATORS[op].fields, _values),
        },
        optional={"name": st.sampled_from(["a", "a.b", "forward", "", 5]), "more": _values},
    )
)
_graphs = st.lists(_nodes, max_size=4).map(
    lambda nodes: json.dumps({**GRAPH, "nodes": nodes, "output": len(nodes)}).encode()
)


@fuzzed("split weights", begin_from=[WEIGHTS])
def split_weights(data: bytes) -> None:
    """They are refused, or every tensor lies within what arrived."""
    try:
        found = read_weights(data)
    except ObjectDamaged as refused:
        assert len(str(refused)) < 1000
        return
    assert sum(each.numel() * each.element_size() for each in found.values()) <= len(data)


@fuzzed("split graph", begin_from=[json.dumps(GRAPH).encode()], inputs=_graphs | st.binary())
def split_graph(data: bytes) -> None:
    """One is refused, or it can be built without memory."""
    try:
        made = from_json(data.decode("utf-8", "replace"))
    except InputError as refused:
        assert len(str(refused)) < 2000
        return
    assert all(each.is_meta for each in made.parameters())
