"""Make `.venv` and the database ready for a command, doing only what is missing: `python transcriber/set_up.py runtime` (or `dev`).

Runs under any Python from 3.11 on, before anything is installed, so it uses the standard library alone. The Makefile calls it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOCKS = {"runtime": "requirements.lock", "dev": "requirements-dev.lock"}
OLDEST = (3, 11)


class SetUpFailed(Exception):
    """What is missing on this machine, in a sentence, and how to get it."""


def main(kind: str) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    checkout = os.open(ROOT, os.O_RDONLY)
    try:
        fcntl.flock(checkout, fcntl.LOCK_EX)  # two commands at once: the second one finds everything there
        install(kind)
        migrate()
    except SetUpFailed as error:
        say(f"Set-up: {error}")
        return 1
    except KeyboardInterrupt:
        say("Set-up stopped; the next run goes on from here.")
        return 130
    return 0


# ---- packages -----------------------------------------------------------------------------------------------------------------------


def install(kind: str) -> None:
    """Install what the lock file pins, hashes checked. The development lock holds all of the runtime's."""
    stamps = {name: _sum(*files) for name, files in {"runtime": ["requirements.lock"], "dev": list(LOCKS.values())}.items()}
    enough = ("runtime", "dev") if kind == "runtime" else ("dev",)
    if any(_read(VENV / f".{name}") == stamps[name] for name in enough) and _works(PYTHON, "import django"):
        return
    if not _works(PYTHON, "import pip"):
        make_venv()
    for name in stamps:
        (VENV / f".{name}").unlink(missing_ok=True)
    pinned = re.findall(r"^[\w.-]+(?:\[[\w,-]+\])?==", (ROOT / LOCKS[kind]).read_text(), re.MULTILINE)
    say(f"Installing {len(pinned)} packages into .venv (the first time, some minutes of downloads)")
    _pip(LOCKS[kind], len(pinned))
    (VENV / f".{kind}").write_text(stamps[kind])


def make_venv() -> None:
    version = ".".join(map(str, sys.version_info[:2]))
    say(f"Making .venv with Python {version}")
    made = _run([sys.executable, "-m", "venv", "--clear", str(VENV)])
    if made.returncode or not _works(PYTHON, "import pip"):
        if not _works(Path(sys.executable), "import venv; from ensurepip import bootstrap"):
            raise SetUpFailed(f"this Python {version} can't make virtual environments; install its venv package (Debian: python3-venv).")
        raise SetUpFailed(f"making .venv failed: {_last_line(made.stdout)}")


def _pip(lock: str, total: int) -> None:
    """Run pip; on a terminal its chatter becomes one line that counts the packages."""
    command = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--require-hashes", "-r", lock]
    # Whatever pip is asked to do besides belongs to other environments than this one.
    env = {name: value for name, value in os.environ.items() if name not in ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PYTHONPATH")}
    seen, show = 0, sys.stderr.isatty()
    kept: list[str] = []
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**env, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as pip:
        assert pip.stdout is not None
        try:
            for line in pip.stdout:
                kept = [*kept[-200:], line]
                found = re.match(r"\s*(?:Collecting|Requirement already satisfied:) ([\w.-]+)", line)
                if show and found:
                    seen += 1
                    sys.stderr.write(f"\r\033[K  {min(seen, total)}/{total} {found[1]}")
                elif show and line.startswith("Installing collected"):
                    sys.stderr.write(f"\r\033[K  {total}/{total} fetched, unpacking")
                sys.stderr.flush()
        except KeyboardInterrupt:
            pip.terminate()
            raise
    if show:
        sys.stderr.write("\r\033[K")
    if pip.returncode:
        sys.stderr.writelines(line for line in kept if line.startswith(("ERROR", "  ERROR", "WARNING: Retrying")))
        raise SetUpFailed("pip could not install the packages; what it said stands above. Is there a network, and space on the disk?")


# ---- database -----------------------------------------------------------------------------------------------------------------------


def migrate() -> None:
    """Bring the SQLite database of the data folder up to date, so that every command works at once. A PostgreSQL is left to `serve`."""
    if os.environ.get("DATABASE_URL"):
        return
    data = Path(os.environ.get("TRANSCRIBER_DATA") or ROOT / "var")
    stamp, current = (
        data / ".migrated",
        _sum("requirements.lock", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("*/migrations/*.py"))),
    )
    if (data / "db.sqlite3").exists() and _read(stamp) == current:
        return
    say("Preparing the database")
    done = _run([str(PYTHON), "manage.py", "ensure_database"])
    if done.returncode:
        raise SetUpFailed(f"the database could not be prepared: {_last_line(done.stdout)}")
    stamp.write_text(current)


# ---- small things -------------------------------------------------------------------------------------------------------------------


def say(line: str) -> None:
    sys.stderr.write(line + "\n")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)


def _works(python: Path, program: str) -> bool:
    """Whether this interpreter is there, new enough, and runs a program."""
    try:
        return _run([str(python), "-c", f"import sys; assert sys.version_info >= {OLDEST}; {program}"]).returncode == 0
    except OSError:
        return False


def _sum(*names: str) -> str:
    digest = hashlib.sha256()
    for name in names:
        digest.update(name.encode() + b"\0" + (ROOT / name).read_bytes())
    return digest.hexdigest()


def _read(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


def _last_line(output: str) -> str:
    return (output.strip().splitlines() or ["no reason given"])[-1]


if __name__ == "__main__":
    if sys.argv[1:] not in (["runtime"], ["dev"]):
        sys.exit("usage: python transcriber/set_up.py runtime|dev")
    sys.exit(main(sys.argv[1]))
