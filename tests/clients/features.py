"""What clients do beyond one task: sessions that go on, sub-agents, retries of their own."""

from __future__ import annotations

import json
import re
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.clients.cases import LANES, combo_name, write_home
from tests.clients.clients import PROMPT, Client
from tests.clients.door import Door
from tests.clients.guided import set_up_by_env, started_by_code, store_key
from tests.clients.processes import isolated
from tests.clients.run import (
    SECONDS,
    client_env,
    make_key,
    make_place,
    run_command,
    serving,
)
from tests.clients.scene import Feature, Scene, WrongError
from tests.clients.screen import shows
from tests.upstream import Behaviour, Request, ToolUser, Upstream
from tests.upstream.book import Step
from tests.upstream.relay import latest_results

SUBTASK = "Read proof.txt and say what it holds."
UPGRADE_REQUIRED = 426
COUNTS = 24
"""Parts of its context that Claude Code has counted."""
TURN_STATE = "x-codex-turn-state"


def call(tool: str, **arguments: Any) -> Behaviour:
    return Behaviour(tool=tool, args=json.dumps(arguments))


@dataclass(frozen=True, slots=True)
class Delegating:
    """A step of a script: the agent gives its task to a sub-agent, known by what it is told."""

    agent: ToolUser
    worker: Step

    def __call__(self, request: Request) -> Behaviour:
        if PROMPT.encode() in request.body:
            return self.agent(request)
        return self.worker(request) if callable(self.worker) else self.worker


def resumes(*words: str, requests: int = 2) -> Callable[[Scene], None]:
    """The second run must send what was said in the first, in so many requests."""

    def run(scene: Scene) -> None:
        scene.model()
        first = scene.prove(scene.start())
        scene.expect(scene.client.requests)
        scene.prove(scene.start(*words))
        scene.expect(scene.client.requests + requests)
        for request in scene.upstream.requests[-requests:]:
            if first.encode() not in request.body:
                raise WrongError("the first conversation is not sent")

    return run


def claude_delegates(scene: Scene) -> None:
    task = {"description": "Read it", "prompt": SUBTASK, "subagent_type": "general-purpose"}
    agent = ToolUser("Agent", {**task, "run_in_background": False})
    scene.model(Delegating(agent, scene.client.model(scene.place)))
    scene.prove(scene.start(also=("Agent",)))
    scene.expect(4)


def claude_compacts(scene: Scene) -> None:
    scene.model()
    scene.prove(scene.start())
    scene.prove(scene.start("--continue"))
    long = len(scene.upstream.requests[-1].json["messages"])
    scene.run(scene.start("--continue", prompt="/compact"))
    scene.prove(scene.start("--continue"))
    scene.expect(8)
    kept = len(scene.upstream.requests[-1].json["messages"])
    if kept >= long + 4:
        raise WrongError(f"{kept} messages after {long}")


def claude_counts(scene: Scene) -> None:
    scene.model()
    if "Context Usage" not in scene.run(scene.start(prompt="/context")):
        raise WrongError("shows no token counts")
    paths = [visit.target.partition("?")[0] for visit in scene.visits()]
    if set(paths) != {"/v1/messages/count_tokens"}:
        raise WrongError("asks for something else")
    if len(paths) != COUNTS:
        raise WrongError(f"{len(paths)} counts instead of {COUNTS}")
    asked = [request for request in scene.upstream.requests if "count_tokens" in request.path]
    if len(asked) != (COUNTS if scene.lane == "native" else 0):
        raise WrongError(f"the provider was asked for {len(asked)} counts")


def claude_searches(scene: Scene) -> None:
    """The tool that it finds must be in the next request, and the model must be told of it."""
    read = scene.client.model(scene.place)
    search = call("ToolSearch", query="select:WebFetch", max_results=1)
    scene.model(search, call("Read", file_path=str(scene.place.proof)), read)
    scene.prove(scene.start())
    scene.expect(3)
    asked = scene.upstream.requests[1].json
    if '"WebFetch"' not in json.dumps(asked["tools"]):
        raise WrongError("the tool it found is not offered")
    if "WebFetch" not in json.dumps(asked["messages"][-1]):
        raise WrongError("the model is not told what was found")


