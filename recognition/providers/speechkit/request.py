"""What is asked for: the options that are frozen on a recognition, and the body of the paid request made of them alone.

The service ignores fields that it does not know, so a misspelled one would fail silently: the body is built here and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

AUTO = "auto"

# Codes of the service for a primary language; the first is taken where the region that was asked for is not among them.
_LANGUAGES = {
    "de": ("de-DE",),
    "en": ("en-US",),
    "es": ("es-ES",),
    "fi": ("fi-FI",),
    "fr": ("fr-FR",),
    "he": ("he-HE",),  # its own spelling; Israel's would be he-IL
    "it": ("it-IT",),
    "iw": ("he-HE",),
    "kk": ("kk-KZ",),
    "nl": ("nl-NL",),
    "pl": ("pl-PL",),
    "pt": ("pt-PT", "pt-BR"),
    "ru": ("ru-RU",),
    "sv": ("sv-SE",),
    "tr": ("tr-TR",),
    "uz": ("uz-UZ",),
}
_TAG = re.compile(r"[A-Za-z]{2,3}-[A-Za-z]{2}")


def language_code(tag: str) -> str | None:
    """The service's code for a BCP-47 tag or `auto`; None if it knows none."""
    tag = tag.strip().replace("_", "-")
    if tag.lower() == AUTO:
        return AUTO
    codes = _LANGUAGES.get(tag.split("-")[0].lower(), ())
    return next((code for code in codes if code.lower() == tag.lower()), codes[0] if codes else None)


def configured_code(tag: str) -> str | None:
    """As :func:`language_code`, but a code that is new to us is the operator's word and goes out as it is."""
    return language_code(tag) or (tag if _TAG.fullmatch(tag) else None)


@dataclass(frozen=True, slots=True)
class Parameters:
    """All that decides the text besides the sound. JSON values, so that they can be kept; one of a later version reads those of an earlier."""

    model: str
    language: str
    """A code of the service, or `auto`, in which case it normalizes nothing (no punctuation, no digits)."""
    channels: int
    speaker_labeling: bool
    """Two speakers of one channel are told apart."""
    container: str = "OGG_OPUS"
    text_normalization: bool = True
    literature_text: bool = True
    """Capitals and punctuation; takes normalization."""
    profanity_filter: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        return cls(**{field.name: options[field.name] for field in fields(cls) if field.name in options})

    def as_options(self) -> dict[str, Any]:
        return asdict(self)

    def body(self, source_uri: str) -> dict[str, Any]:
        """The JSON of `recognizeFileAsync`."""
        return {
            "uri": source_uri,
            "recognitionModel": {
                "model": self.model,
                "audioFormat": {"containerAudio": {"containerAudioType": self.container}},
                "textNormalization": {
                    "textNormalization": f"TEXT_NORMALIZATION_{_switch(self.text_normalization)}",
                    "profanityFilter": self.profanity_filter,
                    "literatureText": self.literature_text,
                },
                "languageRestriction": {"restrictionType": "WHITELIST", "languageCode": [self.language]},
                "audioProcessingType": "FULL_DATA",
            },
            "speakerLabeling": {"speakerLabeling": f"SPEAKER_LABELING_{_switch(self.speaker_labeling)}"},
        }


def _switch(on: bool) -> str:
    return "ENABLED" if on else "DISABLED"
