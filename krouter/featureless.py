"""A request without the optional features that its provider refuses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import msgspec

from krouter.body import Body, dump
from krouter.features import BETA_HEADER, DEEPEST, KEPT, Feature

Headers = list[tuple[str, str]]


def without_features(
    body: Body, headers: Headers, features: Collection[Feature]
) -> tuple[Body, Headers]:
    """The request without these features, all else as it came; the same objects where it has none
    of them."""
    for feature in features:
        if feature.name == BETA_HEADER:
            headers = _without_beta(headers, feature.word)
        elif feature.name.startswith("cache_control"):
            body = _without_cache_control(body, feature.name.partition(".")[2])
        elif feature.name.startswith(("tools[*].", "messages[*].")):
            field, _, key = feature.name.partition("[*].")
            fields = ("messages", "input") if field == "messages" else (field,)
            body = _each(body, fields, key, partial(_pop_from, key))
        elif "." in feature.name:
            body = _without_inside(body, *feature.name.split("."))
        else:
            body = _without_field(body, feature.name)
    return body, headers


def _without_beta(headers: Headers, word: str) -> Headers:
    kept: Headers = []
    for name, value in headers:
        if name.lower() == BETA_HEADER:
            words = [one.strip() for one in value.split(",")]
            left = [one for one in words if word and one and one != word]
            if left == words:
                kept.append((name, value))
            elif left:
                kept.append((name, ",".join(left)))
        else:
            kept.append((name, value))
    return headers if kept == headers else kept


def _without_field(body: Body, name: str) -> Body:
    if name not in body.fields:
        return body
    value = body.value(name)
    inner = value if isinstance(value, dict) else {}
    kept = {key: each for key, each in inner.items() if key in KEPT.get(name, ())}
    if kept == value:
        return body
    return Body.parse(body.edited({name: kept}) if kept else body.edited({}, (name,)))


def _without_inside(body: Body, name: str, *path: str) -> Body:
    """Objects that are empty without it go too. Errors put steps between that no request has, such
    as the `enabled` of `thinking.enabled.display`."""
    whole = body.value(name)
    chain, inner = [], whole
    for key in path:
        if isinstance(inner, dict) and key in inner:
            chain.append((inner, key))
            inner = inner[key]
    if not chain or chain[-1][1] != path[-1]:
        return body
    for holder, key in reversed(chain):
        del holder[key]
        if holder:
            return Body.parse(body.edited({name: whole}))
    return Body.parse(body.edited({}, (name,)))


def _without_cache_control(body: Body, inner: str) -> Body:
    """`inner` is the one key of the marks to take out; all of them if empty."""
    if "cache_control" in body.fields:
        body = (
            _without_inside(body, "cache_control", inner)
            if inner
            else _without_field(body, "cache_control")
        )

    def remove(item: Any) -> bool:
        changed = False
        for holder in _with_blocks(item):
            mark = holder.get("cache_control")
            if not inner:
                changed |= _pop([holder], "cache_control")
            elif isinstance(mark, dict):
                changed |= _pop([mark], inner)
        return changed

    return _each(body, ("system", "tools", "messages", "input"), "cache_control", remove)


def _each(body: Body, fields: tuple[str, ...], key: str, remove: Callable[[Any], bool]) -> Body:
    """The body with `remove` done to every item of these lists that has the key in it."""
    quoted = b'"' + key.encode() + b'"'
    changes = {}
    for name in fields:
        raw = body.fields.get(name)
        if raw is None or quoted not in bytes(raw):
            continue
        try:
            items = msgspec.json.decode(raw, type=list[msgspec.Raw])
        except (msgspec.MsgspecError, RecursionError):
            continue
        for at, item_raw in enumerate(items):
            if quoted in bytes(item_raw):
                item = Body(b"", {"item": item_raw}).value("item")
                if remove(item):
                    items[at] = msgspec.Raw(dump(item))
                    changes[name] = items
    return Body.parse(body.edited(changes)) if changes else body


def _pop(holders: Collection[Any], key: str) -> bool:
    """Whether the key stood in one of them; it no longer does."""
    having = [holder for holder in holders if isinstance(holder, dict) and key in holder]
    for holder in having:
        del holder[key]
    return bool(having)


def _pop_from(key: str, item: Any) -> bool:
    return _pop(_with_nested(item), key)


def _with_nested(item: Any) -> list[Any]:
    """A message or tool, a tool's `function`, and the tools in a namespace."""
    if not isinstance(item, dict):
        return []
    inner = item.get("tools")
    return [item, item.get("function"), *(inner if isinstance(inner, list) else ())]


def _with_blocks(item: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    """An item and the content blocks in it; not what stands in a tool's input or schema."""
    if isinstance(item, dict):
        yield item
        yield from (one for one in _with_nested(item)[1:] if isinstance(one, dict))
        content = item.get("content")
        if isinstance(content, list) and depth < DEEPEST:
            for block in content:
                yield from _with_blocks(block, depth + 1)
