"""Accounts: the credentials of each provider, from settings and from the environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from krouter.problems import ConfigError, Problem, did_you_mean
from krouter.providers import Provider, Registry
from krouter.settings import DEFAULT_ACCOUNT, AccountSettings, Settings

AccountAuth = Literal["key", "bearer", "caller", "none"]


@dataclass(frozen=True, slots=True)
class Account:
    """One credential of a provider. `key` is a reference to the secret, never the secret.

    `priority` 1 is best, 0 stands for "not numbered yet". `auth`: a key in the provider's own
    header, a bearer token, the caller's own credential passed on, or nothing.
    """

    provider: str
    name: str
    key: str | None = None
    priority: int = 0
    auth: AccountAuth = "key"
    max_concurrent: int | None = None

    @property
    def id(self) -> str:
        """`provider/name`, unique among all accounts."""
        return f"{self.provider}/{self.name}"


def collect_accounts(
    registry: Registry, settings: Settings, env: Mapping[str, str], file: str = "krouter.toml"
) -> dict[str, tuple[Account, ...]]:
    """Every provider's accounts, by canonical name; an empty tuple where there are none.

    First come those of the settings, then those of the environment. Of a provider's variables the
    first that is set counts: NAME is the account "env", NAME_2 is "env-2". A variable to which an
    account of the settings refers gives no second account. Raises ConfigError.
    """
    given, problems = _configured(registry, settings, file)
    if problems:
        raise ConfigError(problems)
    return {
        name: _numbered(_completed(provider, given.get(name, []), registry, env))
        for name, provider in registry.providers.items()
    }


def _completed(
    provider: Provider, given: list[Account], registry: Registry, env: Mapping[str, str]
) -> Iterator[Account]:
    keys = {account.key for account in given}
    names = {account.name for account in given}
    found = _from_environment(provider, env)
    found = [new for new in found if new.key not in keys and new.name not in names]
    if provider.keyless and not (given or found):
        found = [Account(provider.name, DEFAULT_ACCOUNT, auth="none")]
    limit = registry.settings_of(provider.name).max_concurrent
    for account in (*given, *found):
        yield replace(account, max_concurrent=account.max_concurrent or limit)


def _numbered(accounts: Iterable[Account]) -> tuple[Account, ...]:
    numbered = []
    following = 1
    for account in accounts:
        numbered.append(account if account.priority else replace(account, priority=following))
        following += not account.priority
    return tuple(numbered)


def _from_environment(provider: Provider, env: Mapping[str, str]) -> list[Account]:
    for variable in provider.env:
        if found := sorted(_variables(variable, env)):
            return [
                Account(provider.name, f"env-{number}" if number else "env", f"env:{name}")
                for number, name in found
            ]
    return []


def _variables(variable: str, env: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """`(0, NAME)` and `(2, NAME_2)` for those that are set and not blank."""
    pattern = re.compile(rf"{re.escape(variable)}(?:_([1-9][0-9]*))?")
    for name, value in env.items():
        if value.strip() and (match := pattern.fullmatch(name)):
            yield int(match[1] or 0), name


def _configured(
    registry: Registry, settings: Settings, file: str
) -> tuple[dict[str, list[Account]], list[Problem]]:
    accounts: dict[str, list[Account]] = {}
    problems: list[Problem] = []
    for path, given in _stated(settings):
        provider = registry.find(given.provider)
        problem = _fault(given, provider, accounts, registry)
        if problem:
            where, message, hint = problem
            problems.append(Problem(file, path + where, message, hint))
        elif provider:
            accounts.setdefault(provider.name, []).append(_account(given, provider))
    return accounts, problems


def _stated(settings: Settings) -> Iterator[tuple[str, AccountSettings]]:
    """Accounts in the order given, the short form of `[provider.NAME] key` first."""
    for name, provider in settings.provider.items():
        if provider.key:
            yield f"$.provider.{name}", AccountSettings(provider=name, key=provider.key)
    for index, account in enumerate(settings.account):
        yield f"$.account[{index}]", account


def _fault(
    given: AccountSettings,
    provider: Provider | None,
    accounts: Mapping[str, list[Account]],
    registry: Registry,
) -> tuple[str, str, str] | None:
    """Field, message and hint of what is wrong with `given`."""
    if provider is None:
        hint = did_you_mean(given.provider, registry.names_with_aliases())
        return ".provider", f"unknown provider {given.provider!r}.", hint
    if any(account.name == given.name for account in accounts.get(provider.name, ())):
        message = f"{provider.name!r} already has an account {given.name!r}."
        return ".name", message, "Give each account its own name."
    if given.auth == "caller" and given.key:
        return ".key", 'auth = "caller" passes on the caller\'s own credential.', "Leave key out."
    if given.auth != "caller" and not (given.key or provider.keyless):
        return ".key", "required field is missing.", 'Only auth = "caller" goes without a key.'
    return None


def _account(given: AccountSettings, provider: Provider) -> Account:
    return Account(
        provider=provider.name,
        name=given.name,
        key=given.key,
        priority=given.priority or 0,
        auth=given.auth if given.key or given.auth == "caller" else "none",
        max_concurrent=given.max_concurrent,
    )
