"""Local Whisper (faster-whisper, int8 on CPU): the embedded default. It costs nothing and works inside `poll`.

Importing this package loads none of the heavy libraries; they are loaded with the model, in the process that recognizes.
"""

from __future__ import annotations

from recognition.providers.whisper.model import ensure_model
from recognition.providers.whisper.provider import WhisperProvider

__all__ = ["WhisperProvider", "ensure_model"]
