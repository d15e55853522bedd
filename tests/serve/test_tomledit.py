"""Settings are changed in place: comments, order and everything else stay."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krouter.serve.tomledit import Unsuitable, edited, shown_diff

FILE = """\
# mine
[server]  # where
port = 1

[routing]
# the switch
combo_round_robin = false   # off for now
account_strategy = "zenith"

[provider.glm]
key = "env:A"

[[account]]
provider = "glm"
name = "b"
key = "env:B"  # theirs
"""
SWITCH = ("routing", "combo_round_robin")
LIMIT = ("routing", "combo_sticky_limit")
GLM = ("provider", "glm", "account_strategy")
OWN = ("provider", "own", "account_strategy")
MODELS = ("vision_adapter", "image", "models")


@pytest.mark.parametrize(
    ("before", "edits", "after"),
    [
        (FILE, {}, FILE),
        (FILE, {SWITCH: False}, FILE),
        (FILE, {LIMIT: None}, FILE),
        (FILE, {OWN: None}, FILE),
        (FILE, {SWITCH: True}, FILE.replace("= false   #", "= true   #")),
        (FILE, {LIMIT: 3}, FILE.replace('"zenith"\n', '"zenith"\ncombo_sticky_limit = 3\n')),
        (FILE, {SWITCH: None}, FILE.replace("combo_round_robin = false   # off for now\n", "")),
        (FILE, {GLM: "p2c"}, FILE.replace('"env:A"\n', '"env:A"\naccount_strategy = "p2c"\n')),
        (FILE, {OWN: "p2c"}, f'{FILE}\n[provider.own]\naccount_strategy = "p2c"\n'),
        (FILE, {MODELS: ["a/b"]}, f'{FILE}\n[vision_adapter.image]\nmodels = ["a/b"]\n'),
        ("", {("provider", "a.b", "x"): 1}, '[provider."a.b"]\nx = 1\n'),
        ("", {LIMIT: 3}, "[routing]\ncombo_sticky_limit = 3\n"),
        ("# only this\n", {LIMIT: 3}, "# only this\n\n[routing]\ncombo_sticky_limit = 3\n"),
        ("routing.combo_sticky_limit = 1\n", {LIMIT: 3}, "routing.combo_sticky_limit = 3\n"),
        (
            'provider = { glm = { key = "env:A" } }\n',
            {GLM: "p2c"},
            'provider = { glm = { key = "env:A", account_strategy = "p2c"} }\n',
        ),
        (
            "[routing]\r\ncombo_sticky_limit = 1\r\n",
            {LIMIT: 2},
            "[routing]\r\ncombo_sticky_limit = 2\r\n",
        ),
    ],
)
def test_only_what_is_asked_for_changes(before: str, edits: Any, after: str) -> None:
    result = edited(before, edits)
    tomllib.loads(result)
    assert result == after


HEADS = st.permutations(
    ["[routing]\n", "[provider.glm]\n", "[[account]]\n", "[vision_adapter.pdf]\n"]
)
EDITS = st.dictionaries(
    st.sampled_from([SWITCH, LIMIT, GLM, OWN, MODELS]), st.sampled_from([None, True, 2, "x", ["y"]])
)


@settings(max_examples=60)
@given(HEADS, EDITS, EDITS)
def test_whatever_is_changed_the_rest_stays(heads: list[str], first: Any, then: Any) -> None:
    """Or the file is left alone."""
    text = "# head\n" + "\n".join(f"{head}# in it\nname = 1  # kept\n" for head in heads)
    try:
        result = edited(edited(text, first), then)
    except Unsuitable:
        pytest.fail("an ordinary file can be edited")
    assert result.count("# in it") == result.count("# kept") == len(heads)
    for path, value in {**first, **then}.items():
        found: Any = tomllib.loads(result)
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        assert found == value


def test_a_table_that_is_no_table_is_left_alone() -> None:
    with pytest.raises(Unsuitable):
        edited("routing = 3\n", {LIMIT: 3})


def test_a_diff_tells_of_the_table_and_of_no_credential() -> None:
    new = edited(FILE, {SWITCH: True, GLM: "p2c"})
    assert shown_diff(FILE, new, "krouter.toml") == (
        "--- a/krouter.toml\n+++ b/krouter.toml\n"
        "@@ -7 +7 @@ [routing]\n"
        "-combo_round_robin = false   # off for now\n+combo_round_robin = true   # off for now\n"
        '@@ -11,0 +12 @@ [provider.glm]\n+account_strategy = "p2c"\n'
    )
    inline = (
        'provider = { glm = { key = "command:x --token canary", headers = { a = "canary" } } }\n'
    )
    shown = shown_diff(inline, edited(inline, {GLM: "p2c"}), "krouter.toml")
    assert "canary" not in shown
    assert '"p2c"' in shown


def test_lines_end_as_those_of_the_file_do() -> None:
    new = edited("[routing]\r\n# x\r\n", {SWITCH: True, GLM: "p2c"})
    assert new.count("\n") == new.count("\r\n") == 6


def test_the_blanks_at_the_end_stay() -> None:
    text = "[server]\nport = 1\n# end   \n\n\n"
    assert edited(text, {GLM: "p2c"}) == f'{text}[provider.glm]\naccount_strategy = "p2c"\n'


def test_the_only_dotted_key_of_a_table_is_taken_out() -> None:
    assert edited("routing.combo_sticky_limit = 2\na = 1\n", {LIMIT: None}) == "a = 1\n"


@pytest.mark.parametrize(
    "secret",
    [
        'headers.a = "canary"',
        'headers = { a = "}canary" }',
        "key = '''canary'''",
        'key = """\ncanary"""',
        'base_url = "http://h/?api_key=canary"',
        'base_urls = { chat = "http://canary" }',
    ],
)
def test_no_form_of_a_table_in_one_line_tells_a_secret(secret: str) -> None:
    text = f'provider.glm = {{ {secret}, account_strategy = "zenith" }}\n'
    shown = shown_diff(text, edited(text, {GLM: "p2c"}), "krouter.toml")
    assert "canary" not in shown
    assert "p2c" in shown