def claude_sends(scene: Scene) -> None:
    """What other clients do not send must be there, and is kept for whoever can read it."""
    scene.model()
    scene.prove(scene.start())
    scene.expect(2)
    for visit, request in zip(scene.visits(), scene.upstream.requests, strict=True):
        sent, passed = json.loads(visit.body), request.json
        told = [turn["content"] for turn in sent["messages"] if turn["role"] == "system"]
        there = {
            "system message": told,
            "adaptive thinking": sent.get("thinking", {}).get("type") == "adaptive",
            "context_management": sent.get("context_management"),
            "deferred tool": [tool for tool in sent["tools"] if tool.get("defer_loading")],
        }
        if missing := [name for name, found in there.items() if not found]:
            raise WrongError(f"sends no {missing[0]}")
        if scene.lane == "native":
            changed = [name for name in sent if name != "model" and passed.get(name) != sent[name]]
            if changed or passed.keys() != sent.keys():
                raise WrongError(f"is passed on with other {', '.join(changed) or 'fields'}")
        elif not set(map(words_of, told)) <= said_by_system(passed):
            raise WrongError("loses a system message")


def words_of(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


def said_by_system(body: dict[str, Any]) -> set[str]:
    """The texts of the system messages of a chat."""
    turns = (turn for turn in body["messages"] if turn["role"] == "system")
    return {words_of(turn["content"]) for turn in turns}


def claude_repeats(scene: Scene) -> None:
    scene.model("reset=3", scene.client.model(scene.place))
    scene.prove(scene.start())
    scene.expect(3)
    if scene.upstream.requests[1].json.get("stream"):
        raise WrongError("repeats it as a stream")


def claude_is_refused(scene: Scene) -> None:
    """Left to itself it would repeat a 401 ten times, for three minutes, without a word."""
    scene.model()
    usual = scene.start()
    env = {name: value.replace(scene.place.key, "kr-wrong") for name, value in usual.env.items()}
    code, printed, errors = run_command(replace(usual, env=env), scene.place)
    scene.printed += f"exit code {code}\n{printed}\n{errors}\n"
    scene.expect_posts(1)
    if not code or "API key of this krouter" not in printed + errors:
        raise WrongError("the refusal is not told")


def claude_alias(scene: Scene) -> None:
    """As its list of models names combos."""
    scene.model()
    scene.place = replace(scene.place, model=f"claude-{scene.place.model}")
    scene.prove(scene.start())
    scene.expect(2)


def claude_discovers(scene: Scene) -> None:
    """Its menu of models, for which it needs a terminal and to know the folder already."""
    scene.model()
    usual = scene.client.start(scene.place)
    known = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    settings = {"hasCompletedOnboarding": True, "projects": {str(scene.place.work): known}}
    (scene.place.home / ".claude.json").write_text(json.dumps(settings))
    env = {"CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY": "1", "TERM": "xterm-256color"}
    scene.runs += 1
    found, scene.printed = shows(
        isolated([usual.command[0], "--model", scene.place.model]),
        client_env(replace(usual, env={**usual.env, **env}), scene.place),
        scene.place.work,
        ["/model", "\r"],
        r"claude-(native|translated)-\w+.*gateway",
        SECONDS,
    )
    if not found:
        raise WrongError("its menu shows no combo")
    if not any(visit.target.startswith("/v1/models") for visit in scene.door.visits):
        raise WrongError("does not ask for the models")


def codex_falls_back(scene: Scene) -> None:
    """A WebSocket is refused so that the client posts at once."""
    scene.model()
    start = scene.start()
    settings = scene.place.home / ".codex" / "config.toml"
    settings.write_text(settings.read_text() + "supports_websockets = true\n")
    scene.prove(start)
    refused = [visit.method for visit in scene.visits() if visit.status == UPGRADE_REQUIRED]
    if refused != ["GET"]:
        raise WrongError(f"{len(refused)} upgrades instead of 1")
    if [visit.method for visit in scene.visits()] != ["GET", "POST", "POST"]:
        raise WrongError("does not go on by posting")


def codex_keeps_state(scene: Scene) -> None:
    """The header of a reply comes back with the next request of the turn."""
    model = scene.client.model(scene.place)

    def step(request: Request) -> Behaviour:
        answer = model(request) if callable(model) else model
        return replace(answer, headers=((TURN_STATE, "state-1"),))

    scene.model(step)
    scene.prove(scene.start())
    scene.expect(2)
    if scene.upstream.requests[1].header.get(TURN_STATE) != "state-1":
        raise WrongError("the state does not come back")


def codex_delegates(scene: Scene) -> None:
    """Tools in a namespace start a sub-agent and wait for it; a chat provider sees plain tools."""
    space = "multi_agent_v1." if scene.lane == "native" else "multi_agent_v1__"

    def agent(request: Request) -> Behaviour:
        results = list(latest_results(request.json))
        if not results:
            return call(f"{space}spawn_agent", message=SUBTASK)
        if found := re.search(r'"agent_id":\s*"([^"]+)"', results[0]):
            return call(f"{space}wait_agent", targets=[found[1]], timeout_ms=30000)
        return Behaviour(text=results[0])

    worker = scene.client.model(scene.place)

    def step(request: Request) -> Behaviour:
        if PROMPT.encode() in request.body:
            return agent(request)
        return worker(request) if callable(worker) else worker

    scene.model(step)
    scene.prove(scene.start())
    scene.expect(5)


def opencode_delegates(scene: Scene) -> None:
    task = {"description": "Read it", "prompt": SUBTASK, "subagent_type": "general"}
    scene.model(Delegating(ToolUser("task", task), scene.client.model(scene.place)))
    scene.prove(scene.start())
    scene.expect(5)


def by_env(name: str, **how: Any) -> Feature:
    return Feature(f"set up by `krouter env {name}`", set_up_by_env(name, **how))


def by_opencode_s_provider(provider: str) -> Feature:
    """One of the others that `krouter env opencode` prints, named in the file as its note says."""
    run = set_up_by_env("opencode", edit=lambda text: text.replace('"krouter/', f'"{provider}/'))
    return Feature(f"set up by `krouter env opencode`, provider `{provider}`", run)


SDKS = {
    "openai": ("python-chat", "python-responses", "js-chat", "js-responses"),
    "anthropic": ("python", "js"),
}
OPENCODE = (
    Feature("session that goes on (`--continue`)", resumes("--continue")),
    Feature("sub-agent (`task`)", opencode_delegates),
)
FEATURES: Mapping[str, tuple[Feature, ...]] = {
    "claude-code": (
        Feature("session that goes on (`--continue`)", resumes("--continue")),
        Feature("sub-agent", claude_delegates),
        Feature("`/compact`", claude_compacts),
        Feature("token counts (`/context`)", claude_counts),
        Feature("search for deferred tools", claude_searches),
        Feature(
            "system messages, adaptive thinking, `context_management`, deferred tools",
            claude_sends,
        ),
        Feature("stream broken in the middle: asks again without streaming", claude_repeats),
        Feature("combo by its `claude-` name", claude_alias),
        Feature("combos in its `/model` menu (model discovery)", claude_discovers, ("native",)),
        by_env("claude"),
        Feature("started by `krouter code`", started_by_code),
        Feature("wrong key (401): ends at once", claude_is_refused, allowed=frozenset((401,))),
    ),
    "codex": (
        Feature("session that goes on (`exec resume --last`)", resumes("resume", "--last")),
        Feature(
            "WebSocket refused once (426), goes on over HTTP",
            codex_falls_back,
            allowed=frozenset({UPGRADE_REQUIRED}),
        ),
        Feature("turn state header", codex_keeps_state, ("native",)),
        Feature("sub-agent by tools in a namespace", codex_delegates),
        by_env("codex"),
    ),
    "opencode-chat": (
        *OPENCODE,
        by_env("opencode"),
    ),
    "opencode-messages": (*OPENCODE, by_opencode_s_provider("krouter-messages")),
    "opencode-responses": (*OPENCODE, by_opencode_s_provider("krouter-responses")),
    **{f"{name}-{kind}": (by_env(name),) for name, kinds in SDKS.items() for kind in kinds},
    **{
        f"langchain-{kind}": (by_env("langchain", options=["BARE"]),)
        for kind in ("openai", "anthropic")
    },
    "llm": (by_env("llm", prepare=store_key),),
    "aider": (by_env("aider"),),
}


def run_features(name: str, client: Client, keep: Path) -> Iterator[tuple[str, list[str]]]:
    """The cells of each feature of a client, by lane."""
    with (
        tempfile.TemporaryDirectory(prefix="clients-") as folder,
        Upstream() as upstream,
    ):
        home = Path(folder) / "krouter"
        write_home(home, client.dialect, upstream.url)
        key, log = make_key(home), keep / "krouter-features.log"
        with serving(home, log) as served, Door(served.url) as door:
            for number, feature in enumerate(FEATURES.get(name, ())):
                cells = []
                for lane in LANES:
                    made = make_place(Path(folder), f"{lane}-feature-{number}", door.url, key)
                    place = replace(made, model=combo_name(lane, "well"))
                    scene = Scene(client, place, lane, upstream, door, feature.allowed)
                    cells.append(try_out(feature, scene))
                    (keep / f"feature-{number}-{lane}.log").write_text(scene.printed)
                    served.check()
                yield feature.title, cells


def try_out(feature: Feature, scene: Scene) -> str:
    if scene.lane not in feature.lanes:
        return "-"
    try:
        feature.run(scene)
        scene.check_statuses()
    except WrongError as wrong:
        return str(wrong)
    except Exception as error:
        scene.printed += f"\n{traceback.format_exc()}"
        return f"{type(error).__name__}: {error}"
    finally:
        scene.printed += "\n--- requests\n" + "\n".join(map(str, scene.door.visits)) + "\n"
    return "ok"
