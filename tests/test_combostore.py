from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import krouter.combostore
from krouter.combos import Combo, check_references, parse_combo
from krouter.combostore import LARGEST_FILE, Changes, ComboStore

HOUR_NS = 3_600_000_000_000


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    folder = tmp_path / "shipped"
    folder.mkdir()
    return folder


@pytest.fixture
def store(home: Path, shipped: Path) -> Callable[[], ComboStore]:
    return lambda: ComboStore([home, shipped])


def write(folder: Path, stem: str, *models: str, **fields: Any) -> Path:
    return write_text(folder, stem, json.dumps({"models": models, **fields}))


def write_text(folder: Path, stem: str, text: str) -> Path:
    path = folder / f"{stem}.json"
    path.write_text(text)
    return path


def settle(*paths: Path) -> None:
    """Make files look as if they had been written long ago."""
    for path in paths:
        old = path.stat().st_mtime_ns - HOUR_NS
        os.utime(path, ns=(old, old))


def models(store: ComboStore, name: str) -> list[str]:
    return [entry.model for entry in store.combos[name].models]


def told(store: ComboStore) -> list[tuple[str, str]]:
    return [(Path(problem.file).name, problem.path) for problem in store.problems]


def names(changes: Changes | None) -> tuple[set[str], set[str], set[str]]:
    assert changes is not None
    return set(changes.added), set(changes.removed), set(changes.changed)


def test_missing_folders_are_fine(tmp_path: Path) -> None:
    empty = ComboStore([tmp_path / "none", tmp_path / "nor this"])
    assert (dict(empty.combos), empty.problems, empty.refresh()) == ({}, (), None)


def test_a_folder_that_appears_later_is_read(tmp_path: Path) -> None:
    store = ComboStore([tmp_path / "later"])
    (tmp_path / "later").mkdir()
    assert store.refresh() is None
    write(tmp_path / "later", "daily", "glm/a")
    assert names(store.refresh()) == ({"daily"}, set(), set())


def test_a_folder_that_is_a_file_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    (problem,) = ComboStore([path]).problems
    assert problem.message == "cannot be read: Not a directory."


def test_the_first_folder_wins(home: Path, shipped: Path, store: Callable[[], ComboStore]) -> None:
    mine = write(home, "daily", "glm/mine")
    write(shipped, "daily", "glm/theirs")
    write(shipped, "panel", "glm/theirs")
    both = store()
    assert models(both, "daily") == ["glm/mine"]
    assert (both.source("daily"), both.source("panel")) == (mine, shipped / "panel.json")
    assert list(both.combos) == ["daily", "panel"]
    with pytest.raises(KeyError):
        both.source("../daily")


def test_added_changed_and_removed(
    home: Path, shipped: Path, store: Callable[[], ComboStore]
) -> None:
    gone = write(home, "gone", "glm/a")
    write(home, "kept", "glm/a")
    write(home, "edited", "glm/a")
    write(shipped, "edited", "glm/s")
    now = store()
    before = now.combos
    gone.unlink()
    write(home, "edited", "glm/b")
    write(home, "new", "glm/a")
    assert names(now.refresh()) == ({"new"}, {"gone"}, {"edited"})
    assert set(before) == {"gone", "kept", "edited"}
    (home / "edited.json").unlink()
    assert names(now.refresh()) == (set(), set(), {"edited"})
    assert models(now, "edited") == ["glm/s"]


