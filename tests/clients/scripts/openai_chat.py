"""The OpenAI SDK, chat completions: MODEL calls read_file, and the answer is printed."""

import json
import sys
from pathlib import Path

from openai import OpenAI

MODEL = sys.argv[1]
TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
}
client = OpenAI()
messages = [{"role": "user", "content": "Which token is in proof.txt?"}]
while True:
    with client.chat.completions.stream(model=MODEL, messages=messages, tools=[TOOL]) as stream:
        said = stream.get_final_completion().choices[0].message
    if not said.tool_calls:
        break
    messages.append(said)
    for call in said.tool_calls:
        text = Path(json.loads(call.function.arguments)["path"]).read_text()
        messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
print(said.content)
