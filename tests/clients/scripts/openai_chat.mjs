// The OpenAI SDK for JavaScript, chat completions: MODEL calls read_file, and the answer is printed.
import { readFileSync } from "node:fs";
import OpenAI from "openai";

const model = process.argv[2];
const parameters = { type: "object", properties: { path: { type: "string" } } };
const tools = [{ type: "function", function: { name: "read_file", parameters } }];
const client = new OpenAI();
const messages = [{ role: "user", content: "Which token is in proof.txt?" }];
for (;;) {
  const said = await client.chat.completions.stream({ model, messages, tools }).finalMessage();
  messages.push(said);
  if (!said.tool_calls?.length) {
    console.log(said.content);
    break;
  }
  for (const call of said.tool_calls) {
    const content = readFileSync(JSON.parse(call.function.arguments).path, "utf8");
    messages.push({ role: "tool", tool_call_id: call.id, content });
  }
}
