"""One pod on a node of the tests: its volumes as directories, its command as a process.

The process is real, the container is not: it sees this machine's files, but for /run, which is its
own and holds the pod's volumes. So volumes must be mounted below /run or /var/run. Its limit of
memory is held by a control group, where this machine allows one.
"""

import base64
import os
import signal
import subprocess
import time
from datetime import datetime, timezone

from garfield.core.files import write_text
from garfield.elastic.kubernetes.naming import core_path
from garfield.elastic.operator.quantities import amount
from garfield.split.server.limited_memory import Source
from garfield.split.server.memory_groups import device_group

GRACE_S = 30
# private mounts: a tmpfs at /run, and in it each volume; then the pod's own command
_ENTER = """
mount -t tmpfs none /run
while [ "$1" != -- ]; do mkdir -p "$2"; mount --bind "$1" "$2"; shift 2; done
shift
exec "$@"
"""


class PodProcess:
    """What the node knows of a pod that it runs."""

    def __init__(self, api, pod, directory, *, projection_s, environment):
        self._api, self.pod = api, pod
        self._directory, self._projection_s = directory, projection_s
        self.uid, self.name = pod["metadata"]["uid"], pod["metadata"]["name"]
        self._namespace = pod["metadata"]["namespace"]
        self._environment = environment
        self._process, self._killed_at, self._group = None, None, None
        self._starved = False
        self._began = now()
        self._projected = time.monotonic()
        self.log = directory / "log"

    def start(self):
        """Make volumes and begin."""
        self._directory.mkdir(parents=True, exist_ok=True)  # a start may be tried again
        spec = self.pod["spec"]
        (container,) = spec["containers"]
        for volume in spec.get("volumes", []):
            self._project(volume)
        mounts = []
        for mount in container.get("volumeMounts", []):
            source = self._source(next(v for v in spec["volumes"] if v["name"] == mount["name"]))
            mounts += [str(source), mount["mountPath"].replace("/var/run/", "/run/")]
        command = [*container.get("command", []), *container.get("args", [])]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "sh", "-ec", _ENTER, "sh",
                 *mounts, "--", *command],
                stdout=log, stderr=log, env=self._variables(container), start_new_session=True,
            )  # fmt: skip
        limit = container.get("resources", {}).get("limits", {}).get("memory")
        if limit is not None:
            self._group = memory_group(self.name, int(amount(limit)))
        if self._group is not None:
            self._group.take_in(self._process.pid)

    def follow(self):
        """End what is to be ended, and bring files up to date when it is time to."""
        deadline = self._killed_at
        if deadline is not None and time.monotonic() > deadline and self.exit_code is None:
            self._process.kill()
        if time.monotonic() - self._projected > self._projection_s:
            self._projected = time.monotonic()
            for volume in self.pod["spec"].get("volumes", []):
                if "configMap" in volume:
                    self._project(volume)

    def terminate(self):
        """Ask it to end, once; it is killed after its grace."""
        if self._killed_at is None and self._process is not None:
            grace_s = self.pod["spec"].get("terminationGracePeriodSeconds", GRACE_S)
            self._killed_at = time.monotonic() + grace_s
            if self.exit_code is None:
                self._process.send_signal(signal.SIGTERM)

    @property
    def exit_code(self):
        return None if self._process is None else self._process.poll()

    def status(self):
        """The pod's status, as a kubelet would tell it."""
        code = self.exit_code
        if code is not None and self._group is not None:
            self._starved = self._group.kills > 0
            self._group.close()
            self._group = None
        phase = "Running" if code is None else "Succeeded" if code == 0 else "Failed"
        (container,) = self.pod["spec"]["containers"]
        if code is None:
            state = {"running": {"startedAt": self._began}}
        else:
            shown = code if code >= 0 else 128 - code
            reason = "Completed" if code == 0 else "OOMKilled" if self._starved else "Error"
            ended = {"exitCode": shown, "reason": reason, "startedAt": self._began}
            state = {"terminated": ended}
        return {
            "phase": phase,
            "podIP": "127.0.0.1",
            "hostIP": "127.0.0.1",
            "startTime": self._began,
            "conditions": [
                {"type": "Ready", "status": "True" if code is None else "False"},
                {"type": "Initialized", "status": "True"},
            ],
            "containerStatuses": [
                {"name": container["name"], "image": container["image"], "imageID": "", "ready":
                 code is None, "restartCount": 0, "state": state}
            ],
        }  # fmt: skip

    def _source(self, volume):
        if "hostPath" in volume:
            return volume["hostPath"]["path"]
        return self._directory / volume["name"]

    def _project(self, volume):
        """Write a volume's files; each is replaced whole."""
        if "hostPath" in volume:
            return
        folder = self._source(volume)
        folder.mkdir(exist_ok=True)
        for name, text in self._files(volume).items():
            write_text(folder / name, text)

    def _files(self, volume):
        if "configMap" in volume:
            path = core_path("configmaps", self._namespace)
            return self._api.get(f"{path}/{volume['configMap']['name']}").get("data") or {}
        if "secret" in volume:
            path = core_path("secrets", self._namespace)
            data = self._api.get(f"{path}/{volume['secret']['secretName']}").get("data") or {}
            return {name: base64.b64decode(value).decode() for name, value in data.items()}
        assert "emptyDir" in volume, f"no volume of the tests: {volume}"
        return {}

    def _variables(self, container):
        told = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **self._environment}
        fields = {
            "metadata.name": self.name,
            "metadata.namespace": self._namespace,
            "status.podIP": "127.0.0.1",
        }
        for each in container.get("env", []):
            source = each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            told[each["name"]] = fields[source] if source else each.get("value", "")
        return told


def memory_group(name, most_bytes):
    """A control group that holds a pod to so much memory; None where none may be made."""
    for source in (Source.CGROUP_V1, Source.CGROUP_V2):
        try:
            return device_group(source, name, most_bytes)
        except OSError:
            continue
    return None


def now():
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
