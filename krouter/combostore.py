"""The folders of combo files, read again when they change."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from krouter.combos import BadReference, Combo, bad_references, parse_combo, problem_of
from krouter.problems import ConfigError, Problem

LARGEST_FILE = 1 << 20
UNSETTLED_NS = 2_000_000_000
"""A file this young may change again without a new time stamp, so it is read once more."""

KIND_ORDER = ("unknown", "cycle", "deep")

Signature = tuple[int, int, int, int] | None
"""Time of change, size, inode and mode; None where a file cannot be looked at."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What a refresh did to the combos served; `problems` are all that stand now."""

    added: frozenset[str]
    removed: frozenset[str]
    changed: frozenset[str]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class _File:
    """What a file said when it was last read."""

    combo: Combo | None = None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class _View:
    combos: Mapping[str, Combo]
    sources: Mapping[str, Path]
    problems: tuple[Problem, ...]


@dataclass(slots=True, eq=False)
class _Candidate:
    """A file's combos that may be served, best first: as it is now, as it last was good."""

    path: Path
    versions: list[Combo]
    good: Combo | None
    problems: list[Problem]
    refused: str
    """The name it would have had."""

    @property
    def fresh(self) -> bool:
        return bool(self.versions) and self.versions[0] != self.good

    @property
    def name(self) -> str:
        return self.versions[0].name if self.versions else self.refused

    def refuse(self, problems: list[Problem]) -> None:
        self.problems = self.problems or problems
        self.refused = self.versions.pop(0).name

    def report(self, served: Mapping[str, _Candidate]) -> Iterator[Problem]:
        """Its problems, saying what is served in spite of them."""
        instead = served.get(self.name)
        hint = f"The last good version of {self.name!r} is served." if instead is self else ""
        if instead and instead is not self:
            hint = f"{self.name!r} is served from {_shown(instead.path)}."
        for problem in self.problems:
            yield replace(problem, hint=f"{problem.hint} {hint}".strip())


class ComboStore:
    """The combos of some folders; of combos with the same name the first folder's is served.

    Reads the folders when it is made. A file that turns bad, and a combo that turns out to refer
    in a circle, to nothing or too deep, is served in its last good version; where there is none,
    a combo of that name in a later folder stands in for it.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = tuple(dict.fromkeys(map(Path, folders)))
        self._lock = threading.Lock()
        self._seen: dict[Path, Signature] = {}
        self._unsettled: set[Path] = set()
        self._files: dict[Path, _File] = {}
        self._good: dict[Path, Combo] = {}
        self._folder_problems: tuple[Problem, ...] = ()
        self._view = _view({}, ())
        self.refresh()

    @property
    def combos(self) -> Mapping[str, Combo]:
        """The combos served now, by name: a snapshot that never changes."""
        return self._view.combos

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All that is wrong in the folders now."""
        return self._view.problems

    @property
    def unserved(self) -> Mapping[str, str]:
        """Names whose file gives no combo, and what is wrong with it."""
        return _unserved(self._view)

    def source(self, name: str) -> Path:
        """The file of the combo `name`. Raises KeyError where there is no such combo."""
        return self._view.sources[name]

    def refresh(self, anew: bool = False) -> Changes | None:
        """Read what changed in the folders and serve it; None if nothing came of it. `anew` is to
        read every file, whether it seems changed or not."""
        with self._lock:
            if anew:
                self._seen = {}
            if not self._read():
                return None
            before, self._view = self._view, self._resolve()
            return _changes(before, self._view)

    def _read(self) -> bool:
        """Read new and changed files; whether anything in the folders is different now."""
        found, folder_problems = _scan(self.folders)
        stale = [path for path, signature in found.items() if self._is_stale(path, signature)]
        if not stale and len(found) == len(self._seen):
            unchanged = folder_problems == self._folder_problems
            self._folder_problems = folder_problems
            return not unchanged
        self._unsettled = {path for path in stale if _young(found[path])}
        read = {path: _read_file(path, found[path]) for path in stale}
        self._files = {path: read.get(path) or self._files[path] for path in found}
        self._seen, self._folder_problems = found, folder_problems
        return True

    def _is_stale(self, path: Path, signature: Signature) -> bool:
        known = path in self._seen and path not in self._unsettled
        return not known or self._seen[path] != signature

    def _resolve(self) -> _View:
        candidates = [self._candidate(path) for path in self._files]
        served, clashes = _claims(self.folders, candidates)
        while bad := bad_references(_combos(served)):
            _refuse_one(bad, served, {c.refused for c in candidates if not c.versions})
            served, clashes = _claims(self.folders, candidates)
        self._good |= {c.path: c.versions[0] for c in served.values()}
        self._good = {path: combo for path, combo in self._good.items() if path in self._files}
        told = [problem for c in candidates for problem in c.report(served)]
        return _view(served, (*self._folder_problems, *told, *clashes))

    def _candidate(self, path: Path) -> _Candidate:
        file, good = self._files[path], self._good.get(path)
        versions = [file.combo] if file.combo else []
        if good and good not in versions:
            versions.append(good)
        return _Candidate(path, versions, good, list(file.problems), path.stem)


class GivenCombos:
    """Combos that a program gives, by name, as their files would hold them; never re-read.

    Those of `behind` stand behind them. Raises ConfigError with every problem of those given.
    """

    def __init__(self, given: Mapping[str, Mapping[str, Any]], behind: ComboStore) -> None:
        read = {name: _read_given(name, content) for name, content in given.items()}
        problems = [problem for file in read.values() for problem in file.problems]
        own = {file.combo.name: file.combo for file in read.values() if file.combo}
        combos = {**behind.combos, **own}
        if not problems:
            bad = (reference for reference in bad_references(combos) if reference.combo in own)
            problems = [problem_of(b, combos, _given_as(b.combo)) for b in bad]
        if problems:
            raise ConfigError(problems)
        self.combos: Mapping[str, Combo] = MappingProxyType(combos)
        self.problems: tuple[Problem, ...] = behind.problems
        self.unserved = {name: why for name, why in behind.unserved.items() if name not in combos}

    def refresh(self, anew: bool = False) -> None:
        """Nothing to read again."""


