"""Devices and servers that are started by hand, as on machines of their own, with certificates."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from garfield.transport.certs import make
from tests.fedgan_states import until

pytestmark = pytest.mark.slow

GARFIELD = [str(Path(sys.executable).parent / "garfield"), "fedgan"]
PATIENCE_S = 180
SMALL = [
    "--gan", "lsgan(width=0.125)", "--fraction", "1.0", "--local-steps", "2", "--batch", "8",
    "--judge", "none", "--evaluate-every", "0",
]  # fmt: skip
PATIENT = ["--lease-s", "20", "--round-timeout-s", "120"]  # a busy machine makes nobody late
HASTY = ["--lease-s", "1", "--round-timeout-s", "20"]


def pictures(folder, seed, kinds):
    rng = np.random.default_rng(seed)
    for kind, level in kinds.items():
        (folder / kind).mkdir(parents=True)
        for number in range(20):
            pixels = rng.integers(level, level + 60, (28, 28), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / kind / f"{number}.png")
    return f"folder:{folder}"


def free_address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture
def start(tmp_path):
    started = []

    def command(*words):
        process = subprocess.Popen(
            [*GARFIELD, *words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, start_new_session=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield command
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def certificates(tmp_path):
    roles = {"server-0": "server", "server-1": "server", "device-0": "device", "device-1": "device"}
    make(tmp_path / "tls", roles)
    return str(tmp_path / "tls")


@pytest.fixture
def reference(tmp_path):
    return pictures(tmp_path / "reference", 0, {"dark": 0, "light": 190})


@pytest.fixture
def own(tmp_path):
    """One has both classes, the other only the second, which must not become its first."""
    return [
        pictures(tmp_path / "one", 1, {"dark": 0, "light": 190}),
        pictures(tmp_path / "two", 2, {"light": 190}),
    ]


def events(run):
    path = run / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def rounds(run):
    return [event for event in events(run) if event["event"] == "round"]


def joined(start, own, servers, certificates):
    return [
        start("device", "--server", ",".join(servers), "--name", f"device-{k}", "--data", data,
              "--certificates", certificates, "--threads", "1")
        for k, data in enumerate(own)
    ]  # fmt: skip


@pytest.mark.heavy
def test_devices_join_by_hand_and_learn_with_their_own_images(
    start, tmp_path, certificates, reference, own
):
    at = free_address()
    devices = joined(start, own, [at], certificates)  # before there is a server
    server = start("train", *SMALL, *PATIENT, "--devices", "2", "--data", reference, "--listen", at,
                   "--certificates", certificates, "--rounds", "3", "--out", "run")  # fmt: skip
    out, _ = server.communicate(timeout=PATIENCE_S)
    assert server.returncode == 0, out
    told = [device.communicate(timeout=PATIENCE_S)[0] for device in devices]
    assert [device.returncode for device in devices] == [0, 0], told
    assert all("is done: all rounds are over" in each for each in told)
    assert "with 18 images" in told[1]  # every tenth is held out
    began = events(tmp_path / "run")[0]
    assert began["per_class"] == [18, 36]  # of the devices, not of the reference
    assert [event["took_part"] for event in rounds(tmp_path / "run")] == [[0, 1]] * 3
    assert (tmp_path / "run" / "weights" / "generator.safetensors").exists()


@pytest.mark.heavy
def test_devices_without_labels_join_by_hand(start, tmp_path, certificates, reference, own):
    """Their folders have other names than the server's, and nobody looks at them."""
    at = free_address()
    (tmp_path / "one" / "dark").rename(tmp_path / "one" / "whatever")
    devices = joined(start, own, [at], certificates)
    server = start("train", *SMALL, *PATIENT, "--devices", "2", "--data", reference, "--listen", at,
                   "--certificates", certificates, "--rounds", "2", "--clusters", "2",
                   "--out", "run")  # fmt: skip
    out, _ = server.communicate(timeout=PATIENCE_S)
    assert server.returncode == 0, out
    told = [device.communicate(timeout=PATIENCE_S)[0] for device in devices]
    assert [device.returncode for device in devices] == [0, 0], told
    assert all("fitted to sums of their features that devices send" in each for each in told)
    assert sorted(events(tmp_path / "run")[0]["per_class"]) == [18, 36]
    clusters = json.loads((tmp_path / "run" / "clusters.json").read_text())
    dark, light = sorted(np.mean(centroid) for centroid in clusters["centroids"])
    assert dark < -0.7 < 0.5 < light


@pytest.mark.heavy
def test_another_server_takes_over_when_the_first_is_killed(
    start, tmp_path, certificates, reference, own
):
    first, second = free_address(), free_address()
    server = start("train", *SMALL, *HASTY, "--devices", "2", "--data", reference, "--listen",
                   first, "--certificates", certificates, "--rounds", "99999",
                   "--out", "run")  # fmt: skip
    joined(start, own, [first, second], certificates)
    run = tmp_path / "run"
    until(lambda: rounds(run))
    backup = start("serve", "--state", str(run / "state.sqlite"), "--run", "run", "--listen",
                   second, "--certificates", certificates)  # fmt: skip
    assert "waits to lead run" in backup.stdout.readline()
    held = len(rounds(run))
    until(lambda: len(rounds(run)) > held)
    [primary] = [int(pid) for pid in children_named(server.pid, "server-0")]
    os.kill(primary, signal.SIGKILL)
    until(lambda: rounds(run)[-1]["server"] == "server-1")
    assert [event["round"] for event in rounds(run)] == list(range(len(rounds(run))))
    assert rounds(run)[-1]["took_part"] == [0, 1]
    assert server.poll() is None  # it follows who leads, wherever that is
    backup.send_signal(signal.SIGTERM)
    assert backup.wait(PATIENCE_S) == 0


def children_named(pid, name):
    """Descendants of a process whose command line holds that name."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        command = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        found += [child] if name in command else []
        found += children_named(child, name)
    return found


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--name", "server-0"], "A device is named like device-3"),
        (["--server", "nowhere"], "--server needs an address"),
        (["--give-up-s", "0.5"], "reached no server in 0.5 s"),
    ],
)
def test_a_device_that_cannot_take_part_says_why(words, told, start, own):
    given = {"--server": free_address(), "--name": "device-0", "--data": own[0]}
    given |= dict(zip(words[::2], words[1::2], strict=True))
    device = start("device", *(word for pair in given.items() for word in pair))
    out, _ = device.communicate(timeout=PATIENCE_S)
    assert device.returncode in (1, 2)
    assert told in out
    assert "Traceback" not in out
