"""Any server with OpenAI's `/v1/audio/transcriptions`: one request carries the recording there and brings its transcript back."""

from __future__ import annotations

from recognition.providers.openai.provider import OpenAIProvider

__all__ = ["OpenAIProvider"]
