"""LangChain: MODEL of an OpenAI or Anthropic chat class calls read_file; the answer is printed."""

import os
import sys
from pathlib import Path

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool

KIND, MODEL = sys.argv[1:3]


@tool
def read_file(path: str) -> str:
    """Read a file."""
    return Path(path).read_text()


def at(variable: str) -> dict[str, str]:
    """The address in the program, unless BARE: then the class must find one by itself."""
    return {} if "BARE" in sys.argv else {"base_url": os.environ[variable]}


if KIND == "anthropic":
    from langchain_anthropic import ChatAnthropic

    model = ChatAnthropic(model=MODEL, **at("ANTHROPIC_BASE_URL"))
else:
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model=MODEL, **at("OPENAI_BASE_URL"))
messages = [HumanMessage("Which token is in proof.txt?")]
while True:
    said = None
    for chunk in model.bind_tools([read_file]).stream(messages):
        said = chunk if said is None else said + chunk
    if not said.tool_calls:
        break
    messages.append(said)
    messages += [
        ToolMessage(read_file.invoke(call["args"]), tool_call_id=call["id"])
        for call in said.tool_calls
    ]
print(said.content if isinstance(said.content, str) else said.content[-1]["text"])
