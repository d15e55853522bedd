"""The OpenAI SDK, responses: MODEL calls read_file, and the answer is printed."""

import json
import sys
from pathlib import Path

from openai import OpenAI

MODEL = sys.argv[1]
TOOL = {
    "type": "function",
    "name": "read_file",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    "strict": False,
}
client = OpenAI()
turns = [{"role": "user", "content": "Which token is in proof.txt?"}]
while True:
    with client.responses.stream(model=MODEL, input=turns, tools=[TOOL], store=False) as stream:
        reply = stream.get_final_response()
    calls = [item for item in reply.output if item.type == "function_call"]
    if not calls:
        break
    turns += [item.to_dict() for item in reply.output]
    for call in calls:
        text = Path(json.loads(call.arguments)["path"]).read_text()
        turns.append({"type": "function_call_output", "call_id": call.call_id, "output": text})
print(reply.output_text)
