"""Reads a request's body in a middleware, and lets the app read it again."""

from __future__ import annotations

from starlette.types import Message, Receive


async def read_body(receive: Receive, most: int | None = None) -> tuple[bytes, Receive]:
    """The body, and a function with which the app receives it again.

    Of a body with more than ``most`` bytes only the start is returned.
    """
    messages = [await receive()]
    size = len(messages[-1].get("body", b""))
    while messages[-1].get("more_body") and (most is None or size <= most):
        messages.append(await receive())
        size += len(messages[-1].get("body", b""))
    body = b"".join(message.get("body", b"") for message in messages)

    async def again() -> Message:
        return messages.pop(0) if messages else await receive()

    return body, again
