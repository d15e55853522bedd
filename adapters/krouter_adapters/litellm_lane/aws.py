"""Requests that AWS wants signed with an access key instead of carrying a secret (SigV4).

The account's secret is `ACCESS_KEY_ID:SECRET_ACCESS_KEY`, with `:SESSION_TOKEN` behind it for
temporary credentials; the region stands in the provider's address.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from krouter.adapter import Unsendable
from krouter.blot import blotted, unquoting
from krouter.wire import Incoming
from krouter_adapters.litellm_lane.ways import Aim

SIGNED: Mapping[str, str] = {
    "bedrock": "bedrock",
    "sagemaker_chat": "sagemaker",
    "sagemaker_nova": "sagemaker",
}
"""AWS's name of the service that each of these is."""
_OTHER_KEYS = frozenset(("bedrock",))
"""These also take a key of their own, which is sent as it is."""

_KEYS = re.compile(r"((?:AKIA|ASIA)[A-Z0-9]{8,124}):([^:\s]+)(?::(\S+))?")
_REGION = re.compile(r"(?<![a-z0-9-])[a-z]{2,4}(?:-[a-z]+)+-\d(?![a-z0-9-])")


@dataclass(frozen=True, slots=True)
class AccessKey:
    """An AWS credential. `token` is empty for a permanent one."""

    id: str
    secret: str
    token: str


class Blotted:
    """An error of AWS's, which quotes the whole request where a signature is wrong, less the
    token. What an account's secret is as a whole is not found in it."""

    def __init__(self, reply: Incoming, key: AccessKey) -> None:
        self.status = reply.status
        self.headers = unquoting(reply.headers, (key.secret, key.token))
        self.dropped = reply.dropped
        self._reply = reply
        self._key = key

    async def chunk(self) -> bytes:
        return await self._reply.chunk()

    async def read(self, limit: int) -> bytes:
        return blotted(await self._reply.read(limit), (self._key.secret, self._key.token))

    def ending(self) -> bytes:
        return b""

    def close(self) -> None:
        self._reply.close()


def access_key(goal: Aim, secret: str | None) -> AccessKey | None:
    """The key to sign with; None where the secret itself is sent. Raises Unsendable."""
    if goal.name not in SIGNED:
        return None
    found = _KEYS.fullmatch(secret or "")
    if found:
        return AccessKey(found[1], found[2], found[3] or "")
    if goal.name in _OTHER_KEYS:
        return None
    raise Unsendable(
        f"A request to {goal.name} is signed: the key must be"
        " ACCESS_KEY_ID:SECRET_ACCESS_KEY or ACCESS_KEY_ID:SECRET_ACCESS_KEY:SESSION_TOKEN."
    )


def region_of(goal: Aim) -> str:
    """Raises Unsendable where the address names none: one of the environment is not taken."""
    found = _REGION.search(goal.base)
    if found is None:
        raise Unsendable(f"The base_url of {goal.name} must name the AWS region to sign for.")
    return found[0]
