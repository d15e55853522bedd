"""The servers that are measured, each in a folder of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bodies import body
from benchmarks.clock import tree
from benchmarks.provider import HELLO
from benchmarks.startup import KROUTER

PROXY = "litellm[proxy]==1.108.7"
"""The newest whose extra dependencies are all published."""
CACHE = Path(".benchmarks")
PATIENCE = 120.0


class Unavailable(Exception):
    """A server that cannot be had here."""


@dataclass(slots=True)
class Server:
    """A process that answers on `port`. `started` is the seconds until its first answer."""

    name: str
    port: int
    key: str
    process: subprocess.Popen[Any]
    started: float = 0.0

    def pids(self) -> list[int]:
        return tree(self.process.pid)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


Launch = Callable[[Path, int], Server]
"""Starts a server with its files in a folder, in front of the provider at a port."""


def forwarder(folder: Path, provider: int) -> Server:
    port = free_port()
    command = ["-m", "benchmarks.forwarder", str(port), f"http://127.0.0.1:{provider}"]
    return _start("forwarder", [sys.executable, *command], folder, port, "none")


def krouter(folder: Path, provider: int) -> Server:
    """As it comes: routes, ledger and metrics on, with a key, and accounts for all of `daily`."""
    origin = f"http://127.0.0.1:{provider}"
    both = f'base_urls = {{ chat = "{origin}/v1", messages = "{origin}" }}\nkey = "env:A_KEY"\n'
    rows = [f"[provider.{name}]\n{both}" for name in ("glm", "deepseek")]
    rows.append(f'[provider.cc]\nbase_urls = {{ messages = "{origin}" }}\nkey = "env:A_KEY"\n')
    rows += [
        f'[provider.chat{number}]\nbase_url = "{origin}/v1"\nkey = "env:A_KEY"\n'
        f'[provider.messages{number}]\nbase_url = "{origin}"\nspeaks = ["messages"]\n'
        'key = "env:A_KEY"\n'
        for number in range(3)
    ]
    folder.joinpath("krouter.toml").write_text("\n".join(rows))
    folder.joinpath("combos").mkdir()
    for dialect in ("chat", "messages"):
        combo = {"models": [f"{dialect}{number}/fast" for number in range(3)]}
        folder.joinpath("combos", f"to-{dialect}.json").write_text(json.dumps(combo))
    port, home = free_port(), ["--home", str(folder)]
    keys = [KROUTER, "keys", "add", "bench", *home]
    done = subprocess.run(keys, check=True, capture_output=True, text=True)
    command = [KROUTER, "serve", "--port", str(port), *home]
    key = next(word for word in done.stdout.split() if word.startswith("kr-"))
    return _start("krouter", command, folder, port, key)


def litellm(folder: Path, provider: int) -> Server:
    """LiteLLM's proxy with a key, one worker, and no look-up on the network."""
    program = install_proxy()
    origin = f"http://127.0.0.1:{provider}"
    chat = {"model": "hosted_vllm/fast", "api_base": f"{origin}/v1", "api_key": "none"}
    messages = {"model": "anthropic/claude-sonnet-4-6", "api_base": origin, "api_key": "none"}
    models = {"daily": chat, "to-chat": chat, "to-messages": messages}
    config = {
        "model_list": [{"model_name": name, "litellm_params": to} for name, to in models.items()],
        "general_settings": {"master_key": "sk-bench"},
    }
    folder.joinpath("config.yaml").write_text(json.dumps(config))  # which is YAML too
    port = free_port()
    command = [str(program), "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)]
    return _start("litellm", [*command, "--num_workers", "1"], folder, port, "sk-bench")


def install_proxy() -> Path:
    """LiteLLM's proxy in an environment of its own, made at first need. Raises Unavailable."""
    home = (CACHE / PROXY.replace("[", "-").replace("]", "")).absolute()
    program, done = home / "bin/litellm", home / "installed"
    if done.exists():
        return program
    uv = str(Path(sys.executable).with_name("uv"))
    steps = (
        [uv, "venv", "--clear", "--python", sys.executable, str(home)],
        [uv, "pip", "install", "--python", str(home / "bin/python"), PROXY],
    )
    for step in steps:
        try:
            subprocess.run(step, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
            raise Unavailable(f"{PROXY} cannot be installed: {said[-1]}") from None
    done.touch()
    return program


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _start(name: str, command: list[str], folder: Path, port: int, key: str) -> Server:
    """Raises Unavailable if there is no answer."""
    here = Path(__file__).parents[1]
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    environment = {
        **kept,
        "PYTHONPATH": f"{here}:{here / 'adapters'}",
        "A_KEY": f"sk-{'none' * 10}",  # as long as a provider's
        "LITELLM_MODE": "PRODUCTION",
        "LITELLM_LOG": "ERROR",
        "LITELLM_OFFLINE_MODE": "true",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "NO_PROXY": "127.0.0.1",
    }
    if name == "litellm":
        del environment["PYTHONPATH"]
    began = time.perf_counter()
    with folder.joinpath("output").open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=environment, cwd=folder
        )
    server = Server(name, port, key, process)
    while not _answers(server):
        if process.poll() is not None or time.perf_counter() - began > PATIENCE:
            server.stop()
            said = folder.joinpath("output").read_text().strip()[-600:]
            raise Unavailable(f"{name} does not answer: {said}")
        time.sleep(0.01)
    server.started = time.perf_counter() - began
    return server


def _answers(server: Server) -> bool:
    """Whether it has answered a request."""
    sent = body("chat", "1 kB", "daily")
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(sent)}\r\n"
        f"authorization: Bearer {server.key}\r\ncontent-type: application/json\r\n"
        "connection: close\r\n\r\n"
    )
    try:
        with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
            connection.sendall(head.encode() + sent)
            reply = b"".join(iter(lambda: connection.recv(65536), b""))
    except OSError:
        return False
    return reply.startswith(b"HTTP/1.1 200 ") and HELLO.encode() in reply
