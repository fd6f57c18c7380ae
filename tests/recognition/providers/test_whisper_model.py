from __future__ import annotations

import hashlib
import multiprocessing
import sys
from pathlib import Path

import pytest

from recognition.contract import Misconfigured
from recognition.providers.whisper import ensure_model, model
from recognition.providers.whisper.model import FOLDER, MODEL_SHA256, MODEL_SIZE, get_model


def test_several_processes_may_make_the_default_model_at_once(tmp_path: Path):
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        folders = pool.starmap(ensure_model, [("base", tmp_path)] * 3)
    assert folders == [tmp_path / FOLDER] * 3
    with (tmp_path / FOLDER / "model.bin").open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == MODEL_SHA256
    assert sorted(path.name for path in tmp_path.iterdir()) == [FOLDER, f"{FOLDER}.lock"]


def test_a_model_that_is_there_is_not_read_again(tmp_path: Path):
    folder = tmp_path / FOLDER
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "vocabulary.txt"):
        (folder / name).touch()
    with (folder / "model.bin").open("wb") as file:
        file.truncate(MODEL_SIZE)  # of the right size but with a wrong sum
    assert ensure_model("base", tmp_path) == folder
    assert not (tmp_path / f"{FOLDER}.lock").exists()


def test_half_a_model_is_made_anew(tmp_path: Path):
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "model.bin").write_bytes(b"half")
    (tmp_path / f"{FOLDER}.building").mkdir()
    ensure_model("base", tmp_path)
    assert (tmp_path / FOLDER / "model.bin").stat().st_size == MODEL_SIZE
    assert not (tmp_path / f"{FOLDER}.building").exists()


def test_a_wrong_sum_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    data = tmp_path / "packages" / "damaged_weights" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").touch()
    (data / "part").write_bytes(b"no weights")
    monkeypatch.syspath_prepend(tmp_path / "packages")
    monkeypatch.setattr(model, "_PARTS", (("damaged_weights", "part"),))
    with pytest.raises(Misconfigured, match="damaged"):
        ensure_model("base", tmp_path / "models")
    assert [path.name for path in (tmp_path / "models").iterdir()] == [f"{FOLDER}.lock"]
    sys.modules.pop("damaged_weights", None)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(model, "_PARTS", (("no_such_weights", "part"),))
    with pytest.raises(Misconfigured, match="no-such-weights is missing"):
        ensure_model("base", tmp_path)


def test_a_folder_is_taken_as_it_is(tmp_path: Path):
    (tmp_path / "model.bin").touch()
    assert ensure_model(str(tmp_path), tmp_path / "models") == tmp_path


def test_other_names_are_left_to_the_hub(tmp_path: Path):
    assert ensure_model("small", tmp_path) == "small"
    assert ensure_model("owner/name", tmp_path) == "owner/name"


@pytest.mark.parametrize("name", ["absent", "empty", "garbage", "no such size"])
def test_a_model_that_cannot_be_loaded_is_a_matter_of_configuration(name: str, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "garbage").mkdir()
    (tmp_path / "garbage" / "model.bin").write_bytes(b"garbage")
    with pytest.raises(Misconfigured) as failure:
        get_model(name if " " in name else str(tmp_path / name), tmp_path, compute_type="int8", threads=1)
    assert failure.value.code == "model_unavailable"


def test_a_process_loads_a_model_once(models_dir: Path):
    first = get_model("base", models_dir, compute_type="int8", threads=1)
    assert get_model("base", models_dir, compute_type="int8", threads=1) is first
