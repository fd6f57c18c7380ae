"""The codes of google.rpc, and where the service and its gateways put them. Its messages may change: nothing is decided by them."""

from __future__ import annotations

CANCELLED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED, RESOURCE_EXHAUSTED = range(1, 9)
FAILED_PRECONDITION, ABORTED, OUT_OF_RANGE, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS, UNAUTHENTICATED = range(9, 17)


def grpc_code(value: object) -> int | None:
    """google.rpc.Code of an error body of any of the shapes that the service and its gateways have; None if it has none."""
    if not isinstance(value, dict):
        return None
    error = value.get("error")
    status = error if isinstance(error, dict) else value
    code = next((status[key] for key in ("grpcCode", "grpc_code", "code") if key in status), None)
    return code if isinstance(code, int) and not isinstance(code, bool) else None
