"""What a provider is: where it answers, how it wants its key, and the registry of them all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

from krouter.problems import ConfigError, Problem, did_you_mean
from krouter.settings import AuthHeader, Dialect, ProviderSettings, Settings

Spoken = Dialect | Literal["embeddings"]
"""What an endpoint takes. Who speaks chat has its embeddings beside it."""
Auth = AuthHeader | Literal["none"]

DEFAULT_AUTH: Mapping[Dialect, Auth] = MappingProxyType(
    {
        "chat": "bearer",
        "messages": "x-api-key",
        "responses": "bearer",
        "gemini": "x-goog-api-key",
    }
)


@dataclass(frozen=True, slots=True)
class Provider:
    """One upstream service.

    `base_urls` are per dialect, `auth` says in which header a key goes, `env` names the usual
    variables of its key (the first that is set wins), `litellm` is LiteLLM's prefix for it.
    `headers` (lower case) go with every request; an `anthropic-beta` among them is to be joined
    with the caller's. `drop` names top-level body fields it refuses; `rename` says under which
    names it takes others of a chat request, for models that fit a glob of `rename_for`. `tried`
    says when the row was last proven against the real service, or "untried". A `keyless` provider
    needs no account of the user's; `own` ones come from the settings; a `builtin` one answers in
    this process. One that `counts_tokens` has `/count_tokens` behind its messages endpoint, and
    `/input_tokens` behind the one for responses. A `known_by_litellm` one has no row of its own: it
    is reached as LiteLLM reaches it, at `litellm_base`; `base_like` shows what its address looks
    like where it has no common one, and `unsupported` says why it cannot be reached at all.
    """

    name: str
    title: str = ""
    aliases: tuple[str, ...] = ()
    speaks: tuple[Dialect, ...] = ()
    base_urls: Mapping[Dialect, str] = field(default_factory=dict)
    auth: Mapping[Dialect, Auth] = field(default_factory=lambda: DEFAULT_AUTH)
    env: tuple[str, ...] = ()
    litellm: str = "openai"
    litellm_base: str | None = None
    base_like: str = ""
    unsupported: str = ""
    known_by_litellm: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    rename_for: tuple[str, ...] = ("*",)
    source: str = ""
    tried: str | None = None
    keyless: bool = False
    own: bool = False
    builtin: bool = False
    counts_tokens: bool = False

    @property
    def maker(self) -> str:
        """Who signs the thinking that comes from it: aliases of one service share a host."""
        base = next(iter(self.base_urls.values()), self.litellm_base)
        return urlsplit(base).netloc if base else self.name

    def url(self, dialect: Spoken) -> str | None:
        """The endpoint for `dialect`, or None where the provider does not speak it over HTTP."""
        base = self.base_urls.get(base_of(dialect))
        return endpoint(base, dialect) if base else None


def base_of(spoken: Spoken) -> Dialect:
    """The dialect whose base URL and credential an endpoint has."""
    return "chat" if spoken == "embeddings" else spoken


NAMES_KEPT = 4096


@dataclass(frozen=True, slots=True)
class Registry:
    """All providers, and the settings given for each, by canonical name."""

    providers: Mapping[str, Provider]
    settings: Mapping[str, ProviderSettings]
    canonical: Mapping[str, str]
    _split: dict[str, tuple[Provider | None, str]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def split(self, name: str) -> tuple[Provider | None, str]:
        """The provider that `provider/model` names, None if it is unknown, and the model."""
        found = self._split.get(name)
        if found is None:
            if len(self._split) >= NAMES_KEPT:
                self._split.clear()
            alias, _, model = name.partition("/")
            found = self._split[name] = self.find(alias), model
        return found

    def find(self, name: str) -> Provider | None:
        """The provider called `name`, which may be an alias."""
        return self.providers.get(self.canonical.get(name, ""))

    def settings_of(self, name: str) -> ProviderSettings:
        """What `[provider.NAME]` says, under the name or an alias; all unset without one."""
        return self.settings.get(self.canonical.get(name, ""), ProviderSettings())

    def names(self) -> list[str]:
        """Canonical names, shipped ones first."""
        return list(self.providers)

    def names_with_aliases(self) -> list[str]:
        """Every name that `find` knows."""
        return list(self.canonical)


def build_registry(
    rows: Iterable[Provider], settings: Settings, file: str = "krouter.toml"
) -> Registry:
    """Shipped `rows` with `[provider.*]` of `settings` merged in.

    Raises ConfigError with every provider that cannot be used.
    """
    providers = {row.name: row for row in rows}
    canonical = _canonical(providers.values())
    merged: dict[str, ProviderSettings] = {}
    problems: list[Problem] = []
    for name, given in settings.provider.items():
        target = canonical.setdefault(name, name)
        path = f"$.provider.{name}"
        if target in merged:
            problems.append(Problem(file, path, f"the provider {target!r} has settings already."))
            continue
        shipped = providers.get(target)
        problems += _url_problems(name, given, shipped, canonical, file)
        merged[target] = given
        providers[target] = _overridden(shipped, given) if shipped else _own(name, given)
    if problems:
        raise ConfigError(problems)
    return Registry(providers, merged, canonical)


def _canonical(rows: Iterable[Provider]) -> dict[str, str]:
    names: dict[str, str] = {}
    for row in rows:
        for name in (row.name, *row.aliases):
            if names.setdefault(name, row.name) != row.name:
                raise ValueError(f"{name!r} names both {names[name]!r} and {row.name!r}")
    return names


def _url_problems(
    name: str,
    given: ProviderSettings,
    shipped: Provider | None,
    known: Mapping[str, str],
    file: str,
) -> list[Problem]:
    path = f"$.provider.{name}"
    if shipped and shipped.builtin and (given.base_url or given.base_urls):
        return [Problem(file, f"{path}.base_url", f"{name!r} answers inside krouter: no URL.")]
    if not (shipped or given.base_url or given.base_urls):
        hint = did_you_mean(name, (other for other in known if other != name))
        message = f"{name!r} does not ship with krouter, so it needs a base_url."
        return [Problem(file, path, message, hint)]
    reachable = _base_urls(shipped, given)
    missing = [dialect for dialect in given.speaks or () if dialect not in reachable]
    if missing and not (shipped and shipped.builtin):
        message = f"there is no base URL for {', '.join(missing)}."
        return [Problem(file, f"{path}.speaks", message, "Add it to base_urls, or give base_url.")]
    return []


def _base_urls(shipped: Provider | None, given: ProviderSettings) -> dict[Dialect, str]:
    """URLs by dialect; a `base_url` moves the whole provider, so that no key goes elsewhere.

    One known by LiteLLM alone speaks no dialect for certain unless `speaks` says so.
    """
    urls: dict[Dialect, str] = dict(shipped.base_urls) if shipped else {}
    if given.base_url and not (shipped and shipped.known_by_litellm and not given.speaks):
        spoken = given.speaks or tuple(urls) or ("chat",)
        urls = dict.fromkeys(spoken, given.base_url)
    urls |= given.base_urls
    return {dialect: url for dialect, url in urls.items() if dialect in (given.speaks or urls)}


def _overridden(row: Provider, given: ProviderSettings) -> Provider:
    urls = _base_urls(row, given)
    return replace(
        row,
        base_urls=urls,
        litellm_base=(given.base_url or row.litellm_base) if row.known_by_litellm else None,
        speaks=row.speaks if row.builtin else tuple(urls),
        auth=_auth(row.auth, given),
        headers={**row.headers, **given.headers},
        drop=tuple(dict.fromkeys(row.drop + given.drop)),
        rename={**row.rename, **given.rename},
        rename_for=("*",) if given.rename else row.rename_for,
        counts_tokens=row.counts_tokens if given.counts_tokens is None else given.counts_tokens,
    )


def _own(name: str, given: ProviderSettings) -> Provider:
    urls = _base_urls(None, given)
    return Provider(
        name=name,
        title=name,
        speaks=tuple(urls),
        base_urls=urls,
        auth=_auth(DEFAULT_AUTH, given),
        litellm=_litellm_prefix(tuple(urls)),
        headers=given.headers,
        drop=given.drop,
        rename=given.rename,
        source="settings",
        keyless=given.key is None,
        own=True,
        counts_tokens=bool(given.counts_tokens),
    )


def _auth(auth: Mapping[Dialect, Auth], given: ProviderSettings) -> Mapping[Dialect, Auth]:
    return dict.fromkeys(DEFAULT_AUTH, given.auth_header) if given.auth_header else auth


def _litellm_prefix(speaks: tuple[Dialect, ...]) -> str:
    if "chat" in speaks or "responses" in speaks:
        return "openai"
    return "anthropic" if "messages" in speaks else "gemini"


_TAILS: Mapping[Spoken, tuple[str, ...]] = {
    "chat": ("chat", "completions"),
    "messages": ("v1", "messages"),
    "responses": ("responses",),
    "gemini": ("v1beta", "models"),
    "embeddings": ("embeddings",),
}
_GEMINI_VERSIONS = ("v1", "v1beta", "v1alpha")


@lru_cache(maxsize=1024)
def endpoint(base_url: str, dialect: Spoken) -> str:
    """Where requests of `dialect` go, for what a provider's documentation calls its base URL.

    A trailing slash, a version or a whole endpoint in `base_url`, of this dialect or another, is
    recognised and never doubled; a query is kept. For gemini the model is still to be appended,
    see `extended`.
    """
    parts = urlsplit(base_url)
    given = tuple(part for part in parts.path.split("/") if part)
    path = "/" + "/".join(_endpoint_path(given, dialect))
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def extended(url: str, tail: str) -> str:
    """`url` with `tail` put behind its path, before any query."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + tail))


