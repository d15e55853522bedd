"""The files of combos, as they are read, judged and written for whoever runs krouter."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import stat
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from krouter.board import Board
from krouter.changes import changes
from krouter.combos import NAME_PATTERN, Combo, bad_references, parse_combo, problem_of, reference
from krouter.combostore import LARGEST_FILE, ComboStore
from krouter.coverage import furnished
from krouter.faults import unknown_accounts
from krouter.load import House
from krouter.meaning import meaning
from krouter.paths import shipped_combos
from krouter.pool import Pool
from krouter.private import check_regular
from krouter.problems import ConfigError, Problem, did_you_mean, is_deep
from krouter.serve.intake import Refusal
from krouter.serve.layout import Layout, laid_out, layout_of
from krouter.serve.view import shown_path
from krouter.world import World
from krouter.written import replace_whole, target_of


@dataclass(frozen=True, slots=True)
class Stored:
    """A combo's file as it is. `shipped` says that it comes with krouter, and is never written."""

    path: Path
    raw: bytes
    shipped: bool

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.raw).hexdigest()

    @property
    def text(self) -> str:
        return self.raw.decode("utf-8-sig", "replace")


@dataclass(frozen=True, slots=True)
class Draft:
    """What a file would become: its text, the combo in it, and all that is wrong with it."""

    text: str
    combo: Combo | None
    problems: tuple[Problem, ...]

    @property
    def is_good(self) -> bool:
        return all(problem.level != "error" for problem in self.problems)


