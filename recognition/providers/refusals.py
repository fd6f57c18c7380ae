"""Which answers to a submission mean for certain that nothing was begun, and so that nothing was bought."""

from __future__ import annotations

DEFINITE_REFUSALS = frozenset({400, 401, 402, 403, 404, 405, 406, 407, 410, 411, 413, 414, 415, 417, 422, 426, 428, 429, 431, 451})
"""Statuses by which the request itself, its address or its sender is turned away before anything is done with it (RFC 9110, 6585, 7725).

Not among them: what tells of something that is under way or was tried, so that a first request may have been accepted (408, 409, 421, 423, 424,
425, 499), statuses that nobody has defined, and everything below 400 and above 499.
"""
