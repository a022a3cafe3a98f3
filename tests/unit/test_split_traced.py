"""The user's own module: cut at any single-tensor point, as JSON that a server checks."""

import copy
import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from garfield.core.errors import ConfigError, InputError
from garfield.split.models.cutting import Frozen
from garfield.split.models.graph import Limits, from_json, parse, to_json
from garfield.split.models.operators import OPERATORS
from garfield.split.models.traced import trace
from garfield.split.models.weights import load_weights, pack_weights, weights_hash


class Block(nn.Module):
    """A residual block that writes into its input's sum."""

    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        made = self.norm(self.conv(x))
        made += x
        return self.act(made)


class Mine(nn.Module):
    """Functions, methods and modules, as people mix them."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2)
        self.blocks = nn.Sequential(Block(8), Block(8))
        self.side = nn.Conv2d(8, 4, 1)
        self.drop = nn.Dropout(0.5)
        self.hidden = nn.Linear(12 * 9, 16)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        x = functional.relu(self.stem(x), inplace=True)
        x = functional.max_pool2d(self.blocks(x), 2)
        x = torch.cat([x, self.side(x) * 0.5], dim=1)
        x = functional.adaptive_avg_pool2d(x, 3)
        x = self.drop(x.view(x.size(0), -1))
        x = self.drop(torch.sigmoid(self.hidden(x)).mul(2.0))
        return self.head(x)


SHAPE = (3, 18, 18)


def mine(seed=0):
    torch.manual_seed(seed)
    module = Mine()
    with torch.no_grad():  # running statistics that differ from fresh ones
        module.train()(torch.randn(8, *SHAPE))
    return module.eval()


def images(count=4):
    return torch.randn(count, *SHAPE, generator=torch.Generator().manual_seed(1))


def test_every_cut_gives_the_bits_of_the_users_module():
    module = mine()
    cut, batch = trace(module, SHAPE), images()
    kept = batch.clone()
    with torch.no_grad():
        whole = module(batch)
        assert torch.equal(cut.module.eval()(batch), whole)
        for split in range(cut.max_split() + 1):
            features = cut.prefix(split)(batch)
            sent = features.clone()
            assert torch.equal(cut.tail(split).eval()(features), whole), split
            assert torch.equal(features, sent), split
    assert torch.equal(batch, kept)


def test_cuts_are_where_a_single_tensor_goes_on():
    cut = trace(mine(), SHAPE)
    assert cut.layers[:4] == ("stem", "relu", "add", "blocks.0.act")  # none beside a shortcut
    assert "side" not in cut.layers
    assert "size" not in cut.layers
    assert cut.layers[-1] == "head"
    assert cut.freeze == len(cut.layers) - 2
    assert [size.bytes for size in cut.sizes()][:2] == [4 * 8 * 8 * 8] * 2


def test_keys_and_parameters_are_the_users_own():
    module = mine()
    cut = trace(module, SHAPE)
    assert set(cut.module.state_dict()) == set(module.state_dict())
    tail = cut.tail(0)
    assert tail.get_parameter("head.weight") is module.head.weight


def test_frozen_layers_stay_frozen_though_a_dropout_serves_both_sides():
    cut = trace(mine(), SHAPE)
    freeze = cut.layers.index("hidden") - 1
    tail = cut.tail(2, freeze=freeze).train()
    features = cut.prefix(2)(images())
    with torch.no_grad():
        assert torch.equal(tail.frozen(features), tail.frozen(features))  # no dropout
        assert not torch.equal(tail.trained(tail.frozen(features)), tail(features))  # dropout
    tail(features).sum().backward()
    assert tail.get_parameter("head.weight").grad is not None
    assert all(each.grad is None for each in tail.frozen.parameters())


def test_tracing_leaves_the_module_as_it_was():
    module = mine().train()
    before = copy.deepcopy(module.state_dict())
    trace(module, SHAPE)
    assert module.training
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())


def test_weights_used_on_both_sides_of_freezing_are_refused():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.b = nn.Linear(4, 4)

        def forward(self, x):
            return self.a(self.b(self.a(x)))

    cut = trace(Tied(), (4,))
    with pytest.raises(ConfigError, match=r"a\.weight is used by frozen"):
        cut.tail(0, freeze=0)


def test_modules_that_cannot_be_followed_or_cut_are_refused():
    class Branching(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    class TwoInputs(nn.Module):
        def forward(self, x, y):
            return x + y

    class Failing(nn.Module):
        def forward(self, x):
            raise KeyError("mine")

    for module in (Branching(), TwoInputs(), Failing()):
        with pytest.raises(InputError):
            trace(module, (4,))
    with pytest.raises(InputError, match="cannot be cut"):
        trace(nn.Identity(), ())


def test_the_graph_of_every_prefix_gives_the_same_bits():
    cut, batch = trace(mine(), SHAPE), images()
    for split in range(1, cut.max_split() + 1):
        prefix = cut.prefix(split)
        server = from_json(to_json(prefix))
        data = pack_weights(prefix)
        load_weights(server, data, weights_hash(data))
        assert isinstance(server, Frozen)
        kept = batch.clone()
        assert torch.equal(server(batch), prefix(batch)), split
        assert torch.equal(batch, kept)
        assert to_json(server) == to_json(prefix)


def test_what_was_written_into_is_read_as_it_became():
    class Aliased(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 1)
            self.act = nn.ReLU(inplace=True)

        def forward(self, x):
            made = self.conv(x)
            rectified = self.act(made)
            return made * 2 + rectified  # made has been rectified too

    module = Aliased().eval()
    cut = trace(module, (3, 4, 4), freeze=-1)
    server = from_json(to_json(cut.piece(0, len(cut.layers))))
    load_weights(server, pack_weights(module))
    batch = torch.randn(2, 3, 4, 4)
    with torch.no_grad():
        assert torch.equal(server(batch), module(batch))


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Conv2d(3, 4, 3, padding="same"), nn.Flatten(), nn.Linear(4, 1)),
        nn.Sequential(nn.Conv2d(3, 4, 3, padding_mode="reflect", padding=1), nn.ReLU()),
        nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False), nn.ReLU()),
        nn.Sequential(nn.ConvTranspose2d(3, 3, 2), nn.ReLU()),
        nn.Sequential(nn.PReLU(), nn.ReLU()),
    ],
)
def test_operators_that_no_graph_holds_are_refused_by_name(module):
    piece = torch.fx.symbolic_trace(module)
    with pytest.raises(InputError):
        to_json(piece, (3, 8, 8))


def test_a_module_that_was_not_traced_has_no_graph():
    with pytest.raises(InputError, match="not traced"):
        to_json(nn.ReLU())


def described(**changes):
    """A sound graph, changed."""
    conv = {
        "op": "conv2d", "name": "conv", "from": [0], "in_channels": 3, "out_channels": 4,
        "kernel_size": [3, 3], "stride": [1, 1], "padding": [0, 0], "dilation": [1, 1],
        "groups": 1, "bias": True,
    }  # fmt: skip
    graph = {
        "format": "garfield-graph", "version": 1, "input": [3, 8, 8], "output": 2,
        "nodes": [conv, {"op": "relu", "from": [1]}],
    }  # fmt: skip
    node = {key[5:]: value for key, value in changes.items() if key.startswith("node_")}
    conv.update(node)
    graph.update({key: value for key, value in changes.items() if not key.startswith("node_")})
    return json.dumps(graph)


def test_a_sound_graph_is_taken():
    assert from_json(described())(torch.empty(2, 3, 8, 8, device="meta")).shape == (2, 4, 6, 6)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "JSON object"),
        (described(format="other"), "not a garfield-graph"),
        (described(version=2), "not a garfield-graph"),
        (described(more=1), "JSON object of"),
        (described(input=[]), "input"),
        (described(input=[3, 0, 8]), "input"),
        (described(input=[1 << 20, 1 << 20, 8]), "elements"),
        (described(output=3), "output"),
        (described(output=True), "output"),
        (described(nodes={}), "list of at most"),
        (described(nodes=[5]), "Node 1"),
        (described(nodes=[{"op": "relu", "from": [0]}] * 5000), "at most 4096"),
        (described(node_op="eval"), "'eval', which is not allowed"),
        (described(node_op=["conv2d"]), "not allowed"),
        (described(node_inplace=True), "inplace"),
        (described(node_name="../x"), "proper name"),
        (described(node_name=""), "proper name"),
        (described(node_name="forward"), "cannot be built"),
        (described(node_name="_modules"), "cannot be built"),
        (described(node_name=5), "proper name"),
        (described(node_from=[1]), "values of those before"),
        (described(node_from=[-1]), "values of those before"),
        (described(node_from=[]), "values of those before"),
        (described(node_from=[0, 0]), "values of those before"),
        (described(node_in_channels=4), "Node 1 of the graph cannot run"),
        (described(node_out_channels=0), "out_channels"),
        (described(node_out_channels=1 << 40), "out_channels"),
        (described(node_out_channels=True), "out_channels"),
        (described(node_out_channels=1e3), "out_channels"),
        (described(node_kernel_size=[3]), "kernel_size"),
        (described(node_kernel_size="33"), "kernel_size"),
        (described(node_stride=[0, 1]), "stride"),
        (described(node_groups=3), "cannot be built"),
        (described(node_padding=[1 << 20, 1 << 20]), "elements"),
        (described(node_out_channels=1 << 20, node_kernel_size=[512, 512]), "bytes of weights"),
    ],
)
def test_graphs_that_are_not_sound_are_refused(text, said):
    with pytest.raises(InputError, match=said):
        from_json(text)


def chain(*nodes, shape=(3, 8, 8)):
    graph = {
        "format": "garfield-graph", "version": 1, "input": list(shape), "output": len(nodes),
        "nodes": [
            {"from": [at], **node} for at, node in enumerate(nodes)
        ],
    }  # fmt: skip
    return json.dumps(graph)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (chain(*[{"op": "cat", "from": [at, at], "dim": 1} for at in range(60)]), "elements"),
        (chain(*[{"op": "relu"}] * 4000, shape=(512, 512, 2)), "elements up to here"),
        (chain({"op": "cat", "from": [0, 0], "dim": 0}), "within 1"),
        (chain({"op": "mean", "dim": [0], "keepdim": False}), "within 1"),
        (chain({"op": "softmax", "dim": 0}), "within 1"),
        (chain({"op": "softmax", "dim": 6}), "cannot run"),
        (chain({"op": "permute", "dims": [1, 1, 2]}), "cannot run"),
        (chain({"op": "reshape", "shape": [-1, -1]}), "cannot run"),
        (chain({"op": "add", "from": [0], "other": None}), "two values, or one and a number"),
        (chain({"op": "add", "from": [0, 0], "other": 1.0}), "two values, or one and a number"),
        (chain({"op": "mul", "from": [0], "other": 1e99}), "finite"),
        (chain({"op": "gelu", "approximate": "exec"}), "one of"),
        (
            chain(
                {"op": "adaptive_avg_pool2d", "output_size": [1 << 20, 1 << 20]},
            ),
            "elements",
        ),
        (
            chain(
                *[
                    {
                        "op": "conv2d", "name": f"c{at}", "in_channels": 64, "out_channels": 64,
                        "kernel_size": [255, 255], "stride": [1, 1], "padding": [127, 127],
                        "dilation": [1, 1], "groups": 1, "bias": False,
                    }
                    for at in range(3)
                ],
                shape=(64, 64, 64),
            ),
            "multiplications",
        ),
    ],
)  # fmt: skip
def test_graphs_that_would_take_too_much_or_mix_samples_are_refused(text, said):
    with pytest.raises(InputError, match=said):
        from_json(text)


def test_names_may_not_lie_in_one_another():
    def linear(name):
        return {"op": "linear", "name": name, "in_features": 8, "out_features": 8, "bias": False}

    with pytest.raises(InputError, match="called a, or one lies"):
        from_json(chain(linear("a"), linear("a.b")))
    with pytest.raises(InputError, match="called a"):
        from_json(chain(linear("a"), linear("a")))
    assert set(from_json(chain(linear("a.c"), linear("a.b"))).state_dict()) == {
        "a.c.weight",
        "a.b.weight",
    }


def test_limits_may_be_set():
    with pytest.raises(InputError, match="characters"):
        from_json(described(), Limits(text_bytes=10))
    with pytest.raises(InputError, match="multiplications"):
        from_json(described(), Limits(work=100))


def test_nothing_in_a_batch_depends_on_the_rest_of_it():
    cut, batch = trace(mine(), SHAPE), images(5)
    server = from_json(to_json(cut.prefix(cut.max_split())))
    load_weights(server, pack_weights(cut.prefix(cut.max_split())))
    torch.testing.assert_close(server(batch)[2:4], server(batch[2:4]))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
nodes = st.fixed_dictionaries(
    {"op": st.sampled_from([*OPERATORS]), "from": st.lists(st.integers(-1, 4), max_size=3)}
).flatmap(
    lambda node: st.fixed_dictionaries(
        {
            **{key: st.just(value) for key, value in node.items()},
            **{
                name: st.sampled_from([1, 2, 3, 8, 0, -1, 2**20, True, 0.5, None, "none"])
                | st.lists(st.integers(-1, 9), max_size=4)
                for name in OPERATORS[node["op"]].fields
            },
            **(
                {"name": st.sampled_from(["a", "b", "c.d", "forward"])}
                if OPERATORS[node["op"]].module is not None
                else {}
            ),
        }
    )
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(json_values)
def test_any_json_is_a_graph_or_refused(value):
    with pytest.raises(InputError):
        from_json(json.dumps(value))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(nodes, max_size=4), st.integers(0, 4))
def test_any_nodes_are_a_graph_that_runs_or_are_refused(found, output):
    text = json.dumps(
        {
            "format": "garfield-graph", "version": 1, "input": [3, 8, 8], "output": output,
            "nodes": found,
        }
    )  # fmt: skip
    try:
        server = from_json(text)
    except InputError:
        return
    assert parse(text).output == output
    server.inner.to_empty(device="cpu")
    with torch.no_grad():
        for each in server.inner.state_dict().values():
            each.zero_()
        assert len(server.inner(torch.zeros(3, 3, 8, 8))) == 3