class ComboFiles:
    """Reads and writes combos of the first folder; those that ship stand behind them."""

    def __init__(self, house: House) -> None:
        assert isinstance(house.store, ComboStore), "files are what is served"
        self._house = house
        self._store = house.store
        self._folder = house.store.folders[0]
        self._writing = threading.Lock()

    def stored(self, name: str) -> Stored | None:
        """The file that `name` is served from, or that keeps it from being served; None where
        there is none. Raises Refusal."""
        path = self._own(name)
        shipped = path is None
        if path is None and name in self._store.combos:
            path = self._store.source(name)
        if path is None:
            return None
        try:
            check_regular(path)
            with path.open("rb") as file:
                raw = file.read(LARGEST_FILE + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(path, error) from None
        return Stored(path, raw, shipped)

    def comes_back(self, stored: Stored, name: str) -> bool:
        """Whether the combo of this name that ships would stand in for a file that is deleted."""
        stand_in = _shipped(name)
        return stand_in is not None and not stored.shipped and not _same(stand_in[0], stored.path)

    def _own(self, name: str) -> Path | None:
        """Its file in the first folder. Raises Refusal where that holds another combo."""
        check_name(name)
        if name in self._store.combos:
            source = self._store.source(name)
            if source.parent == self._folder:
                return source
        path = self._folder / f"{name}.json"
        others = (other for other in self._store.combos if self._store.source(other) == path)
        if other := next(others, None):
            raise Refusal(409, f"{path.name} holds the combo {other!r}: rename that file first.")
        return path if path.is_symlink() or path.exists() else None

    def draft(self, name: str, content: Mapping[str, Any] | str, old: Stored | None) -> Draft:
        """What saving `content`, an object or a file's text, would come to."""
        path = self._target(name, old)
        text = content if isinstance(content, str) else _laid_out(content, old)
        file = shown_path(path)
        raw = text.encode("utf-8", "surrogatepass")
        if len(raw) > LARGEST_FILE:
            return Draft(text, None, (Problem(file, "", f"is larger than {LARGEST_FILE} bytes."),))
        try:
            combo = parse_combo(raw, file, path.stem)
        except ConfigError as error:
            return Draft(text, None, error.problems)
        return Draft(text, combo, tuple(self._faults(name, combo, file)))

    def _target(self, name: str, old: Stored | None) -> Path:
        return self._folder / f"{name}.json" if old is None or old.shipped else old.path

    def _faults(self, name: str, combo: Combo, file: str) -> Iterator[Problem]:
        if combo.name != name:
            message = f"the combo is called {combo.name!r} here, and saved as {name!r}."
            yield Problem(file, "$.name", message, "A combo is renamed by saving it as another.")
        yield from _unresolved({**self._store.combos, name: combo}, name, file)
        world = self._house.router.world
        yield from _unknown_providers(combo, world, file)
        for problem in unknown_accounts(combo, world.registry, world.accounts, file):
            yield replace(problem, level="warning")

    def meaning(self, name: str, draft: Draft) -> list[str]:
        """What the draft would change, in words."""
        old, new = self._store.combos.get(name), draft.combo
        if old is None or new is None or not draft.is_good:
            return []
        world = _untouched(self._house.router.world)
        before = meaning(old, world)
        after = meaning(new, replace(world, combos={**world.combos, name: new}))
        return [change.text for change in changes(before, after)]

    def save(self, name: str, draft: Draft, digest: str) -> Stored:
        """Writes a good draft, if the file still is as it was read. Raises Refusal."""
        with self._writing:
            old = self.expect(name, digest)
            path = target_of(self._target(name, old))
            raw = draft.text.encode()
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                check_regular(path)
                replace_whole(path, raw, _mode(path))
            except OSError as error:
                raise _unwritable(path, error) from None
        return Stored(path, raw, False)

    def delete(self, name: str, digest: str) -> None:
        """Removes a file of the first folder, or the link to it. Raises Refusal."""
        with self._writing:
            old = self.expect(name, digest)
            if old is None:
                raise Refusal(404, f"There is no combo {name!r}.")
            if old.shipped:
                raise Refusal(409, f"The combo {name!r} comes with krouter, and cannot be deleted.")
            if problems := list(self._missed(name)):
                raise refused(problems)
            try:
                old.path.unlink()
            except OSError as error:
                raise _unwritable(old.path, error) from None

    def _missed(self, name: str) -> Iterator[Problem]:
        """Who refers to a combo that nothing would stand in for."""
        rest = {each: combo for each, combo in self._store.combos.items() if each != name}
        path = self._own(name)
        if (stand_in := _shipped(name)) is not None and not _same(stand_in[0], path):
            rest[name] = stand_in[1]
        yield from _unresolved(rest, name, name)

    def expect(self, name: str, digest: str) -> Stored | None:
        """The file, if it is what `digest` was taken of. Raises Refusal."""
        old = self.stored(name)
        if (old.digest if old else "") == digest:
            return old
        how = "has changed since it was read" if old and digest else "is there already"
        how = how if old else "is gone"
        raise Refusal(409, f"The file of the combo {name!r} {how}: read it again.")


def _same(one: Path, other: Path | None) -> bool:
    return other is not None and one.resolve() == other.resolve()


def _shipped(name: str) -> tuple[Path, Combo] | None:
    """The combo of this name that comes with krouter, and its file."""
    store = ComboStore([shipped_combos()])
    return (store.source(name), store.combos[name]) if name in store.combos else None


def check_name(name: str) -> None:
    """Raises Refusal for what can be no combo's name, or no name of its file."""
    if not re.fullmatch(NAME_PATTERN.strip("^$"), name):
        message = "A combo's name is 1 to 100 of letters, digits, '_', '.' and '-'."
        raise Refusal(400, f"{name[:100]!r} is no combo's name. {message}")
    if name.startswith(".") or name.endswith(".schema"):
        raise Refusal(400, f"A file called {name}.json would not be taken for a combo.")


def refused(problems: list[Problem]) -> Refusal:
    """What is wrong with files, as the caller is told it."""
    told = " ".join(f"{p.path or p.file}: {p.message} {p.hint}".strip() for p in problems)
    return Refusal(422, told, notes={"problems": told_problems(problems)})


def told_problems(problems: list[Problem] | tuple[Problem, ...]) -> list[dict[str, str]]:
    """Where each is, what it is, what to do, and whether it is an error or a warning."""
    return [
        {"path": p.path, "message": p.message, "hint": p.hint, "level": p.level} for p in problems
    ]


def unified(old: str, new: str, file: str) -> str:
    """What of a file's text changes; empty for nothing."""
    lines = difflib.unified_diff(
        old.splitlines(), new.splitlines(), f"a/{file}", f"b/{file}", lineterm=""
    )
    return "".join(f"{line}\n" for line in lines)


def _laid_out(content: Mapping[str, Any], old: Stored | None) -> str:
    if is_deep(content):
        return json.dumps(content)  # which is refused
    try:
        layout = layout_of(old.text) if old else Layout()
    except (ValueError, RecursionError):  # a bad file is written anew
        layout = Layout()
    return laid_out(content, layout)


def _unresolved(combos: Mapping[str, Combo], name: str, file: str) -> Iterator[Problem]:
    """References that lead nowhere, with the combo that has each where that is not `name`."""
    for bad in bad_references(combos):
        problem = problem_of(bad, combos, file)
        if bad.combo == name:
            yield problem
        else:
            message = f"the combo {bad.combo!r} at {bad.at}: {problem.message}"
            yield replace(problem, path="", message=message)


def _unknown_providers(combo: Combo, world: World, file: str) -> Iterator[Problem]:
    for place, entry in enumerate(combo.models):
        if reference(entry.model) is None and world.registry.split(entry.model)[0] is None:
            alias = entry.model.partition("/")[0]
            hint = did_you_mean(alias, world.registry.names_with_aliases())
            message = f"no provider {alias!r} is known, so nothing can be sent there."
            yield Problem(file, f"$.models[{place}]", message, hint, "warning")


def _untouched(world: World) -> World:
    """The same with every account, where nothing has happened: so it can be looked at beside the
    event loop."""
    now = world.pool.now
    return furnished(replace(world, board=Board(now), pool=Pool.empty(now)))


def _mode(path: Path) -> int:
    """Whoever could read the file still can; a new one is its owner's alone."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return 0o600


def _unreadable(path: Path, error: OSError) -> Refusal:
    return Refusal(409, f"{shown_path(path)} cannot be read: {error.strerror or error}.")


def _unwritable(path: Path, error: OSError) -> Refusal:
    return Refusal(409, f"{shown_path(path)} cannot be written: {error.strerror or error}.")
