"""What each client must be told to use a krouter. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from krouter.cli.places import Places

NO_KEY = "none"
"""What clients that insist on a key are given where krouter needs none."""
KEY = "KROUTER_KEY"
CLAUDE_TIERS = ("OPUS", "SONNET", "HAIKU", "FABLE")
CLAUDE_ASKS = 32_000
"""Tokens of an answer that Claude Code asks for of a model it does not know."""


@dataclass(frozen=True, slots=True)
class Target:
    """A running krouter, and what a client is to ask it for.

    `key` is one of its own, where it needs one; `window` and `output` are what the model can take
    and write at least, in tokens. `login` is for Claude Code alone: it sends its own login, which
    an account with `auth = "caller"` passes on. `tiers` are those of Claude's models for which the
    settings have aliases: each with the combo it is to be, or nothing where it is left to them.
    """

    url: str
    model: str
    key: str | None = None
    window: int | None = None
    output: int | None = None
    login: bool = False
    tiers: Mapping[str, str] = field(default_factory=dict)

    @property
    def v1(self) -> str:
        return f"{self.url}/v1"

    @property
    def token(self) -> str:
        return self.key or NO_KEY


@dataclass(frozen=True, slots=True)
class File:
    """What stands in a file of the client's; `how` is what to do where there is one already."""

    path: Path
    text: str
    how: str = ""


@dataclass(frozen=True, slots=True)
class Guide:
    """What makes a client use a krouter: variables, files, how it is started, and what else a
    person must know."""

    variables: Mapping[str, str] = field(default_factory=dict)
    files: tuple[File, ...] = ()
    start: str = ""
    notes: tuple[str, ...] = ()


