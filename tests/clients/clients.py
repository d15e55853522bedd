"""How each client is configured and started. The configuration is what docs/clients.md shows."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.clients.door import Visit
from tests.clients.install import NODE, folder, program
from tests.upstream import Behaviour, Request, ToolUser
from tests.upstream.book import Step

SCRIPTS = Path(__file__).parent / "scripts"
PROMPT = "Which token is in the file proof.txt? Read it with your tool and tell me."


@dataclass(frozen=True, slots=True)
class Place:
    """One run: where krouter is and the key it demands, the name of the combo, and empty folders of
    the client's own."""

    url: str
    key: str
    model: str
    home: Path
    work: Path

    @property
    def proof(self) -> Path:
        return self.work / "proof.txt"


@dataclass(frozen=True, slots=True)
class Start:
    """A command, what it finds in its environment, and where it leaves its answer."""

    command: list[str]
    env: dict[str, str] = field(default_factory=dict)
    answer: Callable[[str], str] = str
    """Takes what the client has printed, and gives its answer."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client of one dialect. `place` and `package` say where its version is pinned."""

    title: str
    place: str
    package: str
    dialect: str
    start: Callable[[Place], Start]
    model: Callable[[Place], Step]
    """The model that knows how to use this client."""
    requests: int = 2
    """How many HTTP requests it sends for the task: one that asks for the tool, one that has its
    result, and what the client asks of its own accord."""
    probes: frozenset[str] = frozenset()
    """Requests that are no part of any task, as visits tell of them."""

    def count(self, visits: Sequence[Visit], runs: int = 1) -> list[Visit]:
        """The visits without what the client probes, once a run."""
        left, counted = dict.fromkeys(self.probes, runs), []
        for visit in visits:
            if left.get(str(visit)):
                left[str(visit)] -= 1
            else:
                counted.append(visit)
        return counted


def calls(tool: str, argument: str = "path", **more: Any) -> Callable[[Place], Step]:
    """A model that reads the proof with the client's tool."""
    return lambda place: ToolUser(tool, {argument: str(place.proof), **more})


def openai_env(place: Place) -> dict[str, str]:
    return {"OPENAI_BASE_URL": f"{place.url}/v1", "OPENAI_API_KEY": place.key}


def anthropic_env(place: Place) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": place.url, "ANTHROPIC_API_KEY": place.key}


def python(script: str, *arguments: str) -> Callable[[Place], Start]:
    command = [program("sdks", "python"), str(SCRIPTS / script), *arguments]
    return lambda place: Start(
        [*command, place.model], {**openai_env(place), **anthropic_env(place)}
    )


def javascript(script: str) -> Callable[[Place], Start]:
    """A module finds its packages by where it lies, so the script goes beside them."""

    def start(place: Place) -> Start:
        copied = shutil.copy(SCRIPTS / script, folder(NODE))
        return Start(
            ["node", str(copied), place.model], {**openai_env(place), **anthropic_env(place)}
        )

    return start


def claude_code(place: Place) -> Start:
    command = [program(NODE, "claude"), "-p", PROMPT, "--model", place.model]
    env = {"ANTHROPIC_BASE_URL": place.url, "ANTHROPIC_AUTH_TOKEN": place.key}
    return Start([*command, "--allowedTools", "Read"], env)


def codex(place: Place) -> Start:
    settings = place.home / ".codex" / "config.toml"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(
        f'model = "{place.model}"\nmodel_provider = "krouter"\n\n'
        f'[model_providers.krouter]\nname = "krouter"\nbase_url = "{place.url}/v1"\n'
        'wire_api = "responses"\nenv_key = "KROUTER_KEY"\n'
    )
    command = [program(NODE, "codex"), "exec", "--skip-git-repo-check"]
    env = {"KROUTER_KEY": place.key}
    return Start([*command, "--dangerously-bypass-approvals-and-sandbox", PROMPT], env)


OPENCODE = {
    "chat": ("@ai-sdk/openai-compatible", "/v1"),
    "messages": ("@ai-sdk/anthropic", "/v1"),
    "responses": ("@ai-sdk/openai", "/v1"),
}


def opencode(dialect: str) -> Callable[[Place], Start]:
    package, path = OPENCODE[dialect]

    def start(place: Place) -> Start:
        options = {"baseURL": f"{place.url}{path}", "apiKey": place.key}
        provider = {"npm": package, "options": options, "models": {place.model: {}}}
        settings = {
            "model": f"krouter/{place.model}",
            "small_model": f"krouter/{place.model}",
            "provider": {"krouter": provider},
        }
        (place.work / "opencode.json").write_text(json.dumps(settings))
        return Start([program(NODE, "opencode"), "run", "--format", "json", PROMPT], {}, texts)

    return start


