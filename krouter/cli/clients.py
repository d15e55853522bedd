"""The clients that krouter knows how to be called by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from krouter.cli import guides
from krouter.cli.guides import Guide, Target
from krouter.cli.places import Places


@dataclass(frozen=True, slots=True)
class Client:
    """One client.

    `bases` are the variables that hold an address, each with the path that belongs to it, `keys`
    those that hold a key, `models` those that hold the name of a model, `rivals` those that lead it
    elsewhere. `program` is what it is called on
    PATH, `install` how it gets there. `is_remote` is of one whose requests come from its maker's
    servers.
    """

    name: str
    title: str
    dialects: tuple[str, ...]
    guide: Callable[[Target, Places], Guide]
    bases: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()
    program: str = ""
    install: str = ""
    is_remote: bool = False


_ANTHROPIC = MappingProxyType({"ANTHROPIC_BASE_URL": ""})
_OPENAI = MappingProxyType({"OPENAI_BASE_URL": "/v1"})
_CLOUDS = ("BEDROCK", "VERTEX", "FOUNDRY", "MANTLE", "GATEWAY", "ANTHROPIC_AWS")

_KNOWN = (
    Client(
        "claude",
        "Claude Code",
        ("messages",),
        guides.claude_guide,
        bases=_ANTHROPIC,
        keys=("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY"),
        models=(
            "ANTHROPIC_MODEL",
            *(f"ANTHROPIC_DEFAULT_{tier}_MODEL" for tier in guides.CLAUDE_TIERS),
            "ANTHROPIC_SMALL_FAST_MODEL",
            "CLAUDE_CODE_SUBAGENT_MODEL",
        ),
        rivals=(
            "ANTHROPIC_SMALL_FAST_MODEL",
            *(f"CLAUDE_CODE_USE_{cloud}" for cloud in _CLOUDS),
        ),
        program="claude",
        install="npm install -g @anthropic-ai/claude-code",
    ),
    Client(
        "codex",
        "Codex",
        ("responses",),
        guides.codex_guide,
        program="codex",
        install="npm install -g @openai/codex",
    ),
    Client(
        "opencode",
        "opencode",
        ("chat", "messages", "responses"),
        guides.opencode_guide,
        program="opencode",
        install="npm install -g opencode-ai",
    ),
    Client(
        "aider",
        "aider",
        ("chat",),
        guides.aider_guide,
        bases={"OPENAI_API_BASE": "/v1"},
        keys=("OPENAI_API_KEY",),
        models=("AIDER_MODEL", "AIDER_WEAK_MODEL", "AIDER_EDITOR_MODEL"),
        program="aider",
        install="pip install aider-chat",
    ),
    Client("llm", "llm", ("chat",), guides.llm_guide, program="llm", install="pip install llm"),
    Client(
        "gemini",
        "Gemini CLI",
        ("gemini",),
        guides.gemini_guide,
        bases={"GOOGLE_GEMINI_BASE_URL": ""},
        keys=("GEMINI_API_KEY",),
        models=("GEMINI_MODEL",),
        rivals=("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA"),
        program="gemini",
        install="npm install -g @google/gemini-cli",
    ),
    Client(
        "openai",
        "OpenAI's SDKs",
        ("chat", "responses"),
        guides.openai_guide,
        bases=_OPENAI,
        keys=("OPENAI_API_KEY",),
    ),
    Client(
        "anthropic",
        "Anthropic's SDKs",
        ("messages",),
        guides.anthropic_guide,
        bases=_ANTHROPIC,
        keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    ),
    Client(
        "langchain",
        "LangChain",
        ("chat", "messages"),
        guides.langchain_guide,
        bases={"OPENAI_API_BASE": "/v1", **_ANTHROPIC},
        keys=("OPENAI_API_KEY", "ANTHROPIC_API_KEY"),
        rivals=("ANTHROPIC_API_URL",),
    ),
    Client(
        "copilot",
        "Copilot CLI",
        ("chat",),
        guides.copilot_guide,
        bases={"COPILOT_PROVIDER_BASE_URL": "/v1"},
        keys=("COPILOT_PROVIDER_API_KEY",),
        models=("COPILOT_MODEL",),
        program="copilot",
        install="npm install -g @github/copilot",
    ),
    Client(
        "qwen",
        "Qwen Code",
        ("chat",),
        guides.qwen_guide,
        bases=_OPENAI,
        keys=("OPENAI_API_KEY",),
        models=("OPENAI_MODEL",),
        program="qwen",
        install="npm install -g @qwen-code/qwen-code",
    ),
    Client(
        "continue",
        "Continue",
        ("chat",),
        guides.continue_guide,
        program="cn",
        install="npm install -g @continuedev/cli",
    ),
    Client("cursor", "Cursor", ("chat",), guides.cursor_guide, is_remote=True),
)
CLIENTS: Mapping[str, Client] = MappingProxyType({client.name: client for client in _KNOWN})
ALSO_CALLED: Mapping[str, str] = MappingProxyType(
    {"claude-code": "claude", "gemini-cli": "gemini", "copilot-cli": "copilot", "qwen-code": "qwen"}
)


def also_called(client: Client) -> list[str]:
    """The other names that a client is known by."""
    return [also for also, name in ALSO_CALLED.items() if name == client.name]
