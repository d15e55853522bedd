"""Clients that are started and set up by krouter's own commands."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.clients.clients import Start
from tests.clients.install import NODE, program
from tests.clients.run import client_env, krouter, krouter_env

if TYPE_CHECKING:
    from tests.clients.features import Scene


def started_by_code(scene: Scene) -> None:
    """`krouter code` finds Claude Code on PATH, and asks the running krouter before it starts."""
    scene.model()
    usual = scene.start()
    options = ("--url", scene.place.url, "--model", scene.place.model)
    path = f"{Path(program(NODE, 'claude')).parent}:{os.environ['PATH']}"
    env = {**krouter_env(), "PATH": path, "KROUTER_KEY": scene.place.key}
    words = [word for word in usual.command[1:] if word not in ("--model", scene.place.model)]
    scene.prove(Start(krouter("code", *options, *words), env))
    scene.expect_posts(2)


def set_up_by_env(name: str) -> Callable[[Scene], None]:
    """Its files and variables are those of `krouter env NAME --json`, and no others."""

    def run(scene: Scene) -> None:
        scene.model()
        usual = scene.start()
        for settings in (*scene.place.home.rglob("config.toml"), *scene.place.work.glob("*.json")):
            settings.unlink()
        told = guide(scene, name)
        for file in told["files"]:
            path = Path(file["path"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file["text"])
        scene.door.clear()
        scene.prove(replace(usual, env=told["variables"]))
        scene.expect_posts(scene.client.requests)

    return run


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
