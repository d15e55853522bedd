// Calls of krouter's own API. A key is asked for once, kept for this tab alone, and sent as a header.

import { button, dialog, h, pressed } from "./dom.js";

const KEPT = "krouter.key";
const SENDABLE = /^[!-~]+$/;

/** What an answer that is no success tells: `status`, `message`, and the `problems` of a refused edit. */
export class Refused extends Error {
  constructor(status, body) {
    super(body?.error?.message ?? body?.message ?? `krouter answered ${status}.`);
    this.status = status;
    this.code = body?.error?.code ?? null;
    this.problems = body?.problems ?? body?.error?.problems ?? null;
  }
}

/** The body of the answer. Raises Refused, or TypeError where krouter cannot be reached. */
export async function call(method, path, body) {
  const answer = await send(method, path, body);
  const told = await answer.json().catch(() => null);
  if (!answer.ok) throw new Refused(answer.status, told);
  return told;
}

/** A name as a part of a path. A browser takes "." and ".." for steps, however they are written. */
export function part(name) {
  if (name === "." || name === "..") throw new Error(`"${name}" is no name.`);
  return encodeURIComponent(name);
}

export const get = (path) => call("GET", path);

/** The key of this tab, unless it could not be sent in a header. */
function keptKey() {
  const key = sessionStorage.getItem(KEPT);
  return key && SENDABLE.test(key) ? key : null;
}

/** The answer itself, after the key has been asked for where one is needed. */
export async function send(method, path, body, signal) {
  for (;;) {
    const key = keptKey();
    const headers = key ? { authorization: `Bearer ${key}` } : {};
    if (body !== undefined) headers["content-type"] = "application/json";
    const text = body === undefined ? undefined : JSON.stringify(body);
    const answer = await fetch(path, { method, headers, body: text, signal, cache: "no-store" });
    if (answer.status !== 401 && (answer.status !== 403 || !key)) return answer;
    const told = await answer
      .clone()
      .json()
      .catch(() => null);
    if (answer.status === 403 && told?.error?.code !== "key_has_limits") return answer;
    await askForKey(key, told?.error?.message);
  }
}

let asking = null;

/** Several calls that lack the key wait for one answer. */
function askForKey(used, why) {
  if (keptKey() !== used) return null; // another call has asked meanwhile
  asking ??= new Promise((done) => showQuestion(used ? why : "", done)).finally(() => {
    asking = null;
  });
  return asking;
}

function showQuestion(why, done) {
  const input = h("input", {
    id: "key",
    name: "key",
    type: "password",
    autocomplete: "off",
    required: true,
    pattern: String.raw`\s*[!-~]+\s*`, // what else there is cannot be sent in a header
    title: "A key has letters, digits, '-' and '_' only.",
    spellcheck: "false",
  });
  const box = dialog("A key is needed", () =>
    [
      h(
        "p",
        {},
        "This krouter asks for one of its API keys, one without limits. ",
        h("code", {}, "krouter keys add NAME"),
        " makes one. It stays in this tab.",
      ),
      why && h("p", { class: "trouble", role: "alert" }, why),
      h(
        "form",
        { method: "dialog", onsubmit: () => sessionStorage.setItem(KEPT, input.value.trim()) },
        h("label", { for: "key" }, "Key"),
        input,
        h("div", { class: "actions" }, h("button", { class: "main" }, "Use it")),
      ),
    ].filter(Boolean),
  );
  box.addEventListener("cancel", (event) => event.preventDefault());
  box.addEventListener("close", done);
}

let isAsking = false;

/**
 * Shows a change before it is made: `look` gets it, `show` gives what is shown of it and whether it
 * is one, `make` is given it and makes it, `done` is told. One at a time: another that is wanted meanwhile is left out.
 */
export async function confirmed(title, look, make, show, done) {
  if (isAsking) return;
  isAsking = true;
  try {
    const told = await look();
    const { shown, isChange } = show(told);
    dialog(title, (box) => question(box, shown, isChange && (() => make(told)), done));
  } finally {
    isAsking = false;
  }
}

function question(box, shown, make, done) {
  const trouble = h("div");
  const attempt = async () => {
    try {
      done(await make());
      box.close();
    } catch (error) {
      trouble.replaceChildren(h("p", { class: "trouble", role: "alert" }, error.message));
    }
  };
  const save = button("Save", () => pressed(save, attempt), { class: "main" });
  const leave = button(make ? "Not now" : "Close", () => box.close());
  return [...shown, trouble, h("div", { class: "actions" }, leave, make && save)];
}
