"""A program that becomes another one, which the kernel kills when the process that began it ends.

    [python, ends_with_parent.py, the parent's pid, the program, its words ...]

It stands between the two because `Popen(preexec_fn=...)` must not be used beside gRPC: that forks
for real, and the child of a process that was just talking is ended by gRPC's own handlers before
it becomes anything, silently (79 of 2,160 by SIGABRT, one by SIGSEGV, on two cores). It is run
by its path and imports nothing but what it needs: 40 ms.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended before that
        sys.exit(1)
    # a shell may have started us with Ctrl-C ignored, which is inherited
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
