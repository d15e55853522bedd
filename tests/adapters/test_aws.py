"""Requests signed with an AWS access key: SageMaker's endpoints, and Bedrock where one is given."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from krouter.adapter import Unsendable
from krouter.dialects.base import Kind
from krouter.wire import Outgoing
from tests.adapters.lanes import AWS_KEY, SECRET, FakeWire, ask, call, provider
from tests.adapters.test_litellm_ways import BEDROCK, BEDROCK_EVENTS, GIGACHAT, aws, whole
from tests.upstream import Upstream

KEY_ID, _, KEY = AWS_KEY.partition(":")
TOKEN = "a-token+of/the=session"
BASES = {
    "sagemaker_chat": "https://runtime.sagemaker.eu-central-1.amazonaws.com",
    "sagemaker_nova": "https://runtime.sagemaker.eu-central-1.amazonaws.com",
    "bedrock": "https://bedrock-runtime.eu-central-1.amazonaws.com",
}
names = pytest.mark.parametrize("name", BASES)
endpoints = pytest.mark.parametrize("name", ["sagemaker_chat", "sagemaker_nova"])
dialects = pytest.mark.parametrize("dialect", ["chat", "messages"])


class Resigned(SigV4Auth):
    """Signs with the time of another signature."""

    def __init__(self, token: str | None, service: str, at: str) -> None:
        super().__init__(Credentials(KEY_ID, KEY, token), service, "eu-central-1")
        self._at = at

    def signature_for(self, request: AWSRequest) -> str:
        request.context["timestamp"] = self._at
        request.headers["X-Amz-Date"] = self._at
        if self.credentials.token:
            request.headers["X-Amz-Security-Token"] = self.credentials.token
        string = self.string_to_sign(request, self.canonical_request(request))
        return str(self.signature(string, request))


def expected(sent: Outgoing, service: str, token: str | None = None) -> str:
    """The signature of what was sent, made anew."""
    headers = dict(sent.headers)
    signer = Resigned(token, service, headers["x-amz-date"])
    kind = {"content-type": headers["content-type"]}
    request = AWSRequest("POST", sent.url, data=sent.body, headers=kind)
    return signer.signature_for(request)


@pytest.mark.parametrize("token", [None, TOKEN], ids=["permanent", "temporary"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@names
def test_the_signature_is_that_of_what_is_sent(name: str, stream: bool, token: str | None) -> None:
    wire = FakeWire(b"{}", status=500)
    secret = f"{AWS_KEY}:{token}" if token else AWS_KEY
    ask(call("chat", stream), provider(name, BASES[name]), "my:model v1", secret, wire)
    (sent,) = wire.sent
    headers = dict(sent.headers)
    assert len(headers) == len(sent.headers)
    said = headers["authorization"]
    service = "bedrock" if name == "bedrock" else "sagemaker"
    assert f"Credential={KEY_ID}/{headers['x-amz-date'][:8]}/eu-central-1/{service}/" in said
    assert said.endswith(f"Signature={expected(sent, service, token)}")
    assert headers.get("x-amz-security-token") == token
    assert KEY not in repr(sent)
    if service == "sagemaker":
        verb = "invocations-response-stream" if stream else "invocations"
        assert sent.url == f"{BASES[name]}/endpoints/{quote('my:model v1')}/{verb}"
        assert json.loads(sent.body).get("stream", False) == stream


def test_what_comes_over_a_socket_is_what_was_signed() -> None:
    with Upstream() as up:
        base = f"{up.url}/eu-central-1"
        assert ask(call("chat"), provider("sagemaker_chat", base), secret=AWS_KEY).status == 404
        (request,) = up.requests
    header = request.header
    sent = Outgoing(f"{up.url}{request.path}", list(header.items()), request.body)
    assert header["host"] == up.url.removeprefix("http://")
    assert header["authorization"].endswith(expected(sent, "sagemaker"))


def test_bedrock_takes_its_own_key_as_before() -> None:
    wire = FakeWire(whole(BEDROCK))
    assert ask(call("chat"), provider("bedrock", BASES["bedrock"]), wire=wire).status == 200
    assert ("authorization", f"Bearer {SECRET}") in wire.sent[0].headers


def test_bedrock_answers_to_an_access_key() -> None:
    wire = FakeWire(*BEDROCK_EVENTS, kind="application/vnd.amazon.eventstream")
    to = provider("bedrock", BASES["bedrock"])
    got = ask(call("messages", True), to, "m", AWS_KEY, wire)
    assert got.tracker.complete
    assert b"hi there" in got.raw


@endpoints
@pytest.mark.parametrize("secret", [None, SECRET, "AKIAOFTHEACCOUNT", f"{AWS_KEY}:a:b c"])
def test_a_key_of_another_form_is_not_sent(name: str, secret: str | None) -> None:
    wire = FakeWire(b"{}")
    with pytest.raises(Unsendable, match="ACCESS_KEY_ID:SECRET_ACCESS_KEY") as refused:
        ask(call("chat"), provider(name, BASES[name]), "m", secret, wire)
    assert secret is None or secret not in str(refused.value)
    assert wire.sent == []


@names
def test_an_error_that_quotes_the_request_does_not_tell_the_token(name: str) -> None:
    quoted = whole({"message": f"not this signature: x-amz-security-token:{TOKEN}"})
    wire = FakeWire(quoted, status=403)
    got = ask(call("chat"), provider(name, BASES[name]), "m", f"{AWS_KEY}:{TOKEN}", wire)
    assert got.status == 403
    assert got.json["message"].endswith("x-amz-security-token:[credential]")


@names
@pytest.mark.parametrize("base", ["https://host.example", "https://a-b-1x.example"])
def test_an_address_without_a_region_is_not_signed_for(name: str, base: str) -> None:
    with pytest.raises(Unsendable, match="region"):
        ask(call("chat"), provider(name, base), "m", AWS_KEY, FakeWire(b"{}"))


@pytest.mark.parametrize(
    "region", ["us-east-1", "us-gov-west-1", "ap-southeast-4", "us-iso-east-1", "eusc-de-east-1"]
)
def test_the_region_stands_in_the_address(region: str) -> None:
    wire = FakeWire(b"{}", status=500)
    base = f"https://vpce-0a1.runtime.sagemaker.{region}.vpce.amazonaws.com"
    ask(call("chat"), provider("sagemaker_chat", base), "m", AWS_KEY, wire)
    assert f"/{region}/sagemaker/" in dict(wire.sent[0].headers)["authorization"]


@dialects
@endpoints
def test_a_whole_answer(name: str, dialect: str) -> None:
    to = provider(name, BASES[name])
    got = ask(call(dialect), to, "m", AWS_KEY, FakeWire(whole(GIGACHAT)))
    assert (got.reading.kind, got.dropped) == (Kind.ANSWER, ())
    assert b"hi there" in got.raw


def event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return b"data: " + whole({**chunk, "choices": [choice]}) + b"\n\n"


def framed(data: bytes) -> bytes:
    """An event of the endpoint's in a frame of AWS's."""
    return aws("PayloadPart", None, data)


def wrapped(told: bytes, size: int) -> Iterator[bytes]:
    """The endpoint's own stream, cut anywhere, and the frames cut once more."""
    frames = b"".join(framed(told[at : at + size]) for at in range(0, len(told), size))
    return (frames[at : at + 100] for at in range(0, len(frames), 100))