def claude_guide(target: Target, places: Places) -> Guide:
    """The token, not ANTHROPIC_API_KEY: for that one it first asks whether it may be used."""
    variables = {"ANTHROPIC_BASE_URL": target.url}
    notes: list[str] = []
    if target.login:
        if target.key:
            variables["ANTHROPIC_CUSTOM_HEADERS"] = f"x-krouter-key: {target.key}"
        notes.append(
            'Claude Code sends its own login, for the account with auth = "caller": no'
            " ANTHROPIC_AUTH_TOKEN. Log in with: claude /login"
        )
    else:
        variables["ANTHROPIC_AUTH_TOKEN"] = target.token
    variables["ANTHROPIC_MODEL"] = target.model
    for tier in CLAUDE_TIERS:
        if combo := target.tiers.get(tier, target.model):
            variables[f"ANTHROPIC_DEFAULT_{tier}_MODEL"] = combo
    variables["CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY"] = "1"
    if target.window:
        variables["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(target.window)
    if target.output and target.output < CLAUDE_ASKS:
        variables["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(target.output)
    return Guide(variables, start="claude", notes=tuple(notes))


def codex_guide(target: Target, places: Places) -> Guide:
    """`env_key` only with a key: Codex does not start while that variable is empty."""
    lines = [
        f"model = {_text(target.model)}",
        'model_provider = "krouter"',
        *([f"model_context_window = {target.window}"] if target.window else []),
        "",
        "[model_providers.krouter]",
        'name = "krouter"',
        f"base_url = {_text(target.v1)}",
        'wire_api = "responses"',
        *([f'env_key = "{KEY}"'] if target.key else []),
    ]
    file = File(
        places.codex,
        _lines(lines),
        "Where there is one already: what stands above [model_providers.krouter] goes to its top,"
        " above every [table], in place of the same names there; the rest to its end.",
    )
    return Guide(_own_key(target), (file,), "codex", _reads_key(target))


OPENCODE_PACKAGES = MappingProxyType(
    {
        "krouter": "@ai-sdk/openai-compatible",
        "krouter-messages": "@ai-sdk/anthropic",
        "krouter-responses": "@ai-sdk/openai",
    }
)
"""Each of its providers, and the package that speaks chat, messages or responses for it."""


def opencode_guide(target: Target, places: Places) -> Guide:
    limit = {"context": target.window, "output": target.output}
    model = {"limit": limit} if target.window and target.output else {}
    options = {"baseURL": target.v1, "apiKey": f"{{env:{KEY}}}" if target.key else NO_KEY}
    providers = {
        name: {"npm": package, "name": name, "options": options, "models": {target.model: model}}
        for name, package in OPENCODE_PACKAGES.items()
    }
    named = f"krouter/{target.model}"
    settings = {
        "$schema": "https://opencode.ai/config.json",
        "model": named,
        "small_model": named,
        "provider": providers,
    }
    text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
    note = (
        "The provider krouter speaks chat, krouter-messages Anthropic messages, krouter-responses"
        " OpenAI responses: keep the one you need, and name it in model and small_model."
    )
    how = "Where there is one already: merge it, field by field."
    file = File(places.opencode, text, how)
    return Guide(_own_key(target), (file,), "opencode", (note, *_reads_key(target)))


def aider_guide(target: Target, places: Places) -> Guide:
    model = f"openai/{target.model}"
    variables = {
        "OPENAI_API_BASE": target.v1,
        "OPENAI_API_KEY": target.token,
        "AIDER_MODEL": model,
        "AIDER_WEAK_MODEL": model,
        "AIDER_SHOW_MODEL_WARNINGS": "false",
    }
    fields = "model, weak-model, openai-api-base and show-model-warnings"
    note = f"Or put all but the key into {places.shown(places.aider)}: {fields}."
    return Guide(variables, start="aider", notes=(note,))


def llm_guide(target: Target, places: Places) -> Guide:
    lines = [
        "- model_id: krouter",
        f"  model_name: {_text(target.model)}",
        f"  api_base: {_text(target.v1)}",
        "  supports_tools: true",
        *(["  api_key_name: krouter"] if target.key else []),
    ]
    notes = ("Store the key once: llm keys set krouter",) if target.key else ()
    file = File(places.llm, _lines(lines), "Where there is one already: add it to the end.")
    return Guide({}, (file,), "llm -m krouter 'Hello'", notes)


def continue_guide(target: Target, places: Places) -> Guide:
    key = f"${{{{ secrets.{KEY} }}}}" if target.key else NO_KEY
    lines = [
        "name: krouter",
        "version: 0.0.1",
        "schema: v1",
        "models:",
        "  - name: krouter",
        "    provider: openai",
        f"    model: {_text(target.model)}",
        f"    apiBase: {_text(target.v1)}",
        f"    apiKey: {key}",
    ]
    how = "Where there is one already: add the entry to its models."
    files = [File(places.continue_, _lines(lines), how)]
    if target.key:
        how = "Where there is one already: add the line."
        files.append(File(places.continue_.with_name(".env"), f"{KEY}={target.key}\n", how))
    return Guide({}, tuple(files), "cn")


def gemini_guide(target: Target, places: Places) -> Guide:
    variables = {
        "GOOGLE_GEMINI_BASE_URL": target.url,
        "GEMINI_API_KEY": target.token,
        "GEMINI_MODEL": target.model,
    }
    return Guide(variables, start="gemini")


def copilot_guide(target: Target, places: Places) -> Guide:
    variables = {
        "COPILOT_PROVIDER_BASE_URL": target.v1,
        "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_PROVIDER_API_KEY": target.token,
        "COPILOT_MODEL": target.model,
    }
    return Guide(variables, start="copilot")


def qwen_guide(target: Target, places: Places) -> Guide:
    return Guide({**_openai_variables(target), "OPENAI_MODEL": target.model}, start="qwen")


def cursor_guide(target: Target, places: Places) -> Guide:
    is_public = target.url.startswith("https://")
    address = target.v1 if is_public else "https://YOUR-HOST/v1"
    needs = (
        "Cursor's own servers send the requests, and refuse localhost and private addresses:"
        " krouter needs a public https address, from a tunnel or a reverse proxy that passes"
        " requests on to it, and a key."
    )
    key = "a key of krouter's" if target.key is None else "this krouter's key"
    return Guide(
        notes=(
            *(
                ()
                if is_public
                else (
                    needs,
                    "The name that callers ask for goes into allowed_hosts"
                    " of [server] in krouter.toml.",
                )
            ),
            *(() if target.key else ("Make a key first: krouter keys add cursor",)),
            f"Cursor Settings, Models, API Keys: switch on Override OpenAI Base URL: {address}",
            f"OpenAI API Key: {key}. Add a custom model called {target.model}, and choose it.",
            "Tab completion never uses it. A name with GPT, Claude or Gemini in it makes Cursor"
            " send other bodies; krouter reads them all.",
        )
    )


def openai_guide(target: Target, places: Places) -> Guide:
    asked = _text(target.model)
    note = f"In the program: OpenAI().chat.completions.create(model={asked}, messages=...)"
    return Guide(_openai_variables(target), notes=(note,))


def anthropic_guide(target: Target, places: Places) -> Guide:
    variables = {"ANTHROPIC_BASE_URL": target.url, "ANTHROPIC_API_KEY": target.token}
    asked = _text(target.model)
    note = (
        f"In the program: Anthropic().messages.create(model={asked}, max_tokens=..., messages=...)"
    )
    return Guide(variables, notes=(note,))


def langchain_guide(target: Target, places: Places) -> Guide:
    variables = {
        "OPENAI_API_BASE": target.v1,
        "OPENAI_API_KEY": target.token,
        "ANTHROPIC_BASE_URL": target.url,
        "ANTHROPIC_API_KEY": target.token,
    }
    asked = _text(target.model)
    note = f"In the program: ChatOpenAI(model={asked}), or ChatAnthropic(model={asked})"
    return Guide(variables, notes=(note,))


def _openai_variables(target: Target) -> dict[str, str]:
    return {"OPENAI_BASE_URL": target.v1, "OPENAI_API_KEY": target.token}


def _own_key(target: Target) -> dict[str, str]:
    """For clients whose file names the variable that holds the key."""
    return {KEY: target.key} if target.key else {}


def _reads_key(target: Target) -> tuple[str, ...]:
    return (f"The key is read from the variable {KEY} at every start.",) if target.key else ()


def _text(value: str) -> str:
    """A string of JSON, which is one of TOML, YAML, Python and JavaScript too."""
    return json.dumps(value, ensure_ascii=False)


def _lines(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
