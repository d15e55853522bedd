"""What importing krouter costs, and when LiteLLM comes in."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

import krouter
from tests.harness import complaints


def run(program: str) -> list[str]:
    code = textwrap.dedent(program)
    command = [sys.executable, "-W", "error", "-X", "dev", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert complaints(done.stderr) == []
    return done.stdout.split()


def test_litellm_comes_in_with_the_first_call() -> None:
    program = """
        import sys
        import krouter
        print(*[m for m in ("litellm", "aiohttp", "pydantic", "uvloop") if m in sys.modules])
        with krouter.Router(combos={}, env={}) as router:
            print("litellm" in sys.modules)
            router.completion("demo", [{"role": "user", "content": "hi"}])
            print("litellm" in sys.modules)
    """
    assert run(program) == ["False", "True"]


def test_the_default_router_needs_no_closing() -> None:
    program = """
        import asyncio
        from krouter import acompletion, completion
        hello = [{"role": "user", "content": "hi"}]
        print(completion(model="demo", messages=hello).choices[0].finish_reason)
        print(asyncio.run(acompletion(model="demo", messages=hello)).choices[0].finish_reason)
        stream = completion(model="demo", messages=hello, stream=True)
        print(next(stream).choices[0].delta.role)
    """
    assert run(program) == ["stop", "stop", "assistant"]


def test_a_forked_process_has_a_krouter_of_its_own() -> None:
    program = """
        import os, warnings
        import krouter
        hello = [{"role": "user", "content": "hi"}]
        print(krouter.completion("demo", hello).choices[0].finish_reason, flush=True)
        warnings.simplefilter("ignore")
        child = os.fork()
        if not child:
            print(krouter.completion("demo", hello).choices[0].finish_reason, flush=True)
            os._exit(0)
        print(os.waitpid(child, 0)[1])
    """
    assert run(program) == ["stop", "stop", "0"]


def test_a_stream_that_was_open_when_the_process_forked() -> None:
    program = """
        import os, sys, warnings
        import krouter
        hello = [{"role": "user", "content": "hi"}]
        router = krouter.Router(combos={}, env={})
        stream = router.completion("demo", hello, stream=True)
        first = next(stream)
        warnings.simplefilter("ignore")
        child = os.fork()
        if not child:
            try:
                list(stream)
            except RuntimeError as error:
                print("forked" in str(error), flush=True)
            stream.close()
            router.close()
            try:
                router.completion("demo", hello)
            except RuntimeError as error:
                print("closed" in str(error), flush=True)
            os._exit(0)
        print(os.waitpid(child, 0)[1])
        print([first, *stream][-1].choices[0].finish_reason)
    """
    assert run(program) == ["True", "True", "0", "stop"]


@pytest.mark.parametrize("way", ["atexit.register(say)", "threading.Thread(target=say).start()"])
def test_the_first_call_as_the_program_ends(way: str) -> None:
    program = f"""
        import atexit, threading
        from krouter import completion
        def say():
            reply = completion("demo", [{{"role": "user", "content": "hi"}}])
            print(reply.choices[0].finish_reason)
        {way}
    """
    assert run(program) == ["stop"]


def test_names_that_are_not_there() -> None:
    with pytest.raises(AttributeError, match="complete"):
        krouter.complete  # noqa: B018