def texts(printed: str) -> str:
    """The text that opencode's events hold."""
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return "\n".join(event["part"]["text"] for event in events if event.get("type") == "text")


def llm(place: Place) -> Start:
    settings = place.home / "llm"
    settings.mkdir()
    (settings / "extra-openai-models.yaml").write_text(
        f"- model_id: krouter\n  model_name: {place.model}\n  api_base: {place.url}/v1\n"
        "  api_key_name: krouter\n  supports_tools: true\n"
    )
    env = {"LLM_USER_PATH": str(settings)}
    keep_key = [program("sdks", "llm"), "keys", "set", "krouter", "--value", place.key]
    subprocess.run(keep_key, env={**os.environ, **env}, check=True)
    function = "def read_file(path: str) -> str:\n    return open(path).read()\n"
    command = [program("sdks", "llm"), "-m", "krouter", "--functions", function, PROMPT]
    return Start(command, env)


ANSWER, CHECK = "answer.txt", "cat proof.txt; grep --quiet --file=proof.txt answer.txt"
PROOF = re.compile(r"proof-[0-9a-f]{16}")


def aider(place: Place) -> Start:
    """It has no tools; the result it must use is what its test command prints."""
    (place.work / ANSWER).write_text("nothing\n")
    command = [program("aider", "aider"), "--model", f"openai/{place.model}", "--yes-always"]
    options = ["--no-git", "--edit-format", "whole", "--auto-test", "--test-cmd", CHECK]
    quiet = ["--no-check-update", "--no-show-model-warnings", "--analytics-disable"]
    task = ["--message", "Write the token that the test prints into answer.txt.", ANSWER]
    env = {"OPENAI_API_BASE": f"{place.url}/v1", "OPENAI_API_KEY": place.key}
    return Start(
        [*command, *options, *quiet, *task], env, lambda _: (place.work / ANSWER).read_text()
    )


def edit(request: Request) -> Behaviour:
    """Writes the token that aider passes on from its test, once there is one."""
    found = PROOF.findall(request.body.decode())
    return Behaviour(text=f"{ANSWER}\n```\n{found[-1] if found else 'not known'}\n```\n")


CLIENTS: Mapping[str, Client] = {
    "claude-code": Client(
        "Claude Code",
        NODE,
        "@anthropic-ai/claude-code",
        "messages",
        claude_code,
        calls("Read", "file_path"),
        probes=frozenset({"HEAD /api/hello: 401"}),  # comes without a key, and any answer does
    ),
    "codex": Client(
        "Codex",
        NODE,
        "@openai/codex",
        "responses",
        codex,
        lambda place: ToolUser("exec_command", {"cmd": f"cat {place.proof}"}),
    ),
    **{
        f"opencode-{dialect}": Client(
            f"opencode, {package}",
            NODE,
            "opencode-ai",
            dialect,
            opencode(dialect),
            calls("read", "filePath"),
            requests=3,  # one more for a title
        )
        for dialect, (package, _) in OPENCODE.items()
    },
    "openai-python-chat": Client(
        "OpenAI SDK, Python, chat",
        "sdks",
        "openai",
        "chat",
        python("openai_chat.py"),
        calls("read_file"),
    ),
    "openai-python-responses": Client(
        "OpenAI SDK, Python, responses",
        "sdks",
        "openai",
        "responses",
        python("openai_responses.py"),
        calls("read_file"),
    ),
    "openai-js-chat": Client(
        "OpenAI SDK, JS, chat",
        NODE,
        "openai",
        "chat",
        javascript("openai_chat.mjs"),
        calls("read_file"),
    ),
    "openai-js-responses": Client(
        "OpenAI SDK, JS, responses",
        NODE,
        "openai",
        "responses",
        javascript("openai_responses.mjs"),
        calls("read_file"),
    ),
    "anthropic-python": Client(
        "Anthropic SDK, Python",
        "sdks",
        "anthropic",
        "messages",
        python("anthropic_messages.py"),
        calls("read_file"),
    ),
    "anthropic-js": Client(
        "Anthropic SDK, JS",
        NODE,
        "@anthropic-ai/sdk",
        "messages",
        javascript("anthropic_messages.mjs"),
        calls("read_file"),
    ),
    "langchain-openai": Client(
        "LangChain, langchain-openai",
        "sdks",
        "langchain-openai",
        "chat",
        python("langchain_agent.py", "openai"),
        calls("read_file"),
    ),
    "langchain-anthropic": Client(
        "LangChain, langchain-anthropic",
        "sdks",
        "langchain-anthropic",
        "messages",
        python("langchain_agent.py", "anthropic"),
        calls("read_file"),
    ),
    "llm": Client("llm", "sdks", "llm", "chat", llm, calls("read_file")),
    "aider": Client("aider", "aider", "aider-chat", "chat", aider, lambda _: edit),
}
