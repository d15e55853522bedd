"""What one provider is sent: the credential, and the call without what it cannot take."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from krouter.adapter import Call
from krouter.body import Body, dump
from krouter.callers import CallerUnsigned, callers_token
from krouter.dialects.strip import without_images
from krouter.dialects.thinking import thinking_digests, unsigned_digests, without_thinking
from krouter.featureless import without_features
from krouter.features import Feature, in_other_spelling, in_other_words
from krouter.headers import IDEMPOTENCY_KEY
from krouter.limit import Limit
from krouter.lineup import Candidate
from krouter.progress import Part, Progress
from krouter.route import Attempt


class Sendable(Struct, frozen=True):
    """A call as one provider is sent it, its entry's parameters, and what was taken out."""

    call: Call
    params: Mapping[str, Any]
    dropped: tuple[str, ...]


def sendable(progress: Progress, candidate: Candidate, refused: frozenset[Feature]) -> Sendable:
    """The call without what its model is known to refuse; as it came, which is nearly always,
    where that is nothing."""
    foreign = _foreign(progress, candidate)
    if refused or foreign or progress.takes_no_images(candidate):
        return _without(progress, candidate, refused, foreign)
    params = _allowed(candidate.leaf.entry.params, progress.part)
    return Sendable(progress.call, params, ())


def _without(
    progress: Progress, candidate: Candidate, refused: frozenset[Feature], foreign: frozenset[str]
) -> Sendable:
    """The call without what is refused, which may go by another name in a translated one, without
    images where they are not taken, and without thinking that is `foreign`."""
    call, name, dropped = progress.call, progress.call.dialect.name, []
    board, provider, model = progress.world.board, candidate.provider.name, candidate.model
    params = _allowed(candidate.leaf.entry.params, progress.part)

    def drop(feature: Feature) -> bool:
        nonlocal call, params
        body, headers = without_features(call.body, call.headers, (feature,))
        left = _without_feature(params, feature)
        if body is call.body and headers is call.headers and left is params:
            return False
        call, params = replace(call, body=body, headers=headers), left
        dropped.append(str(feature))
        return True

    if progress.takes_no_images(candidate):
        body = without_images(name, call.body)
        if body is not call.body:
            board.images.mattered(provider, model)
            call = replace(call, body=body)
            dropped.append("image")
    if foreign:
        call = replace(call, body=without_thinking(name, call.body, foreign))
        dropped.append("thinking of another provider")
    translated = name not in candidate.provider.speaks
    for feature in sorted(refused, key=str):
        if not drop(feature):
            others = in_other_words(feature) if translated else in_other_spelling(feature)
            for other in others:
                drop(other)
    return Sendable(call, params, tuple(dropped))


def _allowed(params: Mapping[str, Any], part: Part | None) -> Mapping[str, Any]:
    """An entry's parameters, less what a fusion has taken out of the request."""
    if part is None or part.left_out.isdisjoint(params):
        return params
    return {name: value for name, value in params.items() if name not in part.left_out}


def keyed(progress: Progress, call: Call, attempt: Attempt) -> Call:
    """A call of a fusion has an idempotency key of its own, so that no provider takes one of them
    for another and gives it the other's answer."""
    part = progress.part
    if part is None:
        return call
    number = len(progress.route.attempts)
    told = (part.key, part.name, str(number), attempt.provider, attempt.model)
    digest = sha256("\0".join(told).encode("utf-8", "replace"))
    digest.update(call.body.raw)
    headers = [pair for pair in call.headers if pair[0] != IDEMPOTENCY_KEY]
    return replace(call, headers=[*headers, (IDEMPOTENCY_KEY, digest.hexdigest())])


def _without_feature(params: Mapping[str, Any], feature: Feature) -> Mapping[str, Any]:
    """An entry's parameters win over the request's, so they go without it too; the same object
    where they have it not."""
    if not params:
        return params
    given = Body.parse(dump(params))
    left, _ = without_features(given, [], (feature,))
    return params if left is given else {name: left.value(name) for name in left.fields}


def _foreign(progress: Progress, candidate: Candidate) -> frozenset[str]:
    """The thinking in the request that this provider has not signed."""
    if progress.signed is None:
        progress.signed = thinking_digests(progress.call.dialect.name, progress.call.body)
    if not progress.signed:
        return frozenset()
    foreign = progress.world.board.makers.foreign(candidate.provider.maker, progress.signed)
    if candidate.lane.name == "native":
        return foreign | unsigned_digests(progress.call.dialect.name, progress.call.body)
    return foreign


async def secret_for(progress: Progress, candidate: Candidate) -> str | None:
    """Raises SecretError for a credential that cannot be had, TimeoutError at the deadline."""
    account, world, provider = candidate.account, progress.world, candidate.provider
    if account.auth != "caller":
        if account.key is None:
            return None
        if (found := world.secrets.at_hand(account.key)) is not None:
            return found
        with Limit(progress.left()):
            return await world.secrets.reveal(account.key)
    spoken = progress.call.dialect.name
    own = (url for dialect, url in provider.base_urls.items() if dialect == spoken)
    url = next(filter(None, (*own, provider.litellm_base, *provider.base_urls.values())), "")
    token = callers_token(progress.call.headers, provider, url, world.is_own_key)
    if token is None:
        raise CallerUnsigned
    return token
