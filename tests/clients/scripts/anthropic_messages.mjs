// The Anthropic SDK for JavaScript: MODEL calls read_file, and the answer is printed.
import { readFileSync } from "node:fs";
import Anthropic from "@anthropic-ai/sdk";

const model = process.argv[2];
const input_schema = { type: "object", properties: { path: { type: "string" } } };
const tools = [{ name: "read_file", input_schema }];
const client = new Anthropic();
const messages = [{ role: "user", content: "Which token is in proof.txt?" }];
for (;;) {
  const said = await client.messages.stream({ model, max_tokens: 1000, messages, tools }).finalMessage();
  const calls = said.content.filter((block) => block.type === "tool_use");
  if (!calls.length) {
    console.log(said.content.map((block) => block.text ?? "").join(""));
    break;
  }
  const content = calls.map((call) => ({
    type: "tool_result",
    tool_use_id: call.id,
    content: readFileSync(call.input.path, "utf8"),
  }));
  messages.push({ role: "assistant", content: said.content }, { role: "user", content });
}
