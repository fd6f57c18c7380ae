"""The child process: its limits, its group, and that it never outlives what started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from records.audio import AudioFailed, AudioRejected, child, ffmpeg, launcher, normalize
from records.audio.ogg import read_opus
from tests.records.audio.conftest import make

pytestmark = pytest.mark.no_database

GONE_WITHIN_S = 5
LONG_S = 600


class Lines(list[str]):
    """Takes lines; `limits` are wide."""

    def run(self, program: str, *, cwd: Path, beat=lambda: None, **limits: float) -> int:
        """Run a piece of Python under limits."""
        wide = {"wall_s": 60, "file_bytes": 10**9, "memory_bytes": 4 * 10**9} | limits
        return child.run(
            [sys.executable, "-c", program],
            cwd=cwd,
            limits=child.Limits(**wide),  # type: ignore[arg-type]
            on_output=self.append,
            on_message=self.append,
            beat=beat,
        )


@pytest.fixture(scope="module")
def long_recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten minutes, which takes seconds to normalize."""
    folder = tmp_path_factory.mktemp("long")
    return make(folder / "long.flac", "-f", "lavfi", "-i", f"anoisesrc=a=0.1:r=44100:d={LONG_S}")


def test_program_runs_alone_quietly_and_without_our_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TRANSCRIBER_SECRET_KEY", "do not tell")
    lines = Lines()

    status = lines.run(
        "import os, sys\n"
        "print(os.getpgrp() == os.getpid(), os.getcwd(), os.nice(0), repr(sys.stdin.read()))\n"
        "print(*(name for name in os.environ if not name.startswith('LC_')))",
        cwd=tmp_path,
    )

    assert status == 0
    assert lines[0] == f"True {tmp_path} {os.nice(0) + launcher.NICENESS} ''"
    assert set(lines[1].split()) <= {"AV_LOG_FORCE_NOCOLOR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"}


def test_heart_beats_while_the_program_is_silent(tmp_path: Path):
    beats: list[float] = []

    Lines().run("import time; time.sleep(2)", cwd=tmp_path, beat=lambda: beats.append(time.monotonic()))

    assert len(beats) >= 5


def test_output_without_end_is_cut_into_lines(tmp_path: Path):
    lines = Lines()

    lines.run("import sys; sys.stderr.write('x' * 5_000_000 + '\\nlast\\n')", cwd=tmp_path)

    assert lines[-1] == "last"
    assert max(map(len, lines)) == child.LINE_MAX


def test_program_that_is_not_there(tmp_path: Path):
    with pytest.raises(AudioFailed) as raised:
        child.run(
            [str(tmp_path / "nothing")],
            cwd=tmp_path,
            limits=child.Limits(wall_s=10, file_bytes=1),
            on_output=print,
            on_message=print,
            beat=lambda: None,
        )
    assert raised.value.code == "ffmpeg_missing"


# ---- limits


def test_wall_time(tmp_path: Path):
    started = time.monotonic()
    with pytest.raises(AudioFailed) as raised:
        Lines().run("import time; time.sleep(60)", cwd=tmp_path, wall_s=1)

    assert raised.value.code == "timeout"
    assert time.monotonic() - started < 10


def test_processor_time(tmp_path: Path):
    assert Lines().run("while True: pass", cwd=tmp_path, cpu_s=1) == -signal.SIGXCPU


def test_memory(tmp_path: Path):
    lines = Lines()

    status = lines.run("bytearray(600_000_000)", cwd=tmp_path, memory_bytes=500_000_000)

    assert status == 1
    assert "MemoryError" in lines


def _convert(recording: Path, folder: Path, **limits: float) -> tuple[ffmpeg.Report, int]:
    (folder / ffmpeg.SOURCE).hardlink_to(recording)
    return ffmpeg.run(
        [*ffmpeg.INPUT, "-c:a", "libopus", "-f", "ogg", f"file:{folder / 'out'}"],
        folder=folder,
        limits=child.Limits(**({"wall_s": 100, "file_bytes": 10**9} | limits)),  # type: ignore[arg-type]
        beat=lambda report: None,
    )


def test_ffmpeg_out_of_processor_time(long_recording: Path, binary: str, tmp_path: Path):
    with pytest.raises(AudioFailed) as raised:
        _convert(long_recording, tmp_path, cpu_s=1)
    assert raised.value.code == "timeout"


def test_ffmpeg_out_of_file_size(long_recording: Path, binary: str, tmp_path: Path):
    with pytest.raises(AudioRejected) as raised:
        _convert(long_recording, tmp_path, file_bytes=100_000)
    assert raised.value.code == "too_large"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_ffmpeg_ended_from_outside(long_recording: Path, binary: str, tmp_path: Path, number: signal.Signals):
    def beat(progress: float | None) -> None:
        if progress:
            for process in psutil.Process().children(recursive=True):
                process.send_signal(number)

    with pytest.raises(AudioFailed) as raised:
        normalize(long_recording, tmp_path / "target.ogg", channels="mix", max_duration_s=3600, beat=beat)

    assert raised.value.code == "crashed"
    assert list(tmp_path.iterdir()) == []


