"""`krouter.toml` as frozen settings. Nothing here reads the environment or starts anything."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from krouter.problems import DEEPEST, ConfigError, Problem, is_deep, problems_of

Dialect = Literal["chat", "messages", "responses", "gemini"]
Kind = Literal["image", "pdf", "audio", "video"]
AccountStrategy = Literal["zenith", "fill-first", "round-robin", "p2c", "random"]
AuthHeader = Literal["bearer", "x-api-key", "x-goog-api-key", "api-key"]
SecretKind = Literal["env", "file", "command"]

CREDENTIAL_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie"}
)
DEFAULT_ACCOUNT = "default"
MOST_SECONDS = 1e9
LARGEST_FILE = 1 << 20
MOST_DOTS = 1000
"""In one line: the time to read a dotted key grows with the square of its parts."""


_REFERENCES = {
    "env": "the name of a variable, as in env:GLM_API_KEY",
    "file": "a path, as in file:~/.keys/glm",
    "command": "a command line that prints the key, as in command:pass glm",
}
_MISNAMED = {
    **dict.fromkeys(("cmd", "exec", "run", "shell"), "command:…"),
    **dict.fromkeys(("environment", "environ", "var"), "env:NAME"),
    "path": "file:PATH",
}
"""Only these words are ever repeated: any other text may be a key."""


def reference_parts(ref: str) -> tuple[SecretKind, str]:
    """`"env:GLM_API_KEY"` as `("env", "GLM_API_KEY")`.

    Raises ValueError, whose text does not hold `ref`, for what is no reference.
    """
    kind, _, target = ref.partition(":")
    target = target.strip()
    if kind in _REFERENCES and not _is_nameable(target):
        raise ValueError(f"{kind}: is followed by what holds half a character or NUL")
    if kind == "env" and re.fullmatch(r"[A-Za-z_]\w*", target, re.ASCII):
        return "env", target
    if kind == "file" and target:
        return "file", target
    if kind == "command" and target:
        return "command", target
    if kind in _REFERENCES:
        raise ValueError(f"{kind}: is followed by {_REFERENCES[kind]}")
    if kind in _MISNAMED:
        raise ValueError(f"there is no {kind}: write {_MISNAMED[kind]}")
    raise ValueError(
        "a key never stands here itself: set an environment variable and write env:NAME"
        " (or file:PATH, or command:…)"
    )


def _is_nameable(target: str) -> bool:
    """Whether the system takes it for a path or a command."""
    return "\0" not in target and not re.search("[\ud800-\udfff]", target)


def _reference(ref: str) -> str:
    reference_parts(ref)
    return ref


def check_name(value: str) -> str:
    """`value`, if it is a name of an account, a provider or a key; ValueError otherwise."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", value):
        raise ValueError("a name is 1 to 100 letters, digits, '_', '.' or '-'")
    return value


def _provider_name(value: str) -> str:
    if value == "combo":
        raise ValueError("the provider name 'combo' is taken: combo/NAME calls a combo")
    return check_name(value)


def _url(value: str) -> str:
    parts = _parts(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"\s", value):
        raise ValueError("must be an http:// or https:// URL with a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a user or password: give the credential as key")
    return value


def _parts(value: str) -> SplitResult:
    """What urlsplit says of a bad one may quote a password."""
    try:
        if (parts := urlsplit(value)).port != 0:
            return parts
    except ValueError:
        raise ValueError("must be an http:// or https:// URL with a host") from None
    raise ValueError("must not use port 0")


def _origin(value: str) -> str:
    if value == "*":
        return value
    parts = urlsplit(_url(value))
    if parts.path or parts.query or parts.fragment:
        raise ValueError("an origin is scheme, host and port only, as https://example.org")
    return value


