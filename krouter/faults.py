"""What is wrong with accounts, and with combos that name them, where the files are well formed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path

from krouter.accounts import Account
from krouter.combos import Combo, Entry, reference
from krouter.paths import Paths
from krouter.private import exposure
from krouter.problems import Problem, did_you_mean, json_path
from krouter.providers import Registry
from krouter.secrets import Secrets
from krouter.settings import Settings

ENVIRONMENT = "environment"

Accounts = Mapping[str, tuple[Account, ...]]


def credential_faults(
    settings: Settings,
    registry: Registry,
    accounts: Accounts,
    secrets: Secrets,
    file: str,
    providers: Set[str] | None = None,
) -> Iterator[Problem]:
    """Credentials that cannot be had, of `providers` or of all. No command is run: one that has
    been is judged by how that went."""
    stated = {}
    for path, provider, ref in _stated(settings):
        found = registry.find(provider)
        if providers is None or (found and found.name in providers):
            stated[path] = ref
    for path, ref in stated.items():
        if fault := secrets.present(ref):
            yield Problem(file, path, f"{fault}.")
    told = frozenset(stated.values())
    for account in _of(accounts, providers):
        key = account.key
        if key and key not in told and (fault := secrets.present(key)):
            yield Problem(ENVIRONMENT, "", f"account {account.id}: {fault}.")


def credential_files(settings: Settings, secrets: Secrets) -> list[Path]:
    """The files that the settings name for credentials, each once."""
    files = (secrets.file_of(ref) for _, _, ref in _stated(settings))
    return list(dict.fromkeys(file for file in files if file is not None))


def _stated(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Path, provider and reference of each credential in the settings."""
    for name, provider in settings.provider.items():
        if provider.key:
            yield json_path(("provider", name, "key")), name, provider.key
    for index, account in enumerate(settings.account):
        if account.key:
            yield json_path(("account", index, "key")), account.provider, account.key


def _of(accounts: Accounts, providers: Set[str] | None) -> Iterable[Account]:
    for name, each in accounts.items():
        if providers is None or name in providers:
            yield from each


def unknown_accounts(
    combo: Combo, registry: Registry, accounts: Accounts, file: str
) -> Iterator[Problem]:
    """Accounts that entries name and that their provider has not; a provider without any account
    is another matter."""
    for place, entry in enumerate(combo.models):
        if entry.accounts and reference(entry.model) is None:
            yield from _unknown(entry, registry, accounts, file, json_path(("models", place)))


def _unknown(
    entry: Entry, registry: Registry, accounts: Accounts, file: str, path: str
) -> Iterator[Problem]:
    provider, _ = registry.split(entry.model)
    known = [account.name for account in accounts[provider.name]] if provider else []
    for place, name in enumerate(entry.accounts or ()):
        if provider and known and name not in known:
            message = f"{provider.name} has no account {name!r}."
            yield Problem(file, f"{path}.accounts[{place}]", message, did_you_mean(name, known))


def open_to_others(
    paths: Paths, settings: Settings | None, env: Mapping[str, str]
) -> Iterator[Problem]:
    """Warnings of files and folders with which another user of this machine may do what is the
    owner's to do, the files of credentials that `settings` name among them."""
    for path in (paths.config, paths.combos, paths.home):
        match exposure(path):
            case "write":
                told = "others on this machine may change it, and so run commands as you."
                yield Problem(str(path), "", told, "Use: chmod go-w", "warning")
            case "read" if path == paths.config:
                told = "others on this machine may read it."
                yield Problem(str(path), "", told, "Use: chmod 600", "warning")
    if settings:
        for path in credential_files(settings, Secrets(env, folder=paths.home)):
            if mode := exposure(path):
                told = f"others on this machine may {'read' if mode == 'read' else 'change'} it,"
                told += " and it holds a credential."
                yield Problem(str(path), "", told, "Use: chmod 600", "warning")
