"""Settings, keys and ledger are their owner's alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from krouter.cli.root import cli
from krouter.cli.serve import welcome
from krouter.keys import add_key
from krouter.private import exposure, make_private
from tests.harness import Krouter

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")


@pytest.fixture
def no_umask() -> Iterator[None]:
    """Nothing is taken away from what a program asks for."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def open_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that everybody may enter, as those above it."""
    changed = [folder for folder in (tmp_path, *tmp_path.parents) if folder.owner() == _me()]
    changed = [each for each in changed if each.name and not each.stat().st_mode & 0o001]
    modes = [(each, stat.S_IMODE(each.stat().st_mode)) for each in changed]
    for each, mode in modes:
        each.chmod(mode | 0o001)
    yield tmp_path
    for each, mode in modes:
        each.chmod(mode)


def _me() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


def modes(home: Path, *starts: str) -> dict[str, int]:
    found = (path for path in home.iterdir() if path.name.startswith(starts))
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in found}


@pytest.mark.usefixtures("no_umask")
def test_what_krouter_makes_is_its_owners_alone(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    add_key(home / "keys.json", "laptop", 0.0)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    (home / "keys.json").unlink()
    with Krouter(home, ledger=True) as krouter:
        assert krouter.chat("demo").status_code == 200
        ledger = krouter.served.house.ledger
        assert ledger is not None
        assert ledger.flush(30)
        assert krouter.chat("demo").status_code == 200
        found = modes(home, "ledger.db")
        assert {"ledger.db", "ledger.db-wal", "ledger.db-shm"} < found.keys()
        assert any("journal" in name for name in found)
        assert set(found.values()) == {0o600}


@pytest.mark.usefixtures("no_umask")
def test_a_ledger_that_others_may_read_is_mended(tmp_path: Path) -> None:
    for _ in range(2):
        with Krouter(tmp_path, ledger=True) as krouter:
            krouter.chat("demo")
            ledger = krouter.served.house.ledger
            assert ledger is not None
            assert ledger.flush(30)
            assert set(modes(tmp_path, "ledger.db").values()) == {0o600}
        for path in tmp_path.glob("ledger.db*"):
            path.chmod(0o664)


def test_a_file_of_keys_that_others_may_read_is_mended(tmp_path: Path) -> None:
    add_key(tmp_path / "keys.json", "laptop", 0.0)
    (tmp_path / "keys.json").chmod(0o644)
    with Krouter(tmp_path):
        assert modes(tmp_path, "keys.json") == {"keys.json": 0o600}


def test_what_is_no_file_of_ones_own_is_left_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o755)
    make_private(folder)
    make_private(tmp_path / "none")
    make_private(Path("/dev/null"))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert os.stat("/dev/null").st_mode & 0o666 == 0o666


def test_a_file_of_a_credential_that_others_may_read_is_warned_of(open_folder: Path) -> None:
    settings, secret = open_folder / "krouter.toml", open_folder / "glm.key"
    text = '[[account]]\nprovider = "glm"\nname = "a"\nkey = "file:glm.key"\n'
    settings.write_text(text)
    settings.chmod(0o600)
    secret.write_text("sk-secret")
    seen = []
    for mode in (0o600, 0o644, 0o666):
        secret.chmod(mode)
        checked = CliRunner().invoke(cli, ["check", "--home", str(open_folder)])
        assert checked.exit_code == 0
        assert "sk-secret" not in checked.output
        seen.append([line for line in checked.output.splitlines() if str(secret) in line])
    with Krouter(open_folder, settings=text) as krouter:
        assert any(str(secret) in line for line in welcome(krouter.served))
    told = "others on this machine may {} it, and it holds a credential. Use: chmod 600 [warning]"
    assert seen == [[], *([f"{secret}: {told.format(may)}"] for may in ("read", "change"))]


def test_settings_that_others_may_read_or_change_are_warned_of(open_folder: Path) -> None:
    with Krouter(open_folder) as krouter:
        settings, combos = open_folder / "krouter.toml", open_folder / "combos"
        seen = []
        for mode, folder in ((0o600, 0o755), (0o644, 0o755), (0o666, 0o755), (0o600, 0o777)):
            settings.chmod(mode)
            combos.chmod(folder)
            told = [line for line in welcome(krouter.served) if line.startswith("  warning")]
            checked = CliRunner().invoke(cli, ["check", "--home", str(open_folder)])
            assert checked.exit_code == 0
            assert checked.output.count("others on this machine") == len(told)
            seen.append(" ".join(told))
        assert krouter.http.get("/health").json()["problems"] == []
    nothing, read, changed, folder_changed = seen
    assert nothing == ""
    assert "krouter.toml: others on this machine may read it. Use: chmod 600" in read
    assert "krouter.toml: others on this machine may change it" in changed
    assert "combos: others on this machine may change it" in folder_changed


def test_a_folder_that_nobody_may_enter_keeps_what_is_in_it(open_folder: Path) -> None:
    inner = open_folder / "inner"
    inner.mkdir(mode=0o755)
    (inner / "krouter.toml").write_text("")
    (inner / "krouter.toml").chmod(0o666)
    assert exposure(inner / "krouter.toml") == "write"
    inner.chmod(0o750)
    assert exposure(inner / "krouter.toml") == ""
    assert exposure(inner / "none") == ""
