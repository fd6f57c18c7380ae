"""From upload to done on an idle service with the default settings: how much of it is neither ffmpeg nor recognition."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import requests

from records import audio
from records.models import AudioRecord
from tests.postgres import free_port

ROOT = Path(__file__).resolve().parents[2]
RECORDING = ROOT / "transcriber" / "demo" / "recording.ogg"
ROUNDS = 7
BAR_S = 1.5


def main() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    service = subprocess.Popen(
        [sys.executable, "manage.py", "serve"], cwd=ROOT, env={**os.environ, "PORT": str(port)}, stdout=subprocess.DEVNULL
    )
    try:
        told = subprocess.run([sys.executable, "manage.py", "create_token", "bench"], cwd=ROOT, check=True, capture_output=True, text=True)
        session = requests.Session()
        session.headers["Authorization"] = f"Token {told.stdout.strip()}"
        _wait_until_it_serves(url, service)
        _send(session, url)  # each worker loads the model at its first recording
        _send(session, url)
        rest = []
        for _ in range(ROUNDS):
            whole, recognition = _send(session, url)
            rest.append(whole - recognition - _ffmpeg())
            print(f"upload to done {whole:5.2f} s: recognition {recognition:5.2f} s, all but ffmpeg and recognition {rest[-1]:5.2f} s")
        median = statistics.median(rest)
        print(f"median outside ffmpeg and recognition: {median:.2f} s (bar: {BAR_S} s)")
    finally:
        service.send_signal(signal.SIGTERM)
        service.wait(timeout=30)


def _wait_until_it_serves(url: str, service: subprocess.Popen[bytes]) -> None:
    while service.poll() is None:
        try:
            if requests.get(f"{url}/healthz", timeout=2).ok:
                return
        except requests.ConnectionError:
            time.sleep(0.1)
    raise SystemExit("the service did not start")


def _send(session: requests.Session, url: str) -> tuple[float, float]:
    """Seconds from the first byte sent to `done` seen, and of those in the step that recognizes."""
    began = time.perf_counter()
    with RECORDING.open("rb") as file:
        record = session.post(f"{url}/api/v1/records/", files={"file": file}, timeout=60).json()["id"]
    while session.get(f"{url}/api/v1/records/{record}/", timeout=10).json()["status"] != "done":
        time.sleep(0.02)
    whole = time.perf_counter() - began
    event = AudioRecord.objects.get(pk=record).events.get(step="poll")
    return whole, (event.duration_ms or 0) / 1000


def _ffmpeg() -> float:
    """What the same recording takes to normalize by itself."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        audio.normalize(RECORDING, Path(folder) / "copy.ogg", channels="mix", max_duration_s=3600, beat=lambda _: None)
        return time.perf_counter() - began
