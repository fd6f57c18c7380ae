"""The only door to providers: a name, or the dotted path of a class of somebody's own, gives a provider made from the configuration."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path

from django.conf import settings
from django.core.files.storage import default_storage
from django.utils.module_loading import import_string

from recognition.contract import Misconfigured, Provider
from recognition.sources import local_copy


def default() -> Provider:
    """The provider that new recordings are given to."""
    return get(settings.TRANSCRIBER.recognition.provider)


@cache
def get(name: str) -> Provider:
    """The provider of that name. Raises Misconfigured if there is none."""
    if name in BUILT_IN:
        return BUILT_IN[name]()
    try:
        provider = import_string(name)()
    except ImportError as error:
        raise Misconfigured("provider_unknown", f"There is no provider {name!r}.") from error
    if not isinstance(provider, Provider):
        raise Misconfigured("provider_unknown", f"{name!r} does not keep the provider contract.")
    if provider.name != name:
        raise Misconfigured("provider_unknown", f"The provider {name!r} must bear that name, by which its recognitions find it again.")
    return provider


def seconds_of_speech(raw: Path, beat: Callable[[], None]) -> float:
    """What local recognition's voice detector, which is there whatever the provider, finds in raw 16-bit samples of one channel at 16 kHz."""
    from recognition.providers.whisper.sound import seconds_of_speech

    return seconds_of_speech(raw, beat)


def _whisper() -> Provider:
    from recognition.providers.whisper import WhisperProvider

    return WhisperProvider(
        model=settings.TRANSCRIBER.whisper.model,
        models_dir=settings.DATA_DIR / "models",
        threads=whisper_threads(),
        open_source=open_source,
    )


def _speechkit() -> Provider:
    from recognition.bucket import Bucket
    from recognition.providers.speechkit import SpeechKitProvider

    config, bucket = settings.TRANSCRIBER.speechkit, settings.TRANSCRIBER.bucket
    return SpeechKitProvider(
        stt_url=config.stt_url,
        operations_url=config.operations_url,
        api_key=config.api_key,
        model=config.model,
        language=config.language,
        speaker_labeling=config.speaker_labeling,
        poll_interval=config.poll_interval,
        bucket=Bucket(
            endpoint_url=bucket.endpoint_url,
            region=bucket.region,
            name=bucket.name,
            access_key_id=bucket.access_key_id,
            secret_access_key=bucket.secret_access_key,
        ),
    )


def _openai() -> Provider:
    from recognition.providers.openai import OpenAIProvider

    config = settings.TRANSCRIBER.openai
    return OpenAIProvider(base_url=config.base_url, api_key=config.api_key, model=config.model, paid=config.paid, open_source=open_source)


def whisper_threads() -> int:
    """Processor threads of one worker: the cores divided among the workers, where the config leaves it to us."""
    return int(settings.TRANSCRIBER.whisper.threads) or max(1, (os.cpu_count() or 1) // max(1, settings.TRANSCRIBER.pipeline.workers))


def open_source(source_uri: str) -> AbstractContextManager[Path]:
    """A stored recording as a local file."""
    return local_copy(default_storage, source_uri, settings.DATA_DIR / "scratch" / "sources")


BUILT_IN: dict[str, Callable[[], Provider]] = {"whisper": _whisper, "speechkit": _speechkit, "openai": _openai}
