"""A supervisor in a process of its own, for tests to kill: prints pids, and waits.

python -m tests.supervise [DIRECTORY]: with a directory, its processes outlive it.
"""

import json
import os
import signal
import sys
from pathlib import Path

from garfield.runs.supervisor import Supervisor
from tests import supervised_targets

if __name__ == "__main__":
    outlive_in = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    supervisor = Supervisor(outlive_in=outlive_in)
    supervisor.start("worker-0", supervised_targets.echo, "from the first")
    for name, fails in (("worker-1", True), ("worker-2", False)):
        supervisor.start(name, supervised_targets.report_when_alone, os.getpid(), fails)
    supervisor.started(60)
    sys.stdout.write(json.dumps(supervisor.pids) + "\n")
    sys.stdout.flush()
    signal.pause()