TOLD = event({"role": "assistant", "content": "hi "}) + event({"content": "thére"})


@pytest.mark.parametrize("size", [7, 10_000])
@dialects
@endpoints
def test_a_stream(name: str, dialect: str, size: int) -> None:
    pieces = wrapped(TOLD + event({}, "stop") + b"data: [DONE]\n\n", size)
    wire = FakeWire(*pieces, kind="application/vnd.amazon.eventstream")
    got = ask(call(dialect, True), provider(name, BASES[name]), "m", AWS_KEY, wire)
    assert got.tracker.complete
    assert got.tracker.malformed == 0
    assert "thére" in json.dumps(got.events, ensure_ascii=False)


@dialects
@endpoints
def test_a_stream_that_is_cut_has_no_end(name: str, dialect: str) -> None:
    wire = FakeWire(*wrapped(TOLD, 7), kind="application/vnd.amazon.eventstream")
    got = ask(call(dialect, True), provider(name, BASES[name]), "m", AWS_KEY, wire)
    assert got.tracker.has_content
    assert not got.tracker.complete


@dialects
@endpoints
def test_an_error_inside_a_stream(name: str, dialect: str) -> None:
    body = whole({"Message": "the container died", "ErrorCode": "ModelInvocationTimeExceeded"})
    failed = aws("ModelStreamError", None, body, kind_header=":exception-type")
    kind = "application/vnd.amazon.eventstream"
    wire = FakeWire(framed(TOLD), failed, kind=kind)
    got = ask(call(dialect, True), provider(name, BASES[name]), "m", AWS_KEY, wire)
    assert b"the container died" in got.tracker.error
    assert not got.tracker.complete
