"""Put limits on this process, tie its life to its parent's, and become another program.

    python -I -S launcher.py PARENT_PID CPU_SECONDS FILE_BYTES MEMORY_BYTES PROGRAM [ARGUMENT ...]

Started as a file of its own: `preexec_fn` would do the same between fork and exec, where a process with threads may
deadlock. Nothing but the standard library, and little of it: every import is paid for with each start of ffmpeg.
"""

import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1
NICENESS = 5
CPU_GRACE_S = 5  # SIGXCPU at the limit, SIGKILL so much later
NO_PROGRAM = 126  # exit status: the program could not be started
ORPHAN = 125  # exit status: the parent was gone before we were tied to it


def main(arguments: list[str]) -> int:
    parent, cpu_s, file_bytes, memory_bytes = (int(number) for number in arguments[:4])
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above, so its death will signal nothing
        return ORPHAN
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_CPU, cpu_s, grace=CPU_GRACE_S)
    limit(resource.RLIMIT_FSIZE, file_bytes)
    limit(resource.RLIMIT_AS, memory_bytes)
    os.nice(NICENESS)
    # Python ignores both; ignored signals stay ignored across exec, and SIGXFSZ ignored would make the limit a mere write error.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    program = arguments[4:]
    try:
        os.execv(program[0], program)  # noqa: S606  # that is the point
    except OSError:
        return NO_PROGRAM


def limit(what: int, value: int, *, grace: int = 0) -> None:
    """Lower a limit; one that is lower already stays."""
    hard = resource.getrlimit(what)[1]
    ceiling = value + grace if hard == resource.RLIM_INFINITY else min(value + grace, hard)
    resource.setrlimit(what, (min(value, ceiling), ceiling))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
