"""The head of a request: nothing that anybody puts into a header or a URL becomes another line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krouter.errors import Fault, WireError
from krouter.http_request import Origin, request_head

PLAIN = Origin(False, "h", 80)


def head_of(
    url: str, headers: list[tuple[str, str]] | None = None, length: int | None = None
) -> tuple[Origin, list[str]]:
    place, head = request_head("GET", url, headers or [], length)
    return place, head.decode().split("\r\n")


@pytest.mark.parametrize(
    ("url", "place", "target", "host"),
    [
        ("http://h", PLAIN, "/", "h"),
        ("http://h?a=1", PLAIN, "/?a=1", "h"),
        ("http://h/?", PLAIN, "/?", "h"),
        ("http://h/a%2Fb/é?q=%20'[]", PLAIN, "/a%2Fb/é?q=%20'[]", "h"),
        ("http://h/a?b#c", PLAIN, "/a?b", "h"),
        ("http://h/a#c?b", PLAIN, "/a", "h"),
        ("HTTP://H:80/", PLAIN, "/", "h"),
        ("https://h:443/v1", Origin(True, "h", 443), "/v1", "h"),
        ("https://h:80/v1", Origin(True, "h", 80), "/v1", "h:80"),
        ("http://[::1]:8080/v1", Origin(False, "::1", 8080), "/v1", "[::1]:8080"),
        ("http://[fe80::1%25lo]/v1", Origin(False, "fe80::1%lo", 80), "/v1", "[fe80::1]"),
        ("https://bücher.example/", Origin(True, "xn--bcher-kva.example", 443), "/", None),
    ],
)
def test_where_a_url_leads(url: str, place: Origin, target: str, host: str | None) -> None:
    found, lines = head_of(url)
    shown = place.host if host is None else host
    assert (found, lines) == (place, [f"GET {target} HTTP/1.1", f"Host: {shown}", "", ""])


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h/v1",
        "//h/v1",
        "http://",
        "http:///v1",
        "http://:80/v1",
        "ftp://h/",
        "http://h:99999/",
        "http://h:x/",
        "http://[::1/",
        "http://h/a b",
        "http://h/a\r\nx: y",
        "http://h/\n",
        "http://h\t/",
        "http://h/?a\r\nx: y",
        "http://h/?a b",
        "http://h/?\x7f",
        "http://\u0000/",
        "http://a..ü/",
    ],
)
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(WireError) as caught:
        head_of(url)
    assert caught.value.fault is Fault.REFUSED
    assert caught.value.detail == "not a URL to connect to"


def test_the_framing_is_not_for_headers_to_say() -> None:
    given = [("Content-Length", "9"), ("transfer-encoding", "chunked"), ("x", "1")]
    assert head_of("http://h", given, 3)[1][1:] == ["Host: h", "x: 1", "Content-Length: 3", "", ""]


def test_another_host_may_be_named() -> None:
    assert head_of("http://h", [("Host", "other")]) == (
        PLAIN,
        ["GET / HTTP/1.1", "Host: other", "", ""],
    )


def test_name_and_password_in_the_url() -> None:
    _, lines = head_of("http://us%40er:p%3Aw@h/v1")
    assert lines[1:3] == ["Host: h", "Authorization: Basic dXNAZXI6cDp3"]
    with pytest.raises(WireError) as caught:
        head_of("http://u:p@h/v1", [("authorization", "Bearer sk")])
    assert "sk" not in caught.value.detail


TEXT = st.text(st.characters(codec="utf-8") | st.sampled_from("\r\n\0: "), max_size=8)


@given(st.lists(st.tuples(TEXT, TEXT), max_size=4), TEXT, TEXT)
def test_a_head_has_as_many_lines_as_headers(
    headers: list[tuple[str, str]], path: str, query: str
) -> None:
    try:
        _, head = request_head("POST", f"http://h/{path}?{query}", headers, 0)
    except WireError:
        return
    own = [name for name, _ in headers if name.lower() in ("host", "content-length")]
    assert head.count(b"\n") == head.count(b"\r\n") == head.count(b"\r")
    assert head.count(b"\n") == 4 + len(headers) - len(own)
    assert head.startswith(b"POST /")
    assert head.endswith(b"\r\n\r\n")
    assert head.partition(b"\r\n")[0].count(b" ") == 2
    assert b"\0" not in head


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\r\n", "\r\n b", "a\0", "\ud800"])
def test_a_header_that_would_break_the_head(value: str) -> None:
    for header in (("x", value), (value, "x"), ("host", value)):
        with pytest.raises(WireError) as caught:
            head_of("http://h", [header])
        assert caught.value.fault is Fault.GARBAGE