def _read_given(name: str, content: Mapping[str, Any]) -> _File:
    try:
        return _File(parse_combo(json.dumps(content).encode(), _given_as(name), name))
    except ConfigError as error:
        return _File(None, error.problems)
    except (TypeError, ValueError) as error:
        return _File(None, (Problem(_given_as(name), "", f"not JSON: {error}."),))


def _given_as(name: str) -> str:
    return f"combos[{name!r}]"


def _changes(before: _View, after: _View) -> Changes | None:
    old, new = before.combos, after.combos
    moved = {name for name in old.keys() & new.keys() if old[name] != new[name]}
    if old.keys() == new.keys() and not moved and before.problems == after.problems:
        return None
    return Changes(
        frozenset(new.keys() - old.keys()),
        frozenset(old.keys() - new.keys()),
        frozenset(moved),
        after.problems,
    )


def _combos(served: Mapping[str, _Candidate]) -> dict[str, Combo]:
    return {name: candidate.versions[0] for name, candidate in served.items()}


def _view(served: Mapping[str, _Candidate], problems: tuple[Problem, ...]) -> _View:
    sources = {name: candidate.path for name, candidate in served.items()}
    return _View(MappingProxyType(_combos(served)), MappingProxyType(sources), problems)


def _unserved(view: _View) -> dict[str, str]:
    """The first fault of each file that would be a combo, told without its folder: callers read it
    too."""
    found: dict[str, str] = {}
    for problem in view.problems:
        path = Path(problem.file)
        if path.suffix == ".json" and path.stem not in view.combos:
            found.setdefault(path.stem, str(replace(problem, file=path.name)))
    return found


def _claims(
    folders: Iterable[Path], candidates: Sequence[_Candidate]
) -> tuple[dict[str, _Candidate], list[Problem]]:
    """The candidate that stands for each name, and the files that come too late for theirs."""
    served: dict[str, _Candidate] = {}
    clashes = []
    for folder in folders:
        here: dict[str, _Candidate] = {}
        usable = [c for c in candidates if c.versions and c.path.parent == folder]
        for candidate in sorted(usable, key=_rank):
            first = here.setdefault(candidate.name, candidate)
            if first is not candidate:
                clashes.append(_clash(candidate, first))
        for name in sorted(here):
            served.setdefault(name, here[name])
    return served, clashes


def _rank(candidate: _Candidate) -> tuple[bool, str]:
    return candidate.path.stem != candidate.name, candidate.path.name


def _clash(late: _Candidate, first: _Candidate) -> Problem:
    message = f"a combo {late.name!r} is already in {first.path.name}; this one is not served."
    return Problem(_shown(late.path), "$.name", message)


def _refuse_one(
    bad: Sequence[BadReference], served: Mapping[str, _Candidate], faulty: Collection[str]
) -> None:
    """Go back one version in the one file that most likely broke the references."""
    worst = min(bad, key=lambda b: (KIND_ORDER.index(b.kind), len(b.names)))
    name = _culprit(worst, served)
    path = _shown(served[name].path)
    own = [b for b in bad if b.combo == name] or [replace(worst, at="")]
    served[name].refuse([problem_of(b, _combos(served), path, faulty) for b in own])


def _culprit(bad: BadReference, served: Mapping[str, _Candidate]) -> str:
    """Of the combos on a bad walk, the one to blame: a changed one before an old one.

    A walk that is too deep is mended at its top, the others at their end.
    """
    standing = [name for name in bad.names if name in served]
    fresh = [name for name in standing if served[name].fresh] or standing
    return fresh[0] if bad.kind == "deep" else fresh[-1]


def _scan(folders: Iterable[Path]) -> tuple[dict[Path, Signature], tuple[Problem, ...]]:
    found: dict[Path, Signature] = {}
    problems = []
    for folder in folders:
        try:
            names = sorted(os.listdir(folder))
        except FileNotFoundError:
            continue
        except OSError as error:
            problems.append(Problem(_shown(folder), "", f"cannot be read: {error.strerror}."))
            continue
        paths = (folder / name for name in names if _is_combo_file(name))
        found.update((path, _signature(path)) for path in paths)
    return found, tuple(problems)


def _is_combo_file(name: str) -> bool:
    return name.endswith(".json") and not name.endswith(".schema.json") and name[0] != "."


def _signature(path: Path) -> Signature:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode


def _shown(path: Path) -> str:
    """The path as text that can be printed, whatever bytes are in it."""
    return str(path).encode(errors="replace").decode()


def _young(signature: Signature) -> bool:
    return signature is not None and abs(time.time_ns() - signature[0]) < UNSETTLED_NS


def _read_file(path: Path, signature: Signature) -> _File:
    try:
        return _File(parse_combo(_bytes(path, signature), _shown(path), _shown(Path(path.stem))))
    except ConfigError as error:
        return _File(None, error.problems)
    except OSError as error:
        return _File(None, (Problem(_shown(path), "", f"cannot be read: {error.strerror}."),))


def _bytes(path: Path, signature: Signature) -> bytes:
    if signature and not stat.S_ISREG(signature[3]):
        raise ConfigError([Problem(_shown(path), "", "is not a file.")])
    with path.open("rb") as stream:
        data = stream.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise ConfigError([Problem(_shown(path), "", f"is larger than {LARGEST_FILE} bytes.")])
    return data
