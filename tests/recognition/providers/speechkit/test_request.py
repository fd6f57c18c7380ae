from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from recognition.bucket import Bucket
from recognition.contract import Misconfigured, Refused
from recognition.providers.speechkit import SpeechKitProvider
from recognition.providers.speechkit.request import Parameters, configured_code, language_code

pytestmark = pytest.mark.no_database


def provider(**changes: Any) -> SpeechKitProvider:
    told: dict[str, Any] = {
        "stt_url": "http://127.0.0.1:9",
        "operations_url": "http://127.0.0.1:9",
        "api_key": "key",
        "model": "general",
        "language": "ru-RU",
        "speaker_labeling": False,
        "poll_interval": timedelta(seconds=10),
        "bucket": Bucket(endpoint_url="http://127.0.0.1:9", region="ru-central1", name="", access_key_id="", secret_access_key=""),
    }
    return SpeechKitProvider(**{**told, **changes})


def test_the_body_is_exactly_this_one() -> None:
    frozen = json.loads(json.dumps(provider(speaker_labeling=True).options(language="", channels=1)))

    assert json.dumps(Parameters.of(frozen).body("https://storage.example/recordings/a.ogg")) == (
        '{"uri": "https://storage.example/recordings/a.ogg", '
        '"recognitionModel": {"model": "general", '
        '"audioFormat": {"containerAudio": {"containerAudioType": "OGG_OPUS"}}, '
        '"textNormalization": {"textNormalization": "TEXT_NORMALIZATION_ENABLED", "profanityFilter": false, "literatureText": true}, '
        '"languageRestriction": {"restrictionType": "WHITELIST", "languageCode": ["ru-RU"]}, '
        '"audioProcessingType": "FULL_DATA"}, '
        '"speakerLabeling": {"speakerLabeling": "SPEAKER_LABELING_ENABLED"}}'
    )


def test_the_frozen_options_decide_and_not_the_configuration_of_the_day() -> None:
    frozen = provider(model="deferred-general", language="en-US").options(language="", channels=2)

    body = Parameters.of(frozen).body("https://storage.example/b/k")

    assert frozen == {
        "model": "deferred-general",
        "language": "en-US",
        "channels": 2,
        "speaker_labeling": False,
        "container": "OGG_OPUS",
        "text_normalization": True,
        "literature_text": True,
        "profanity_filter": False,
    }
    assert body["recognitionModel"]["model"] == "deferred-general"
    assert body["recognitionModel"]["languageRestriction"]["languageCode"] == ["en-US"]
    assert Parameters.of({**frozen, "of_a_later_version": 1}) == Parameters.of(frozen)


def test_speakers_are_told_apart_in_one_channel_alone() -> None:
    labeling = provider(speaker_labeling=True)

    assert labeling.options(language="", channels=1)["speaker_labeling"] is True
    assert labeling.options(language="", channels=2)["speaker_labeling"] is False
    body = Parameters.of(labeling.options(language="", channels=2)).body("u")
    assert body["speakerLabeling"] == {"speakerLabeling": "SPEAKER_LABELING_DISABLED"}


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("ru", "ru-RU"),
        ("RU_ru", "ru-RU"),
        ("en", "en-US"),
        ("en-GB", "en-US"),
        ("pt", "pt-PT"),
        ("pt-br", "pt-BR"),
        ("kk", "kk-KZ"),
        ("he-IL", "he-HE"),
        ("zh-Hans", None),
        ("auto", "auto"),
        ("ja", None),
        ("", None),
    ],
)
def test_language_tags_become_the_codes_of_the_service(tag: str, code: str | None) -> None:
    assert language_code(tag) == code


def test_a_recording_without_a_language_gets_the_configured_one() -> None:
    assert provider(language="auto").options(language="", channels=1)["language"] == "auto"
    assert provider(language="auto").options(language="en", channels=1)["language"] == "en-US"
    assert provider(language="en").options(language="", channels=1)["language"] == "en-US"
    assert configured_code("ja-JP") == "ja-JP"


def test_languages_that_are_not_known_are_said_before_anything_is_paid() -> None:
    with pytest.raises(Refused) as refused:
        provider().options(language="ja", channels=1)
    assert (refused.value.code, refused.value.knows_us) == ("language_unsupported", False)

    with pytest.raises(Misconfigured, match=r"\[speechkit\] language"):
        provider(language="klingon").options(language="", channels=1)


def test_the_quotas_hold_in_every_stretch_of_time_although_calls_leave_late() -> None:
    """The worst case: the first call of a stretch leaves as late as may be, all others at once."""
    late = 0.2
    for kind, stretch, quota in (("submit", 3600.0, 500), ("poll", 1.0, 5)):
        pace = provider().paces[kind]
        left = [late, *(number * pace for number in range(1, quota + 10))]
        assert sum(left[0] <= moment <= left[0] + stretch for moment in left) <= quota