# ---- life and death


def test_error_in_the_beat_ends_the_whole_group(tmp_path: Path):
    lines = Lines()

    def beat() -> None:
        if lines:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lines.run(
            "import subprocess, sys, time\n"
            "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
            "print(other.pid, flush=True)\n"
            "time.sleep(600)",
            cwd=tmp_path,
            beat=beat,
        )

    assert _is_gone(int(lines[0]))


def test_error_in_the_beat_ends_ffmpeg_at_once(long_recording: Path, binary: str, tmp_path: Path):
    pids: list[int] = []
    moments: list[float] = []

    def beat(progress: float | None) -> None:
        if progress:
            pids.extend(process.pid for process in psutil.Process().children(recursive=True) if process.name().startswith("ffmpeg"))
            moments.append(time.monotonic())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        normalize(long_recording, tmp_path / "target.ogg", channels="mix", max_duration_s=3600, beat=beat)

    assert time.monotonic() - moments[0] < 1
    assert len(pids) == 1
    assert _is_gone(pids[0])
    assert list(tmp_path.iterdir()) == []


WORKER = """
import signal, sys
from pathlib import Path
from records.audio import normalize

if sys.argv[3] == "deaf":
    signal.signal(signal.SIGINT, lambda *_: print("heard", flush=True))

def beat(progress):
    if progress:
        print("at work", flush=True)

print(normalize(Path(sys.argv[1]), Path(sys.argv[2]), channels="mix", max_duration_s=3600, beat=beat).duration_ms)
"""


class Worker:
    """A process that normalizes, in a process group of its own as if started in a terminal."""

    def __init__(self, recording: Path, target: Path, *, mode: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(recording), str(target), mode],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            process_group=0,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "at work\n"
        self.children = psutil.Process(self.process.pid).children(recursive=True)
        assert [process.name()[:6] for process in self.children] == ["ffmpeg"]


@pytest.fixture
def work(long_recording: Path, binary: str, tmp_path: Path) -> Iterator[list[Worker]]:
    """Start workers; what a failed test leaves is ended."""
    workers: list[Worker] = []
    yield workers
    for worker in workers:
        worker.process.kill()
        worker.process.communicate()


def test_ffmpeg_dies_with_a_killed_worker(work: list[Worker], long_recording: Path, tmp_path: Path):
    work.append(Worker(long_recording, tmp_path / "target.ogg"))

    work[0].process.kill()

    _, alive = psutil.wait_procs(work[0].children, timeout=GONE_WITHIN_S)
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []
    assert not (tmp_path / "target.ogg").exists()


def test_ctrl_c_ends_the_worker_and_its_ffmpeg(work: list[Worker], long_recording: Path, tmp_path: Path):
    work.append(Worker(long_recording, tmp_path / "target.ogg"))

    os.killpg(work[0].process.pid, signal.SIGINT)
    work[0].process.communicate(timeout=GONE_WITHIN_S)

    assert all(_is_gone(process.pid) for process in work[0].children)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_in_the_terminal_does_not_reach_ffmpeg(work: list[Worker], long_recording: Path, tmp_path: Path):
    target = tmp_path / "target.ogg"
    work.append(Worker(long_recording, target, mode="deaf"))

    os.killpg(work[0].process.pid, signal.SIGINT)
    output, _ = work[0].process.communicate(timeout=120)

    assert "heard\n" in output
    opus = read_opus(target)
    assert opus is not None
    assert opus.duration_ms == pytest.approx(LONG_S * 1000, abs=50)


def test_launcher_starts_nothing_for_an_orphan(tmp_path: Path):
    stranger = "1"
    numbers = [stranger, "10", "1000", "1000000000"]
    command = [sys.executable, "-I", "-S", launcher.__file__, *numbers, sys.executable, "-c", "print('started')"]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == launcher.ORPHAN
    assert done.stdout == ""


def test_no_core_file_and_a_moment_to_end_by_itself(tmp_path: Path):
    lines = Lines()

    lines.run(
        "import resource, sys; print(resource.getrlimit(resource.RLIMIT_CORE), resource.getrlimit(resource.RLIMIT_CPU))",
        cwd=tmp_path,
        cpu_s=7,
    )

    assert lines[0] == f"(0, 0) (7, {7 + launcher.CPU_GRACE_S})"


def _is_gone(pid: int) -> bool:
    try:
        process = psutil.Process(pid)
        process.wait(GONE_WITHIN_S)
        return True
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
