"""Names and paths that are tricks, wherever a name becomes a path."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from krouter.cli.root import cli
from krouter.combos import parse_combo
from krouter.combostore import ComboStore
from krouter.problems import ConfigError
from krouter.secrets import LARGEST, SecretError, Secrets, run_command
from krouter.settings import LARGEST_FILE, load_settings, parse_settings
from tests.harness import Krouter

TRICKS = [
    "../secret",
    "../../../../../../etc/passwd",
    "..",
    "/etc/passwd",
    "//etc/passwd",
    "C:\\windows\\win.ini",
    "..\\secret",
    "secret\0.json",
    "%2e%2e%2fsecret",
    "..%2fsecret",
    "%252e%252e%252fsecret",
    "．．／secret",
    "..∕secret",
    "ｄaily",
    "dаily",
    "daily ",
    "daily\n",
    "d\u200baily",
    "daily.json",
    "secret.json",
    "./daily",
    "combo/../daily",
    "combo/combo/daily",
    "claude-../daily",
    "~/secret",
    "~root/secret",
    "CON",
    "nul.json",
    "daily:stream",
    "-rf",
    "--home=/",
    "$(id)",
    "`id`",
    "daily; id",
    "a" * 101,
    "a" * 100_000,
    "",
]


@pytest.fixture(scope="module")
def krouter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krouter]:
    home = tmp_path_factory.mktemp("outer") / "home"
    combos = {"daily": {"models": ["demo/assistant"], "description": "the one that is asked for"}}
    with Krouter(home, combos=combos) as krouter:
        (home.parent / "secret").write_text("SECRET")
        (home.parent / "secret.json").write_text('{"models": ["demo/SECRET"]}')
        yield krouter


@pytest.mark.parametrize("name", TRICKS, ids=lambda n: ascii(n)[:30])
def test_a_request_for_a_trick_is_told_that_there_is_none(krouter: Krouter, name: str) -> None:
    for ask in (krouter.chat, krouter.messages, krouter.responses):
        reply = ask(name)
        assert reply.status_code in (400, 404)
        assert "SECRET" not in reply.text
        assert reply.json()["error"]["message"]
    assert krouter.chat("daily").status_code == 200


@pytest.mark.parametrize("name", [name for name in TRICKS if len(name) < 1000], ids=ascii)
@pytest.mark.parametrize(
    "path",
    [
        "/v1/models/{}",
        "/v1beta/models/{}",
        "/api/routes/{}",
        "/api/combos/{}",
        "/api/{}",
        "/v1/responses/{}",
        "/{}",
        "/static/{}",
    ],
)
def test_no_path_of_a_url_reaches_a_file(krouter: Krouter, path: str, name: str) -> None:
    for shown in (quote(name, safe=""), quote(name, safe="/"), quote(quote(name, safe=""))):
        reply = krouter.http.get(path.format(shown))
        assert reply.status_code < 500
        assert "SECRET" not in reply.text
        assert "root:" not in reply.text


@pytest.mark.parametrize(
    "name", [n for n in TRICKS if n and n != ".."], ids=lambda n: ascii(n)[:30]
)
def test_no_combo_is_called_by_a_trick(name: str) -> None:
    if name in ("daily.json", "secret.json", "nul.json", "CON", "-rf"):
        return  # plain names, of which nothing but a key of a dictionary is made
    with pytest.raises(ConfigError, match=r"\$\.name"):
        parse_combo(json.dumps({"name": name, "models": ["a/b"]}).encode(), "x.json", "x")


def test_what_stands_in_a_combos_folder_is_read_as_files_only(tmp_path: Path) -> None:
    folder = tmp_path / "combos"
    folder.mkdir()
    (folder / "good.json").write_text('{"models": ["a/b"]}')
    os.mkfifo(folder / "pipe.json")
    (folder / "folder.json").mkdir()
    (folder / "loop.json").symlink_to("loop.json")
    (folder / "gone.json").symlink_to("nowhere")
    (folder / "zero.json").symlink_to("/dev/zero")
    (folder / "passwd.json").symlink_to("/etc/passwd")
    (folder / "big.json").write_bytes(b" " * (2 << 20))
    (folder / f"{'n' * 150}.json").write_text('{"models": ["a/b"]}')
    (folder / "..json").write_text('{"models": ["a/b"]}')
    (folder / "dаily.json").write_text('{"models": ["a/b"]}')
    os.close(os.open(os.fsencode(folder) + b"/odd\xff.json", os.O_CREAT | os.O_WRONLY))
    store = ComboStore([folder])
    assert list(store.combos) == ["good"]
    told = {Path(problem.file).name: str(problem) for problem in store.problems}
    assert len(told) == 10
    assert "is not a file" in told["zero.json"]
    assert "root:" not in str(store.problems)


REFERENCES = [
    ("file:../secret\0", "NUL"),
    ("command:echo x\0y", "NUL"),
    ("file:\ud800", "half a character"),
    ("file:~nobody-of-that-name/key", "nobody's folder"),
    ("file:/dev/zero", "no regular file"),
    ("file:/dev/stdin", "no regular file"),
    ("file:pipe", "no regular file"),
    ("file:folder", "no regular file"),
    ("file:loop", "cannot be read"),
    ("file:big", "holds more than 1 MiB"),
    ("file:" + "n" * 5000, "cannot be read"),
    ("command:yes", "holds more than 1 MiB"),
]


@pytest.mark.parametrize(("ref", "says"), REFERENCES, ids=lambda r: ascii(r)[:30])
def test_a_reference_that_is_a_trick_is_an_error_that_says_so(
    tmp_path: Path, ref: str, says: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "big").write_bytes(b"x" * (LARGEST + 1))
    secrets = Secrets({"PATH": os.environ["PATH"]}, folder=tmp_path)

    async def reveal() -> None:
        async with asyncio.timeout(30):
            await secrets.reveal(ref)

    with pytest.raises(SecretError, match=says):
        asyncio.run(reveal())
    if not ref.startswith("command:yes"):
        assert says in (secrets.present(ref) or "")
    if "NUL" in says:
        with pytest.raises(ConfigError, match=says):
            parse_settings(f"[provider.x]\nkey = {json.dumps(ref)}\n", "krouter.toml")


def test_a_command_that_prints_without_end_is_ended() -> None:
    status, output = asyncio.run(run_command("yes", {"PATH": os.environ["PATH"]}))
    assert (status, LARGEST < len(output) <= 2 * LARGEST) == (0, True)


def test_settings_are_read_from_what_ends(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is larger than"):
        load_settings(Path("/dev/zero"))
    (tmp_path / "big.toml").write_text("#" * (LARGEST_FILE + 1))
    with pytest.raises(ConfigError, match="is larger than"):
        load_settings(tmp_path / "big.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(tmp_path)


@pytest.mark.parametrize(
    "command", [["check"], ["combos"], ["explain"], ["explain", "--json"], ["route"], ["env"]]
)
def test_no_argument_of_a_command_reaches_a_file(krouter: Krouter, command: list[str]) -> None:
    for name in TRICKS:
        if "\0" in name:
            continue  # which no command line can hold
        args = [*command, "--home", str(krouter.home), "--", name]
        result = CliRunner().invoke(cli, args, prog_name="krouter")
        assert isinstance(result.exception, SystemExit | None), (name, result.exception)
        assert result.exit_code or name in ("", "daily "), (name, result.output)
        assert "SECRET" not in result.output


@pytest.mark.parametrize("option", ["--home", "--config", "--combos"])
def test_no_place_that_is_named_ends_in_a_traceback(tmp_path: Path, option: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("")
    places = ["~nobody-of-that-name/x", "n" * 5000, "loop", "loop/x", "file", "/dev/null", ".."]
    for place in places:
        given = place if place[0] in "~/" else str(tmp_path / place)
        own = [] if option == "--home" else ["--home", str(tmp_path)]
        result = CliRunner().invoke(cli, ["check", *own, option, given], prog_name="krouter")
        assert isinstance(result.exception, SystemExit | None), (place, result.exception)
        assert result.exit_code in (0, 1, 2, 3)