def test_settled_files_are_not_read_again(
    home: Path, store: Callable[[], ComboStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(write(home, "daily", "glm/a"))
    now = store()
    monkeypatch.setattr(krouter.combostore, "parse_combo", None)
    assert now.refresh() is None


def test_only_changed_files_are_read(
    home: Path, store: Callable[[], ComboStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(write(home, "a", "glm/a"), write(home, "b", "glm/a"))
    now = store()
    read: list[str] = []

    def parse(data: bytes, file: str, stem: str) -> Combo:
        read.append(stem)
        return parse_combo(data, file, stem)

    monkeypatch.setattr(krouter.combostore, "parse_combo", parse)
    write(home, "b", "glm/b")
    assert names(now.refresh()) == (set(), set(), {"b"})
    assert read == ["b"]


def test_a_second_write_within_one_time_stamp_is_seen(
    home: Path, store: Callable[[], ComboStore]
) -> None:
    path = write(home, "daily", "glm/a")
    status = path.stat()
    now = store()
    write(home, "daily", "glm/b")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert names(now.refresh()) == (set(), set(), {"daily"})


def test_equal_content_changes_nothing(home: Path, store: Callable[[], ComboStore]) -> None:
    settle(write(home, "daily", "glm/a"))
    now = store()
    write_text(home, "daily", '{"name": "daily",\n"models": [{"model": "glm/a"}]}')
    assert now.refresh() is None


def test_a_file_replaced_by_another_is_read(home: Path, store: Callable[[], ComboStore]) -> None:
    path = write(home, "daily", "glm/a")
    settle(path)
    now = store()
    other = write(home.parent, "other", "glm/b")
    os.utime(other, ns=(path.stat().st_mtime_ns,) * 2)
    other.replace(path)
    assert names(now.refresh()) == (set(), set(), {"daily"})


def test_a_bad_file_keeps_its_last_good_version(
    home: Path, store: Callable[[], ComboStore]
) -> None:
    write(home, "daily", "glm/a")
    now = store()
    write_text(home, "daily", '{"models": [')
    changes = now.refresh()
    assert names(changes) == (set(), set(), set())
    assert models(now, "daily") == ["glm/a"]
    (problem,) = now.problems
    assert changes is not None
    assert changes.problems == now.problems
    assert problem.hint == "The last good version of 'daily' is served."
    write(home, "daily", "glm/b")
    assert names(now.refresh()) == (set(), set(), {"daily"})
    assert now.problems == ()


def test_what_names_a_faulty_combo_is_told_so(home: Path, store: Callable[[], ComboStore]) -> None:
    write_text(home, "inner", "{")
    write(home, "middle", "inner")
    write(home, "outer", "middle")
    messages = {Path(p.file).stem: p.message for p in store().problems}
    assert messages.pop("inner").startswith("not JSON")
    assert messages == {
        "middle": "the combo 'inner' has errors itself: middle → inner.",
        "outer": "the combo 'middle' has errors itself: outer → middle.",
    }


def test_a_bad_file_keeps_the_name_it_had(home: Path, store: Callable[[], ComboStore]) -> None:
    write(home, "file", "glm/a", name="daily")
    now = store()
    write_text(home, "file", "{}")
    now.refresh()
    assert list(now.combos) == ["daily"]


def test_a_removed_bad_file_takes_its_last_good_version_with_it(
    home: Path, store: Callable[[], ComboStore]
) -> None:
    write(home, "daily", "glm/a")
    now = store()
    path = write_text(home, "daily", "")
    now.refresh()
    path.unlink()
    assert names(now.refresh()) == (set(), {"daily"}, set())
    write_text(home, "daily", "")
    now.refresh()
    assert (dict(now.combos), told(now)) == ({}, [("daily.json", "")])


def test_a_later_folder_stands_in_for_a_file_never_good(
    home: Path, shipped: Path, store: Callable[[], ComboStore]
) -> None:
    write_text(home, "daily", "{")
    path = write(shipped, "daily", "glm/s")
    now = store()
    assert now.source("daily") == path
    assert [problem.hint for problem in now.problems] == [f"'daily' is served from {path}."]
    write(home, "daily", "glm/a")
    assert names(now.refresh()) == (set(), set(), {"daily"})
    write_text(home, "daily", "{")
    now.refresh()
    assert models(now, "daily") == ["glm/a"]


def test_two_files_with_one_name(home: Path, store: Callable[[], ComboStore]) -> None:
    write(home, "a", "glm/a", name="x")
    write(home, "b", "glm/b", name="x")
    now = store()
    assert models(now, "x") == ["glm/a"]
    assert told(now) == [("b.json", "$.name")]
    write(home, "x", "glm/x")
    assert names(now.refresh()) == (set(), set(), {"x"})
    assert told(now) == [("a.json", "$.name"), ("b.json", "$.name")]


def test_a_new_circle_is_refused_while_the_others_are_taken(
    home: Path, store: Callable[[], ComboStore]
) -> None:
    write(home, "a", "b", "glm/a")
    write(home, "b", "glm/b")
    now = store()
    write(home, "b", "a")
    write(home, "c", "glm/c")
    assert names(now.refresh()) == ({"c"}, set(), set())
    assert models(now, "b") == ["glm/b"]
    (problem,) = now.problems
    assert (Path(problem.file).name, problem.path) == ("b.json", "$.models[0]")
    assert str(problem).endswith("b → a → b. The last good version of 'b' is served.")


def test_bad_references_at_the_start_leave_the_others(
    home: Path, store: Callable[[], ComboStore]
) -> None:
    write(home, "a", "b")
    write(home, "b", "a")
    write(home, "lost", "nowhere")
    write(home, "top", "one")
    write(home, "one", "two")
    write(home, "two", "three")
    write(home, "three", "glm/x")
    now = store()
    assert set(now.combos) == {"one", "two", "three"}
    assert told(now) == [(f"{name}.json", "$.models[0]") for name in ("a", "b", "lost", "top")]


def test_a_middle_level_that_grows_too_deep_is_the_one_refused(
    home: Path, store: Callable[[], ComboStore]
) -> None:
    write(home, "top", "one")
    write(home, "one", "glm/x")
    write(home, "two", "three")
    write(home, "three", "glm/x")
    now = store()
    write(home, "one", "two")
    assert names(now.refresh()) == (set(), set(), set())
    assert models(now, "one") == ["glm/x"]
    (problem,) = now.problems
    assert problem.message.endswith("top → one → two → three.")
    assert Path(problem.file).name == "one.json"


def test_a_combo_whose_reference_vanished_comes_back_with_it(
    home: Path, store: Callable[[], ComboStore]
) -> None:
    write(home, "a", "b")
    path = write(home, "b", "glm/b")
    now = store()
    path.unlink()
    assert names(now.refresh()) == (set(), {"a", "b"}, set())
    assert told(now) == [("a.json", "$.models[0]")]
    write(home, "b", "glm/c")
    assert names(now.refresh()) == ({"a", "b"}, set(), set())
    assert now.problems == ()


def test_a_combo_may_refer_to_a_later_folder(
    home: Path, shipped: Path, store: Callable[[], ComboStore]
) -> None:
    write(home, "a", "daily")
    write(shipped, "daily", "glm/s")
    assert set(store().combos) == {"a", "daily"}


def test_a_hidden_combo_is_not_taken_for_good(
    home: Path, shipped: Path, store: Callable[[], ComboStore]
) -> None:
    path = write(home, "x", "glm/mine")
    write(shipped, "x", "nowhere")
    now = store()
    assert now.problems == ()
    path.unlink()
    assert names(now.refresh()) == (set(), {"x"}, set())
    assert told(now) == [("x.json", "$.models[0]")]


def _directory(path: Path) -> None:
    path.mkdir()


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def _circular(path: Path) -> None:
    path.symlink_to(path.name)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _latin(path: Path) -> None:
    path.write_bytes(b'{"models": ["a/b"], "description": "caf\xe9"}')


def _huge(path: Path) -> None:
    path.write_bytes(b" " * (LARGEST_FILE + 1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_directory, "is not a file."),
        (_pipe, "is not a file."),
        (_dangling, "cannot be read: No such file or directory."),
        (_circular, "cannot be read: Too many levels of symbolic links."),
        (_latin, "not UTF-8: byte 39 cannot be read."),
        (_huge, f"is larger than {LARGEST_FILE} bytes."),
    ],
)
def test_what_is_no_readable_file_is_a_problem(
    make: Callable[[Path], None], message: str, home: Path, store: Callable[[], ComboStore]
) -> None:
    make(home / "odd.json")
    write(home, "daily", "glm/a")
    now = store()
    assert set(now.combos) == {"daily"}
    assert [problem.message for problem in now.problems] == [message]
    assert now.refresh() is None


def test_what_is_not_a_combo_file_is_left_alone(
    home: Path, store: Callable[[], ComboStore]
) -> None:
    for name in ("combo.schema.json", ".#daily.json", "daily.json~", "notes.txt"):
        (home / name).write_text("{")
    now = store()
    assert (dict(now.combos), now.problems) == ({}, ())


def test_a_name_of_odd_bytes_can_be_told(home: Path, store: Callable[[], ComboStore]) -> None:
    Path(os.fsdecode(os.fsencode(home) + b"/caf\xe9.json")).write_text('{"models": ["a/b"]}')
    (problem,) = store().problems
    assert str(problem).encode()


def test_the_snapshot_cannot_be_written(home: Path, store: Callable[[], ComboStore]) -> None:
    write(home, "daily", "glm/a")
    with pytest.raises(TypeError):
        store().combos["x"] = None  # type: ignore[index]


def test_the_shipped_folder_is_sound() -> None:
    store = ComboStore([Path(krouter.combostore.__file__).parents[1] / "combos"])
    assert set(store.combos) >= {"daily", "demo", "free-tier", "panel"}
    assert store.problems == ()
    assert store.combos["panel"].strategy == "fusion"


NAMES = st.sampled_from("abcd")
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["home", "shipped"]),
        NAMES,
        st.none() | st.just("{") | st.lists(st.sampled_from("abcde"), max_size=2),
    ),
    max_size=12,
)


def edit(path: Path, content: str | list[str] | None) -> None:
    if content is None:
        path.unlink(missing_ok=True)
    elif isinstance(content, str):
        path.write_text(content)
    else:
        path.write_text(json.dumps({"models": ["glm/x", *content]}))


@given(EDITS)
def test_whatever_is_edited_what_is_served_runs_whole(
    edits: list[tuple[str, str, str | list[str] | None]],
) -> None:
    with tempfile.TemporaryDirectory() as root:
        folders = [Path(root, "home"), Path(root, "shipped")]
        for folder in folders:
            folder.mkdir()
        store = ComboStore(folders)
        for folder_name, stem, content in edits:
            before = store.combos
            edit(Path(root, folder_name, f"{stem}.json"), content)
            changes = store.refresh()
            assert check_references(store.combos) == []
            assert all(store.source(name).stem == name for name in store.combos)
            if content is not None:
                assert store.combos.keys() >= before.keys()
            assert (changes is None) or changes.problems == store.problems
