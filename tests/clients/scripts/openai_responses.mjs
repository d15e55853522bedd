// The OpenAI SDK for JavaScript, responses: MODEL calls read_file, and the answer is printed.
import { readFileSync } from "node:fs";
import OpenAI from "openai";

const model = process.argv[2];
const parameters = { type: "object", properties: { path: { type: "string" } } };
const tools = [{ type: "function", name: "read_file", parameters, strict: false }];
const client = new OpenAI();
const input = [{ role: "user", content: "Which token is in proof.txt?" }];
for (;;) {
  const reply = await client.responses.stream({ model, input, tools, store: false }).finalResponse();
  const calls = reply.output.filter((item) => item.type === "function_call");
  if (!calls.length) {
    console.log(reply.output_text);
    break;
  }
  input.push(...reply.output);
  for (const call of calls) {
    const output = readFileSync(JSON.parse(call.arguments).path, "utf8");
    input.push({ type: "function_call_output", call_id: call.call_id, output });
  }
}