def _headers(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
            raise ValueError(f"{name!r} is no header name")
        if name.lower() in CREDENTIAL_HEADERS:
            raise ValueError(f"{name} carries a credential: give it as key, with auth_header")
        if not text.isprintable():
            raise ValueError(f"the value of {name} holds a line break or a control character")
    return {name.lower(): text for name, text in value.items()}


def _unique(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(values)) < len(values):
        raise ValueError("holds the same value twice")
    return values


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a number of seconds")
    if not 0 < value < MOST_SECONDS:
        raise ValueError("must be a number of seconds above 0")
    return float(value)


def _unless(*words: object) -> Callable[[object], object]:
    def check(value: object) -> object:
        return value if any(value == word for word in words) else _seconds(value)

    return check


def _seconds_or_off(value: object) -> float | None:
    return None if value is None or value == "off" else _seconds(value)


SecretReference = Annotated[str, AfterValidator(_reference)]
Name = Annotated[str, AfterValidator(check_name)]
ProviderName = Annotated[str, AfterValidator(_provider_name)]
Url = Annotated[str, AfterValidator(_url)]
Origin = Annotated[str, AfterValidator(_origin)]
Headers = Annotated[dict[str, str], AfterValidator(_headers)]
Text = Annotated[str, Field(min_length=1)]
Port = Annotated[int, Field(ge=0, le=65535, strict=True)]
Count = Annotated[int, Field(ge=1, strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Dialects = Annotated[tuple[Dialect, ...], Field(min_length=1), AfterValidator(_unique)]

_SECONDS_SCHEMA = {"type": "number", "exclusiveMinimum": 0}
_OFF_SCHEMA = {"anyOf": [_SECONDS_SCHEMA, {"const": "off"}]}
Seconds = Annotated[float, BeforeValidator(_seconds), WithJsonSchema(_SECONDS_SCHEMA)]
SecondsOrOff = Annotated[
    float | None, BeforeValidator(_seconds_or_off), WithJsonSchema(_OFF_SCHEMA)
]
MaybeSeconds = Annotated[
    float | None, BeforeValidator(_unless(None)), WithJsonSchema(_SECONDS_SCHEMA)
]
MaybeSecondsOrOff = Annotated[
    float | Literal["off"] | None,
    BeforeValidator(_unless(None, "off")),
    WithJsonSchema(_OFF_SCHEMA),
]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class ServerSettings(_Model):
    """Where krouter listens. `body_limit` is in MiB; `port` 0 takes any free port."""

    host: Text = "127.0.0.1"
    port: Port = 20128
    body_limit: Count = 64
    cors_origins: tuple[Origin, ...] = ()
    allowed_hosts: tuple[Text, ...] = ()


class RoutingSettings(_Model):
    """The global switches of combos and accounts."""

    combo_round_robin: Flag = False
    combo_sticky_limit: Count = 1
    account_strategy: AccountStrategy = "zenith"
    account_sticky_limit: Count = 3
    reply_model: Literal["auto", "served", "requested"] = "auto"


class LedgerSettings(_Model):
    """The record of past requests: how long it is kept, and whether it may hold what was said.

    `prompts` also keeps requests and the words of providers' errors, which may quote them.
    """

    enabled: Flag = True
    days: Count = 30
    megabytes: Count = 200
    prompts: Flag = False


class TimeoutOverrides(_Model):
    """Timeouts that replace others where given, in seconds; None is "not given", "off" is off."""

    connect: MaybeSeconds = None
    first_byte: MaybeSecondsOrOff = None
    first_token: MaybeSecondsOrOff = None
    stall: MaybeSecondsOrOff = None
    attempt: MaybeSecondsOrOff = None
    total: MaybeSeconds = None
    try_other_accounts: Flag | None = None


class ComboTimeouts(TimeoutOverrides):
    """TimeoutOverrides as combo files spell them: `firstByte`, `tryOtherAccounts`."""

    model_config = ConfigDict(alias_generator=to_camel)


class Timeouts(_Model):
    """How long to wait, in seconds; None is for ever (written "off")."""

    connect: Seconds = 10.0
    first_byte: SecondsOrOff = 60.0
    first_token: SecondsOrOff = None
    stall: SecondsOrOff = 60.0
    attempt: SecondsOrOff = 300.0
    total: Seconds = 600.0
    try_other_accounts: Flag = False

    def merged(self, *overrides: TimeoutOverrides | None) -> Timeouts:
        """These timeouts with what `overrides` give, the later winning."""
        given: dict[str, Any] = {}
        for override in filter(None, overrides):
            given |= override.model_dump(exclude_none=True)
        return Timeouts.model_validate(self.model_dump() | given) if given else self


class AdapterPool(_Model):
    """Models put in front when no entry of a combo reads what the request carries."""

    enabled: Flag = False
    round_robin: Flag = False
    models: tuple[Text, ...] = ()


class ImagePool(AdapterPool):
    """The pool for images, which is on unless switched off."""

    enabled: Flag = True


class VisionAdapterSettings(_Model):
    """One pool a kind of attachment."""

    image: ImagePool = ImagePool()
    pdf: AdapterPool = AdapterPool()
    audio: AdapterPool = AdapterPool()
    video: AdapterPool = AdapterPool()


class ProviderSettings(_Model):
    """Settings of a shipped provider, or all of a provider of the user's own."""

    base_url: Url | None = None
    base_urls: dict[Dialect, Url] = Field(default_factory=dict)
    speaks: Dialects | None = None
    key: SecretReference | None = None
    auth_header: AuthHeader | None = None
    headers: Headers = Field(default_factory=dict)
    drop: tuple[Text, ...] = ()
    rename: dict[Text, Text] = Field(default_factory=dict)
    counts_tokens: Flag | None = None
    account_strategy: AccountStrategy | None = None
    account_sticky_limit: Count | None = None
    max_concurrent: Count | None = None


class AccountSettings(_Model):
    """One more account of a provider, which may be called by an alias."""

    provider: ProviderName
    name: Name = DEFAULT_ACCOUNT
    key: SecretReference | None = None
    priority: Count | None = None
    auth: Literal["key", "bearer", "caller"] = "key"
    max_concurrent: Count | None = None


class Settings(_Model):
    """The whole of `krouter.toml`."""

    server: ServerSettings = ServerSettings()
    routing: RoutingSettings = RoutingSettings()
    timeouts: Timeouts = Timeouts()
    ledger: LedgerSettings = LedgerSettings()
    vision_adapter: VisionAdapterSettings = VisionAdapterSettings()
    aliases: dict[Text, Text] = Field(default_factory=dict)
    reads: dict[Text, tuple[Kind, ...]] = Field(default_factory=dict)
    provider: dict[ProviderName, ProviderSettings] = Field(default_factory=dict)
    account: tuple[AccountSettings, ...] = ()


def load_settings(path: Path | None, *, required: bool = False) -> Settings:
    """The settings in `path`; the defaults without a file.

    `required` is for a file that was asked for by name. Raises ConfigError with every problem.
    """
    if path is None or not (required or is_there(path)):
        return Settings()
    return parse_settings(_text(path), str(path))


def is_there(path: Path) -> bool:
    """Whether there is something, be it what cannot be looked at."""
    try:
        path.stat()
    except OSError as error:
        return not isinstance(error, FileNotFoundError | NotADirectoryError)
    return True


def parse_settings(text: str, file: str) -> Settings:
    """The settings in TOML `text`, read from `file`. Raises ConfigError with every problem."""
    try:
        settings = Settings.model_validate(_table(text))
    except ValidationError as error:
        raise ConfigError(problems_of(error, file, Settings)) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError([Problem(file, "", f"not TOML: {error}.")]) from None
    if problems := _duplicate_accounts(settings, file):
        raise ConfigError(problems)
    return settings


def _table(text: str) -> dict[str, Any]:
    """Raises ValueError, RecursionError for what is no TOML, or takes too long to read as such."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") > MOST_DOTS:
            raise ValueError(f"a key of more than {MOST_DOTS} parts (at line {number})")
    table = tomllib.loads(text)
    if is_deep(table):
        raise ValueError(f"nested more than {DEEPEST} levels deep")
    return table


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_FILE + 1)
        if len(raw) > LARGEST_FILE:
            raise ConfigError([Problem(str(path), "", f"is larger than {LARGEST_FILE} bytes.")])
        return raw.decode("utf-8-sig")
    except OSError as error:
        problem = Problem(str(path), "", f"cannot be read: {error.strerror}.")
    except UnicodeDecodeError as error:
        problem = Problem(str(path), "", f"not UTF-8 (byte {error.start}).")
    raise ConfigError([problem])


def _duplicate_accounts(settings: Settings, file: str) -> list[Problem]:
    seen = Counter((n, DEFAULT_ACCOUNT) for n, p in settings.provider.items() if p.key)
    problems = []
    for index, account in enumerate(settings.account):
        seen[account.provider, account.name] += 1
        if seen[account.provider, account.name] > 1:
            message = f"{account.provider!r} already has an account {account.name!r}."
            path = f"$.account[{index}].name"
            problems.append(Problem(file, path, message, "Give each account its own name."))
    return problems
