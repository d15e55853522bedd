"""The Anthropic SDK: MODEL calls read_file, and the answer is printed."""

import sys
from pathlib import Path

from anthropic import Anthropic

MODEL = sys.argv[1]
TOOL = {
    "name": "read_file",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
}
client = Anthropic()
messages = [{"role": "user", "content": "Which token is in proof.txt?"}]
while True:
    with client.messages.stream(
        model=MODEL, max_tokens=1000, messages=messages, tools=[TOOL]
    ) as stream:
        said = stream.get_final_message()
    calls = [block for block in said.content if block.type == "tool_use"]
    if not calls:
        break
    results = [
        {
            "type": "tool_result",
            "tool_use_id": call.id,
            "content": Path(call.input["path"]).read_text(),
        }
        for call in calls
    ]
    messages.append({"role": "assistant", "content": said.content})
    messages.append({"role": "user", "content": results})
print("".join(block.text for block in said.content if block.type == "text"))
