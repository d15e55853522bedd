"""Where clients keep their settings."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Places:
    """Files of clients, none of which needs to exist: a person's own, and those of the folder `cwd`
    which count for it alone."""

    env: Mapping[str, str]
    home: Path
    cwd: Path

    @property
    def codex(self) -> Path:
        return self._folder("CODEX_HOME", ".codex") / "config.toml"

    @property
    def claude(self) -> tuple[Path, ...]:
        """The later wins."""
        here = self.cwd / ".claude"
        own = self._folder("CLAUDE_CONFIG_DIR", ".claude")
        return (own / "settings.json", here / "settings.json", here / "settings.local.json")

    @property
    def opencode(self) -> Path:
        """Its own, for a new one."""
        return self._config / "opencode" / "opencode.json"

    @property
    def opencodes(self) -> tuple[Path, ...]:
        """The later wins."""
        given = self.env.get("OPENCODE_CONFIG")
        names = ("opencode.json", "opencode.jsonc")
        return (
            *(self.opencode.with_name(name) for name in names),
            *([self._absolute(given)] if given else []),
            *(self.cwd / name for name in names),
        )

    @property
    def opencode_logins(self) -> Path:
        given = self.env.get("XDG_DATA_HOME")
        data = self._absolute(given) if given else self.home / ".local" / "share"
        return data / "opencode" / "auth.json"

    @property
    def aider(self) -> Path:
        return self.home / ".aider.conf.yml"

    @property
    def aiders(self) -> tuple[Path, ...]:
        """The later wins."""
        return (self.aider, self.cwd / ".aider.conf.yml")

    @property
    def aider_envs(self) -> tuple[Path, ...]:
        """Files of variables. The later wins."""
        return (self.home / ".env", self.cwd / ".env")

    @property
    def llm(self) -> Path:
        given = self.env.get("LLM_USER_PATH")
        name = "io.datasette.llm"
        if given:
            folder = self._absolute(given)
        elif sys.platform == "darwin":
            folder = self.home / "Library" / "Application Support" / name
        elif sys.platform == "win32":
            folder = Path(self.env.get("APPDATA") or self.home) / name
        else:
            folder = self._config / name
        return folder / "extra-openai-models.yaml"

    @property
    def continue_(self) -> Path:
        return self._folder("CONTINUE_GLOBAL_DIR", ".continue") / "config.yaml"

    def shown(self, path: Path) -> str:
        """`path` as people write it."""
        if path.is_relative_to(self.home):
            return f"~/{path.relative_to(self.home).as_posix()}"
        return str(path)

    @property
    def _config(self) -> Path:
        given = self.env.get("XDG_CONFIG_HOME")
        return self._absolute(given) if given else self.home / ".config"

    def _folder(self, variable: str, name: str) -> Path:
        given = self.env.get(variable)
        return self._absolute(given) if given else self.home / name

    def _absolute(self, given: str) -> Path:
        try:
            return self.cwd / Path(given).expanduser()
        except RuntimeError:  # of ~name where nobody is called so
            return self.cwd / given
