"""The configuration: what can be written, what wins, and what stops the start."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from dataclasses import Field, FrozenInstanceError, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from transcriber.config import ENVIRONMENT_ONLY, SECTIONS, Config, ConfigError, example, load, parse_duration, parse_size

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.no_database


def read(folder: Path, text: str = "", **env: str) -> Config:
    (folder / "config.toml").write_text(text)
    return load(folder, env)


def refusal(folder: Path, text: str = "", **env: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(folder, text, **env)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    return message


# ---- values -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("90s", 90), ("15m", 900), ("1h", 3600), ("1h30m", 5400), ("2d", 172800), ("1d2h3m4s", 93784), ("0s", 0)],
)
def test_a_duration(written: str, seconds: int) -> None:
    assert parse_duration(written) == timedelta(seconds=seconds)


@pytest.mark.parametrize("written", ["", "1", "h", "1.5h", "1h 30m", "30m1h", "-1h", "1w", 90, None, True])
def test_what_is_no_duration(written: object) -> None:
    with pytest.raises(ValueError, match="a duration such as"):
        parse_duration(written)


@pytest.mark.parametrize(
    ("written", "size"),
    [("2GiB", 2 * 2**30), ("500MiB", 500 * 2**20), ("500 MiB", 500 * 2**20), ("1024", 1024), (7, 7), ("3B", 3), ("1TiB", 2**40)],
)
def test_a_size(written: object, size: int) -> None:
    assert parse_size(written) == size


@pytest.mark.parametrize("written", ["", "2GB", "-1", "1.5GiB", "GiB", True, None, 1.5])
def test_what_is_no_size(written: object) -> None:
    with pytest.raises(ValueError, match="a size such as"):
        parse_size(written)


@pytest.mark.parametrize(
    ("section", "key"),
    [(name, key.name) for name, section in SECTIONS.items() for key in fields(section) if key.type in ("timedelta", "int")],
)
def test_every_number_and_length_of_time_has_bounds(tmp_path: Path, section: str, key: str) -> None:
    """None of them can be so large that nothing works any more; a size of bytes may be large indeed."""
    assert "from" in refusal(tmp_path, f'[{section}]\n{key} = "99999999999d"\n') or key == "max_size"
    assert f"[{section}] {key}" in refusal(tmp_path, f"[{section}]\n{key} = 99999999999999999\n")


# ---- where values come from ---------------------------------------------------------------------------------------------------------


def test_nothing_needs_to_be_written(tmp_path: Path) -> None:
    config = load(tmp_path, {})
    assert config == Config(data=tmp_path / "var")


def test_the_file_is_read(tmp_path: Path) -> None:
    config = read(
        tmp_path, '[pipeline]\nworkers = 0\nown_work_limit = "90s"\n[intake]\nmax_size = 1000\n[web]\nallowed_hosts = ["a.org", "b.org"]\n'
    )
    assert config.pipeline.workers == 0
    assert config.pipeline.own_work_limit == timedelta(seconds=90)
    assert config.intake.max_size == 1000
    assert config.web.allowed_hosts == ("a.org", "b.org")


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        '[pipeline]\nworkers = 1\nmax_attempts = 7\n[web]\nhttps = false\nallowed_hosts = ["a.org"]\n',
        TRANSCRIBER_PIPELINE_WORKERS="4",
        TRANSCRIBER_WEB_HTTPS="true",
        TRANSCRIBER_WEB_ALLOWED_HOSTS="c.org, d.org",
    )
    assert config.pipeline.workers == 4
    assert config.pipeline.max_attempts == 7
    assert config.web.https is True
    assert config.web.allowed_hosts == ("c.org", "d.org")


def test_the_file_can_lie_elsewhere(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text("[pipeline]\nworkers = 9\n")
    assert read(tmp_path, "[pipeline]\nworkers = 1\n", TRANSCRIBER_CONFIG=str(other)).pipeline.workers == 9


def test_the_data_folder_and_the_database_come_from_the_environment(tmp_path: Path) -> None:
    config = read(tmp_path, TRANSCRIBER_DATA=str(tmp_path / "d"), DATABASE_URL="postgres://x@127.0.0.1/y", TRANSCRIBER_SECRET_KEY="s")
    assert config.data == tmp_path / "d"
    assert config.database_url == "postgres://x@127.0.0.1/y"
    assert config.secret_key == "s"


def test_every_key_can_be_set_in_the_environment(tmp_path: Path) -> None:
    """To its default, as a person writes it in the file."""
    for name, section in SECTIONS.items():
        for key in fields(section):
            written = key.metadata["written"]
            text = ",".join(written) if isinstance(written, list) else str(written)
            config = read(tmp_path, **{f"TRANSCRIBER_{name}_{key.name}".upper(): text})
            assert config == Config(data=tmp_path / "var"), key.name


def test_other_variables_are_none_of_our_business(tmp_path: Path) -> None:
    assert read(tmp_path, PATH="/bin", DJANGO_SETTINGS_MODULE="transcriber.settings", PORT="1").pipeline.workers == 2


def test_the_configuration_does_not_change_afterwards(tmp_path: Path) -> None:
    with pytest.raises(FrozenInstanceError):
        read(tmp_path).pipeline.workers = 3  # type: ignore[misc]


# ---- what stops the start -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[pipelines]\nworkers = 1\n", ["config.toml", "[pipelines]", "pipeline"]),
        ("workers = 1\n", ["config.toml", "workers"]),
        ("[pipeline]\nworker = 1\n", ["config.toml", "'worker'", "[pipeline]", "workers"]),
        ("pipeline = 1\n", ["config.toml", "[pipeline]", "section"]),
        ("[pipeline\n", ["config.toml", "not valid TOML"]),
        ("[pipeline]\nworkers = -1\n", ["[pipeline] workers", "whole number"]),
        ("[pipeline]\nworkers = true\n", ["[pipeline] workers", "whole number"]),
        ("[pipeline]\nworkers = 1.5\n", ["[pipeline] workers", "whole number"]),
        ("[pipeline]\nmax_attempts = 0\n", ["[pipeline] max_attempts", "from 1 to"]),
        ("[pipeline]\nworkers = 5000\n", ["[pipeline] workers", "from 0 to 1000"]),
        ("[whisper]\nthreads = 99999\n", ["[whisper] threads", "from 0 to"]),
        ("[web]\nthreads = 0\n", ["[web] threads", "from 1 to"]),
        ("[web]\nproxies = 1000\n", ["[web] proxies", "from 0 to"]),
        ('[web]\nlisten = ""\n', ["[web] listen", "not empty"]),
        ('[speechkit]\npoll_interval = "0s"\n', ["[speechkit] poll_interval", "from 1s to 1h"]),
        ('[speechkit]\npoll_interval = "3d"\n', ["[speechkit] poll_interval", "from 1s to 1h"]),
        ('[speechkit]\nmodel = ""\n', ["[speechkit] model", "not empty"]),
        ('[speechkit]\nlanguage = " "\n', ["[speechkit] language", "not empty"]),
        ('[pipeline]\nown_work_limit = "0s"\n', ["[pipeline] own_work_limit", "from 1s to"]),
        ('[pipeline]\nforeign_work_limit = "0m"\n', ["[pipeline] foreign_work_limit", "from 1s to"]),
        ('[pipeline]\nforeign_work_limit = "99999999999d"\n', ["[pipeline] foreign_work_limit", "to 3650d"]),
        ('[pipeline]\nforeign_work_limit = "999999999d"\n', ["[pipeline] foreign_work_limit", "to 3650d"]),
        ('[signin]\nsession_length = "0s"\n', ["[signin] session_length", "from 1m to"]),
        ("[intake]\nmax_size = 0\n", ["[intake] max_size", "from 1B to"]),
        ('[intake]\nmax_size = "999999999TiB"\n', ["[intake] max_size", "from 1B to"]),
        ('[intake]\nmax_duration = "0h"\n', ["[intake] max_duration", "from 1s to"]),
        ('[recognition]\nprovider = ""\n', ["[recognition] provider", "not empty"]),
        ('[openai]\nmodel = ""\n', ["[openai] model", "not empty"]),
        ("[pipeline]\nown_work_limit = 3600\n", ["[pipeline] own_work_limit", "duration"]),
        ('[intake]\nmax_size = "2 GB"\n', ["[intake] max_size", "size"]),
        ('[audio]\nchannels = "stereo"\n', ["[audio] channels", "mix, separate"]),
        ('[log]\nlevel = "LOUD"\n', ["[log] level", "DEBUG"]),
        ('[web]\nhttps = "perhaps"\n', ["[web] https", "true or false"]),
        ("[web]\nallowed_hosts = [1]\n", ["[web] allowed_hosts", "list of texts"]),
        ("[whisper]\nmodel = 1\n", ["[whisper] model", "a text"]),
    ],
)
def test_a_bad_file_is_refused_in_a_sentence_that_names_the_place(tmp_path: Path, text: str, named: list[str]) -> None:
    message = refusal(tmp_path, text)
    for part in named:
        assert part in message


@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [
        ("TRANSCRIBER_PIPELINE_WORKERS", "many", "whole number"),
        ("TRANSCRIBER_PIPELINE_WORKERS", "", "whole number"),
        ("TRANSCRIBER_PIPELINE_OWN_WORK_LIMIT", "1 hour", "duration"),
        ("TRANSCRIBER_WEB_DEBUG", "perhaps", "true or false"),
        ("TRANSCRIBER_PIPELINE_WORKER", "1", "Unknown environment variable"),
        ("TRANSCRIBER_WORKERS", "1", "Unknown environment variable"),
    ],
)
def test_a_bad_variable_is_refused_by_its_name(tmp_path: Path, variable: str, value: str, named: str) -> None:
    message = refusal(tmp_path, **{variable: value})
    assert variable in message
    assert named in message


def test_a_file_that_is_named_but_not_there_is_refused(tmp_path: Path) -> None:
    assert "TRANSCRIBER_CONFIG" in refusal(tmp_path, TRANSCRIBER_CONFIG=str(tmp_path / "none.toml"))


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_bytes(b'[web]\ntime_zone = "\xff"\n')
    with pytest.raises(ConfigError, match=r"config\.toml"):
        load(tmp_path, {})


@pytest.mark.parametrize("key", ["secret_key", "SECRET_KEY"])
def test_a_secret_in_the_file_is_refused_without_being_repeated(tmp_path: Path, key: str) -> None:
    for text in (f'{key} = "hush-hush"\n', f'[web]\n{key} = "hush-hush"\n'):
        assert "hush" not in refusal(tmp_path, text)


# ---- config.example.toml ------------------------------------------------------------------------------------------------------------


def is_secret(key: Field[Any]) -> bool:
    return bool(key.metadata.get("secret"))


@pytest.mark.parametrize(
    ("section", "key"), [(name, key.name) for name, section in SECTIONS.items() for key in fields(section) if is_secret(key)]
)
def test_a_secret_comes_from_the_environment_alone_and_is_never_shown(tmp_path: Path, section: str, key: str) -> None:
    variable = f"TRANSCRIBER_{section}_{key}".upper()
    message = refusal(tmp_path, f'[{section}]\n{key} = "hush-hush"\n')
    assert variable in message
    assert "hush" not in message
    config = read(tmp_path, "", **{variable: "hush-hush"})
    assert getattr(getattr(config, section), key) == "hush-hush"
    assert "hush" not in repr(config)


def test_the_example_in_the_repository_is_current() -> None:
    assert (ROOT / "config.example.toml").read_text() == example(), "run: .venv/bin/python -m transcriber.config > config.example.toml"


def test_the_example_holds_every_key_with_its_default(tmp_path: Path) -> None:
    written = tomllib.loads(example())
    assert {name: set(keys) for name, keys in written.items()} == {
        name: {key.name for key in fields(section) if not is_secret(key)} for name, section in SECTIONS.items()
    }
    assert read(tmp_path, example()) == Config(data=tmp_path / "var")


def test_the_example_explains_every_key_and_variable() -> None:
    text = example()
    for section in SECTIONS.values():
        for key in fields(section):
            if is_secret(key):
                assert f"# {key.name}: in the environment alone" in text
                assert f"\n{key.name} = " not in text
            else:
                assert f"# {key.metadata['help']}\n{key.name} = " in text
    for variable in ENVIRONMENT_ONLY:
        assert f"#   {variable}: " in text


# ---- at a real start ----------------------------------------------------------------------------------------------------------------


def start(*arguments: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TRANSCRIBER_") and name != "DATABASE_URL"}
    given = {"TRANSCRIBER_DATA": str(folder), "TRANSCRIBER_CONFIG": str(folder / "config.toml"), **env}
    (folder / "config.toml").touch()
    return subprocess.run(arguments, cwd=ROOT, env={**clean, **given}, capture_output=True, text=True, timeout=60, check=False)


COMMANDS = [[sys.executable, "manage.py", command] for command in ("check", "migrate", "qcluster", "serve")]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[-1])
@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({"TRANSCRIBER_PIPELINE_WORKERS": "many"}, "TRANSCRIBER_PIPELINE_WORKERS"),
        ({"DATABASE_URL": "mysql://a:hush-hush@127.0.0.1/c"}, "DATABASE_URL"),
        ({"TRANSCRIBER_WEB_TIME_ZONE": "Mars"}, "time_zone"),
    ],
    ids=["bad value", "bad database", "bad time zone"],
)
def test_a_command_says_it_in_one_line_and_ends_with_1(tmp_path: Path, command: list[str], env: dict[str, str], named: str) -> None:
    done = start(*command, folder=tmp_path, **env)

    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("Configuration: ")
    assert named in line
    assert "hush" not in line
    assert done.stdout == ""


def test_a_server_that_is_started_by_hand_ends_with_the_sentence_too(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gunicorn", "--bind", "127.0.0.1:0", "--workers", "1", "transcriber.wsgi"]

    done = start(*command, folder=tmp_path, TRANSCRIBER_PIPELINE_WORKERS="many")

    assert done.returncode != 0
    assert "TRANSCRIBER_PIPELINE_WORKERS must be a whole number" in done.stderr


def test_the_secret_key_is_made_once_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    show = "import django; django.setup(); from django.conf import settings; print(settings.SECRET_KEY)"
    first = start(sys.executable, "-c", show, folder=tmp_path, DJANGO_SETTINGS_MODULE="transcriber.settings")
    second = start(sys.executable, "-c", show, folder=tmp_path, DJANGO_SETTINGS_MODULE="transcriber.settings")

    assert len(first.stdout.strip()) >= 50
    assert first.stdout == second.stdout
    assert (tmp_path / "secret_key").stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.glob(".secret_key*")] == []
