"""Clients that are started and set up by krouter's own commands."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.clients.clients import Start
from tests.clients.install import NODE, program
from tests.clients.run import client_env, krouter, krouter_env
from tests.clients.scene import Scene


def started_by_code(scene: Scene) -> None:
    """`krouter code` finds Claude Code on PATH, and asks the running krouter before it starts."""
    scene.model()
    usual = scene.start()
    options = ("--url", scene.place.url, "--model", scene.place.model)
    path = f"{Path(program(NODE, 'claude')).parent}:{os.environ['PATH']}"
    env = {**krouter_env(), "PATH": path, "KROUTER_KEY": scene.place.key}
    words = without_model(usual.command)[1:]
    scene.prove(Start(krouter("code", *options, *words), env))
    scene.expect_posts(2)


def without_model(command: list[str]) -> list[str]:
    """The command without the option that names a model."""
    at = command.index("--model") if "--model" in command else len(command)
    return [*command[:at], *command[at + 2 :]]


def set_up_by_env(
    name: str,
    options: Sequence[str] = (),
    edit: Callable[[str], str] = str,
    prepare: Callable[[Scene, Sequence[str]], None] = lambda scene, notes: None,
) -> Callable[[Scene], None]:
    """The client finds the files and variables of `krouter env NAME --json`, and no others.
    `edit` and `prepare` do what the notes say, to the files and beside them."""

    def run(scene: Scene) -> None:
        scene.model()
        usual = scene.client.start(scene.place)
        for settings in (*scene.place.home.rglob("config.toml"), *scene.place.work.glob("*.json")):
            settings.unlink()
        told = guide(scene, name)
        for file in told["files"]:
            path = Path(file["path"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(edit(file["text"]))
        prepare(scene, told["notes"])
        scene.door.clear()
        command = without_model(usual.command) if told["variables"] else usual.command
        command = [*command, *options]
        scene.prove(replace(usual, command=command, env=told["variables"]))
        scene.expect_posts(scene.client.requests)

    return run


def store_key(scene: Scene, notes: Sequence[str]) -> None:
    """Does what llm is told to do once, without being asked for the key."""
    (words,) = (note.partition(": ")[2].split() for note in notes if note.startswith("Store"))
    command = [program("sdks", words[0]), *words[1:], "--value", scene.place.key]
    subprocess.run(command, env=client_env(Start([]), scene.place), check=True)


def guide(scene: Scene, name: str) -> dict[str, Any]:
    """What `krouter env` says to somebody at home in the scene's place."""
    options = ("--url", scene.place.url, "--model", scene.place.model, "--json")
    env = client_env(Start([], {**krouter_env(), "KROUTER_KEY": scene.place.key}), scene.place)
    done = subprocess.run(
        krouter("env", name, *options),
        cwd=scene.place.work,
        env=env,
        stdout=subprocess.PIPE,
        check=True,
    )
    told: dict[str, Any] = json.loads(done.stdout)
    return told