def _endpoint_path(given: tuple[str, ...], dialect: Spoken) -> tuple[str, ...]:
    if dialect != "gemini" and given[-len(_TAILS[dialect][-2:]) :] == _TAILS[dialect]:
        return given
    root = _without_endpoint(given)
    if dialect == "messages":
        return (root if root[-1:] != ("v1",) else root[:-1]) + _TAILS["messages"]
    if dialect == "gemini":
        return _gemini_path(root)
    return (root if given else ("v1",)) + _TAILS[dialect]


def _gemini_path(root: tuple[str, ...]) -> tuple[str, ...]:
    if root[-1:] == ("v1alpha",):
        return (*root, "models")
    return (root[:-1] if root[-1:] and root[-1] in _GEMINI_VERSIONS else root) + _TAILS["gemini"]


def _without_endpoint(path: tuple[str, ...]) -> tuple[str, ...]:
    """`path` without the endpoint at its end, of whichever dialect; a version before it stays."""
    if path[-2:] == ("messages", "count_tokens"):
        path = path[:-1]
    if ":" in "".join(path[-1:]) and path[-2:-1] == ("models",):
        path = path[:-1]
    if path[-2:] == ("chat", "completions"):
        return path[:-2]
    if path[-1:] in (("messages",), ("responses",), ("embeddings",)):
        return path[:-1]
    if path[-1:] == ("models",) and path[-2:-1] and path[-2] in _GEMINI_VERSIONS:
        return path[:-1]
    return path
