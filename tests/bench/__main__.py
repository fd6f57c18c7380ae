"""`make bench`: figures, each beside what it is to be compared with, from one run on one machine.

python -m tests.bench [latency] [queue] [control] [home] [listing] [coverage[:long][:wav]]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.postgres import Server, find_binaries

ROOT = Path(__file__).resolve().parents[2]
BOTH = ("queue", "control", "home", "listing")
ALL = ("latency", *BOTH, "coverage")


def run(name: str, database: str, url: str = "") -> None:
    with tempfile.TemporaryDirectory(prefix="transcriber-bench-") as data:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("TRANSCRIBER_")}
        env = {**kept, "TRANSCRIBER_DATA": data, "TRANSCRIBER_LOG_LEVEL": "ERROR", "DATABASE_URL": url, "PYTHONPATH": str(ROOT)}
        print(f"\n== {name}, {database}", flush=True)
        subprocess.run([sys.executable, "-m", "tests.bench.one", name], env=env, cwd=ROOT, check=True)


def main(names: list[str]) -> None:
    for name in names:
        run(name, "SQLite")
        if name in BOTH:
            binaries = find_binaries()
            if binaries is None:
                print(f"\n== {name}, PostgreSQL: no binaries on this machine")
                continue
            server = Server(binaries, fsync=True)
            server.start()
            try:
                run(name, "PostgreSQL", server.url)
            finally:
                server.stop()


main(sys.argv[1:] or list(ALL))
