"""The configuration: `config.toml` and the environment, read into frozen dataclasses.

Every key has a default, so that nothing needs to be written for a start. `TRANSCRIBER_<SECTION>_<KEY>` in the environment wins over the file.
Secrets are read from the environment alone. An unknown key or a bad value stops the start with one sentence (:class:`ConfigError`).

The text of `config.example.toml` is made from this module (`python -m transcriber.config`), so that it can't fall behind.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import environ

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_SIZE = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB|TiB)?")
_LARGEST_SIZE = 2**50
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


class ConfigError(Exception):
    """The configuration can't be used. The message is one sentence that names the key and says what is expected."""


# ---- values -------------------------------------------------------------------------------------------------------------------------


def parse_duration(value: object) -> timedelta:
    """`1h`, `90s`, `1h30m`, `2d`. Raises ValueError."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if not match or not value:
        raise ValueError("a duration such as 90s, 15m, 1h30m or 2d")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


def parse_size(value: object) -> int:
    """`500MiB`, `2GiB`, or a plain number of bytes. Raises ValueError."""
    match = _SIZE.fullmatch(str(value)) if isinstance(value, (str, int)) and not isinstance(value, bool) else None
    if not match:
        raise ValueError("a size such as 500MiB, 2GiB, or a number of bytes")
    return int(match[1]) * _UNITS[match[2] or "B"]


def _span(shortest: str, longest: str) -> Callable[[object], timedelta]:
    """A duration from `shortest` to `longest`, both written as one."""

    def parse(value: object) -> timedelta:
        try:
            duration = parse_duration(value)
        except OverflowError:
            duration = timedelta.max
        if not parse_duration(shortest) <= duration <= parse_duration(longest):
            raise ValueError(f"a duration from {shortest} to {longest}")
        return duration

    return parse


def _size(value: object) -> int:
    size = parse_size(value)
    if not 1 <= size <= _LARGEST_SIZE:
        raise ValueError("a size from 1B to 1024TiB")
    return size


def _whole(least: int, most: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,9}", str(value)) or not least <= int(str(value)) <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return int(str(value))

    return parse


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a text")
    return value


def _truth(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in (*environ.Env.BOOLEAN_TRUE_STRINGS, "false", "no", "off", "0", "n"):
        return value.lower() in environ.Env.BOOLEAN_TRUE_STRINGS
    raise ValueError("true or false")


def _word(value: object) -> str:
    """A text that says something, as a name must."""
    if not _text(value).strip():
        raise ValueError("a text that is not empty")
    return _text(value)


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return tuple(value)
    raise ValueError("a list of texts (in the environment: separated by commas)")


def _url(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"https?://[^\s/]+(/\S*)?", value):
        raise ValueError("an address such as https://example.org")
    return value.rstrip("/")


def _url_or_none(value: object) -> str:
    return "" if value == "" else _url(value)


def _one_of(*choices: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in choices:
            raise ValueError("one of " + ", ".join(choices))
        return str(value)

    return parse


def _key(default: str | int | bool | list[str], parse: Callable[[Any], Any], help_text: str) -> Any:
    """A key: its default as a person would write it, how it is read, and the line that explains it."""
    return field(default_factory=lambda: parse(default), metadata={"written": default, "parse": parse, "help": help_text})


def _secret(help_text: str) -> Any:
    """A key that is read from the environment alone."""
    return field(default="", repr=False, metadata={"written": "", "parse": _text, "help": help_text, "secret": True})


# ---- sections -----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Web:
    allowed_hosts: tuple[str, ...] = _key(["localhost", "127.0.0.1", "[::1]"], _texts, "Host names under which the service is reached.")
    https: bool = _key(False, _truth, "A proxy in front speaks HTTPS and sets X-Forwarded-Proto: secure cookies, redirects, HSTS.")
    hsts: timedelta = _key(
        "365d", _span("0s", "3650d"), "With https: how long a browser that was here once refuses to come without it. 0s: it is not told to."
    )
    hsts_subdomains: bool = _key(
        False, _truth, "Have it refuse that for all names below this one, too. For the owner of the domain to decide."
    )
    hsts_preload: bool = _key(
        False, _truth, "Agree to the name being built into browsers, which is hard to undo. Only with hsts_subdomains."
    )
    proxies: int = _key(
        0,
        _whole(0, 100),
        "Proxies in front that each add to X-Forwarded-For: its entry that many from the right is the visitor. 0: the header is ignored.",
    )
    listen: str = _key("127.0.0.1", _word, "Address the web server listens on; the port is PORT of the environment (8000).")
    threads: int = _key(32, _whole(1, 1000), "Requests served at once by the web server.")
    time_zone: str = _key("UTC", _text, "Time zone in which times are shown.")
    metrics_token: str = _secret(
        "What a Prometheus elsewhere sends as a bearer token to read /metrics; without it only this machine may, and with https nobody."
    )
    debug: bool = _key(False, _truth, "Show error details in the browser. Never where others can reach it.")


@dataclass(frozen=True)
class SignIn:
    session_length: timedelta = _key("12h", _span("1m", "365d"), "Time after which people have to sign in to the console again.")
    provider: str = _key(
        "", _url_or_none, "OpenID Connect: address (issuer) of the provider, as https://id.example.org/realms/main. Empty: passwords alone."
    )
    provider_name: str = _key("OpenID Connect", _text, "What it is called on the button: Sign in with …")
    client_id: str = _key("", _text, "Name under which the provider knows this service.")
    client_secret: str = _secret("Secret that goes with client_id.")
    scopes: tuple[str, ...] = _key(["openid", "profile", "email"], _texts, "What the provider is asked for.")
    create_users: bool = _key(True, _truth, "Somebody who comes for the first time becomes a user, without any rights of the console.")
    link_by_email: bool = _key(
        False,
        _truth,
        "Somebody who comes for the first time gets the account that has their e-mail address, if the provider has verified it.",
    )
    groups_claim: str = _key(
        "groups", _text, "Claim that lists a person's groups or roles; dots lead inwards, as in realm_access.roles (Keycloak)."
    )
    users: tuple[str, ...] = _key([], _texts, "Groups whose members may sign in. Empty: everybody whom the provider lets through.")
    staff: tuple[str, ...] = _key(
        [], _texts, "Groups whose members may enter the console; what they may do there is up to their groups here."
    )
    superusers: tuple[str, ...] = _key(
        [],
        _texts,
        "Groups whose members may do everything. Once this or staff is set, each sign-in gives these rights and takes them away.",
    )
    groups: tuple[str, ...] = _key([], _texts, "Groups of the console in which a person is whenever the provider names a group called so.")


@dataclass(frozen=True)
class Pipeline:
    workers: int = _key(2, _whole(0, 1000), "Recordings worked on at once on this machine. 0: recordings are accepted and stand still.")
    max_attempts: int = _key(5, _whole(1, 1000), "Failures in one state after which a record halts as exhausted.")
    own_work_limit: timedelta = _key(
        "1h", _span("1s", "3650d"), "Time after which a record that waits for our own work and fails halts as stuck."
    )
    foreign_work_limit: timedelta = _key("24h", _span("1s", "3650d"), "The same where a provider is waited for.")


@dataclass(frozen=True)
class Storage:
    backend: str = _key("local", _one_of("local", "s3"), "local: a folder under TRANSCRIBER_DATA. s3: a bucket, for more than one machine.")
    endpoint_url: str = _key("https://s3.amazonaws.com", _url, "Address of the object storage.")
    region: str = _key("us-east-1", _word, "Its region.")
    name: str = _key("", _text, "Name of a bucket that holds nothing else.")
    access_key_id: str = _secret("Key id for that bucket.")
    secret_access_key: str = _secret("Secret for that bucket.")


@dataclass(frozen=True)
class Intake:
    max_size: int = _key("2GiB", _size, "Largest recording that is accepted.")
    max_duration: timedelta = _key("6h", _span("1s", "3650d"), "Longest recording that is accepted.")


@dataclass(frozen=True)
class Audio:
    channels: Literal["mix", "separate"] = _key(
        "mix", _one_of("mix", "separate"), "mix: one channel. separate: two channels stay apart, one speaker each."
    )


@dataclass(frozen=True)
class Recognition:
    provider: str = _key(
        "whisper", _word, "Who recognizes new recordings: whisper, speechkit, openai, or the dotted path of a provider of your own."
    )


@dataclass(frozen=True)
class Whisper:
    model: str = _key(
        "base", _word, "base (comes with the installation), another faster-whisper model by name, or a folder that holds one."
    )
    threads: int = _key(0, _whole(0, 1000), "Processor threads of one worker. 0: the cores divided among the workers.")


@dataclass(frozen=True)
class SpeechKit:
    stt_url: str = _key("https://stt.api.cloud.yandex.net", _url, "Address of the recognition API.")
    operations_url: str = _key("https://operation.api.cloud.yandex.net", _url, "Address that tells how an operation stands.")
    api_key: str = _secret("API key of the service account.")
    model: str = _key("general", _word, "general, or deferred-general: cheaper, done within a day.")
    language: str = _key("ru-RU", _word, "Language where a recording names none; auto: detected (without punctuation).")
    speaker_labeling: bool = _key(False, _truth, "Tell two speakers of a mono recording apart.")
    poll_interval: timedelta = _key("10s", _span("1s", "1h"), "Time between two looks at one operation.")


@dataclass(frozen=True)
class Bucket:
    endpoint_url: str = _key("https://storage.yandexcloud.net", _url, "Object storage from which SpeechKit reads recordings.")
    region: str = _key("ru-central1", _word, "Its region.")
    name: str = _key("", _text, "Name of the bucket.")
    access_key_id: str = _secret("Key id of the service account's static key.")
    secret_access_key: str = _secret("Secret of the static key.")
    keep_source: bool = _key(False, _truth, "Keep the copy in the bucket once a record is done.")


@dataclass(frozen=True)
class OpenAI:
    base_url: str = _key("https://api.openai.com/v1", _url, "Address of a server with /audio/transcriptions; yours, or OpenAI's.")
    api_key: str = _secret("Key of that server, if it wants one.")
    model: str = _key("whisper-1", _word, "Model by the server's name for it.")
    paid: bool = _key(True, _truth, "Each request costs money, so one whose outcome is unknown is never repeated by itself.")


@dataclass(frozen=True)
class Log:
    level: str = _key("INFO", _one_of("DEBUG", "INFO", "WARNING", "ERROR"), "How much is written to standard error.")


@dataclass(frozen=True)
class Config:
    """Everything that can be set. `data` is the folder under which all that a start needs lives."""

    data: Path = Path("var")
    database_url: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    web: Web = field(default_factory=Web)
    signin: SignIn = field(default_factory=SignIn)
    pipeline: Pipeline = field(default_factory=Pipeline)
    storage: Storage = field(default_factory=Storage)
    intake: Intake = field(default_factory=Intake)
    audio: Audio = field(default_factory=Audio)
    recognition: Recognition = field(default_factory=Recognition)
    whisper: Whisper = field(default_factory=Whisper)
    speechkit: SpeechKit = field(default_factory=SpeechKit)
    bucket: Bucket = field(default_factory=Bucket)
    openai: OpenAI = field(default_factory=OpenAI)
    log: Log = field(default_factory=Log)


SECTIONS: dict[str, type] = {
    "web": Web,
    "signin": SignIn,
    "pipeline": Pipeline,
    "storage": Storage,
    "intake": Intake,
    "audio": Audio,
    "recognition": Recognition,
    "whisper": Whisper,
    "speechkit": SpeechKit,
    "bucket": Bucket,
    "openai": OpenAI,
    "log": Log,
}

ENVIRONMENT_ONLY = {
    "TRANSCRIBER_DATA": "folder of database, recordings, models and secret key (default: ./var)",
    "TRANSCRIBER_CONFIG": "path of the configuration file (default: config.toml in the project's root, if it is there)",
    "TRANSCRIBER_SECRET_KEY": "Django's secret key (default: made once and kept in the data folder)",
    "DATABASE_URL": "postgres://user:password@host:5432/name (default: SQLite in the data folder)",
    "PORT": "port of the web server (default: 8000)",
}


# ---- reading ------------------------------------------------------------------------------------------------------------------------


def load(root: Path, env: Mapping[str, str] | None = None) -> Config:
    """Read the configuration of the project in `root`. Raises ConfigError."""
    env = dict(os.environ if env is None else env)
    named = env.get("TRANSCRIBER_CONFIG")
    path = Path(named) if named else root / "config.toml"
    written: dict[str, Any] = {}
    if path.is_file():
        try:
            written = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path.name} is not valid TOML: {error}.") from error
    elif named:
        raise ConfigError("TRANSCRIBER_CONFIG names a file that is not there.")

    for name, values in written.items():
        if name not in SECTIONS:
            raise ConfigError(f"{path.name}: unknown section [{name}]; there are {', '.join(SECTIONS)}.")
        if not isinstance(values, dict):
            raise ConfigError(f"{path.name}: [{name}] must be a section.")

    known_variables = set(ENVIRONMENT_ONLY)
    sections = {}
    for name, section in SECTIONS.items():
        known_variables |= {_variable(name, key.name) for key in fields(section)}
        sections[name] = _section(name, section, written.get(name, {}), env, path.name)
    for variable in sorted(env):
        if variable.startswith("TRANSCRIBER_") and variable not in known_variables:
            raise ConfigError(f"Unknown environment variable {variable}; see config.example.toml for the keys there are.")

    data = Path(env.get("TRANSCRIBER_DATA") or root / "var").absolute()
    return Config(data=data, database_url=env.get("DATABASE_URL", ""), secret_key=env.get("TRANSCRIBER_SECRET_KEY", ""), **sections)


def _variable(section: str, key: str) -> str:
    return f"TRANSCRIBER_{section}_{key}".upper()


def _section(name: str, section: type, written: dict[str, Any], env: Mapping[str, str], file_name: str) -> Any:
    keys: dict[str, Field[Any]] = {key.name: key for key in fields(section)}
    values: dict[str, Any] = {}
    for key in written:
        if key not in keys:
            raise ConfigError(f"{file_name}: unknown key {key!r} in [{name}]; there are {', '.join(keys)}.")
    for key, spec in keys.items():
        variable = _variable(name, key)
        if variable in env:
            raw, source = env[variable], variable
        elif key in written and spec.metadata.get("secret"):
            raise ConfigError(f"{file_name}: [{name}] {key} is a secret: set {variable} in the environment instead.")
        elif key in written:
            raw, source = written[key], f"{file_name}: [{name}] {key}"
        else:
            continue
        try:
            values[key] = spec.metadata["parse"](raw)
        except ValueError as error:
            raise ConfigError(f"{source} must be {error}.") from error
    return section(**values)


# ---- config.example.toml ------------------------------------------------------------------------------------------------------------


def example() -> str:
    """The text of config.example.toml: every key with its default and a line of explanation."""
    lines = [
        "# Copy to config.toml and change what you need: every key has its default written here.",
        "# Each key can also be set in the environment, where it wins: TRANSCRIBER_<SECTION>_<KEY>, as TRANSCRIBER_PIPELINE_WORKERS=4.",
        "# In the environment alone:",
        *(f"#   {variable}: {meaning}" for variable, meaning in ENVIRONMENT_ONLY.items()),
    ]
    for name, section in SECTIONS.items():
        lines += ["", f"[{name}]"]
        for key in fields(section):
            if key.metadata.get("secret"):
                lines.append(f"# {key.name}: in the environment alone, as {_variable(name, key.name)}. {key.metadata['help']}")
                continue
            assert key.default is MISSING
            lines += [f"# {key.metadata['help']}", f"{key.name} = {_toml(key.metadata['written'])}"]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return "[" + ", ".join(_toml(part) for part in value) + "]"
    return f'"{value}"'


if __name__ == "__main__":
    import sys

    sys.stdout.write(example())
