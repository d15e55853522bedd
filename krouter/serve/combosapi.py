"""`/api/combos/NAME`: a combo's file is read, judged, saved and deleted."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel, ConfigDict, model_validator

from krouter.load import House
from krouter.serve.admin import read_json
from krouter.serve.combofiles import (
    ComboFiles,
    Draft,
    check_name,
    refused,
    told_problems,
    unified,
)


class Given(BaseModel):
    """A combo as an object or as the text of its file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    combo: dict[str, Any] | None = None
    text: str | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Given:
        if (self.combo is None) is (self.text is None):
            raise ValueError("needs either combo, an object, or text, that of a file")
        return self

    @property
    def content(self) -> dict[str, Any] | str:
        return self.text if self.combo is None else self.combo  # type: ignore[return-value]


class Saved(Given):
    """The same, with the digest of the file as it was read; empty where there was none."""

    digest: str = ""


class Previewed(Given):
    """The same; where a digest is given, whether the file is still the same is told too."""

    digest: str | None = None


def add_combos(app: FastAPI, house: House) -> None:
    """The files of combos."""
    files = ComboFiles(house)
    alone = asyncio.Lock()
    """Each change is judged by what is served after the one before it."""

    def judged(name: str, given: Given) -> tuple[Draft, str]:
        old = files.stored(name)
        draft = files.draft(name, given.content, old)
        return draft, unified(old.text if old else "", draft.text, f"{name}.json")

    @app.get("/api/combos/{name:path}")
    async def read(name: str) -> dict[str, Any]:
        stored = await asyncio.to_thread(files.stored, name)
        if stored is None:
            raise HTTPException(404, f"There is no combo {name!r}.")
        return {
            "text": stored.text,
            "digest": stored.digest,
            "shipped": stored.shipped,
            "returns": files.comes_back(stored, name),
        }

    @app.post("/api/combos/{name:path}/preview")
    async def preview(name: str, request: Request) -> dict[str, Any]:
        given = await read_json(request, Previewed)
        if given.digest is not None:
            await asyncio.to_thread(files.expect, name, given.digest)
        draft, diff = await asyncio.to_thread(judged, name, given)
        meaning = await asyncio.to_thread(files.meaning, name, draft)
        return {"problems": told_problems(draft.problems), "diff": diff, "meaning": meaning}

    @app.put("/api/combos/{name:path}")
    async def save(name: str, request: Request) -> dict[str, Any]:
        given = await read_json(request, Saved)
        async with alone:
            draft, diff = await asyncio.to_thread(judged, name, given)
            if not draft.is_good:
                raise refused([each for each in draft.problems if each.level == "error"])
            stored = await asyncio.to_thread(files.save, name, draft, given.digest)
            await house.take_in()
        return {"digest": stored.digest, "diff": diff}

    @app.delete("/api/combos/{name:path}")
    async def delete(name: str, digest: str) -> dict[str, Any]:
        check_name(name)
        async with alone:
            await asyncio.to_thread(files.delete, name, digest)
            await house.take_in()
        return {"deleted": name, "served": name in house.router.world.combos}
