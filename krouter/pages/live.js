// What krouter tells as it happens: one stream for all pages, read by fetch so that a key goes along.

import { get, Refused, send } from "./api.js";
import { calm } from "./dom.js";

const FLASH_MS = 1400; // how long an entry shows that it has just ended
const LEAST_LIT_MS = 350; // what ends sooner would not be seen
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10000;
const UNSEEN_MS = 30000; // after which a page that nobody looks at lets its connection go
const SILENT_MS = 40000; // after which the connection is taken for broken: krouter gives a sign of life each 15 s

/**
 * Events: `view` (the snapshot is new), `lights` (other entries are under way), `begin`, `step`, `end`,
 * `log`, `lost` (of these), `again` (it is followed again after a gap), `state` ({word, why}).
 */
export const live = new EventTarget();
/** The last snapshot, null before the first. */
live.view = null;
/** Seconds that krouter's clock is ahead of this one. */
live.ahead = 0;
live.now = () => Date.now() / 1000 + live.ahead;

const lights = new Map(); // by request and step: {boxes, since}
const flashes = new Map(); // by combo and index: {tone, until}

/** Which entries of a combo are under way, and how those ended that just have. */
export function lit(combo) {
  const here = [...lights.values()]
    .flatMap((light) => light.boxes)
    .filter((box) => box.combo === combo && box.index != null);
  const flash = {};
  for (const [key, { tone }] of flashes) {
    const [name, index] = key.split("\n");
    if (name === combo) flash[index] = tone;
  }
  return { lit: [...new Set(here.map((box) => box.index))], flash };
}

/** Reads the snapshot anew. */
async function refresh() {
  const view = await get("api/view");
  live.ahead = view.now - Date.now() / 1000;
  live.view = view;
  tell("view", view);
}

const soon = calm(() => refresh().then(relight).catch(() => leave.abort()), 200);

function tell(name, detail) {
  live.dispatchEvent(new CustomEvent(name, { detail }));
}

let leave = new AbortController(); // lets the connection go
let unseen = null; // the timer that does where nobody looks
let isAgain = false; // whether it was followed before

/** Follows krouter as long as the page is open and, but for a moment, in sight. */
export async function follow() {
  for (let wait = FIRST_WAIT_MS; ; wait = Math.min(LONGEST_WAIT_MS, wait * 2)) {
    await inSight();
    let why = "";
    try {
      leave = new AbortController();
      await listen(leave, () => (wait = FIRST_WAIT_MS));
    } catch (error) {
      why = error instanceof Refused ? error.message : ""; // else the connection broke, or was left
    } finally {
      leave.abort(); // a stream that is left open takes one of the few connections of a browser
    }
    lights.clear();
    tell("lights");
    tell("state", { word: "reconnecting", why });
    if (!document.hidden) await new Promise((done) => setTimeout(done, wait));
  }
}

/** Takes one connection's events until it ends; `good` is told whenever one was taken. */
async function listen(leave, good) {
  const answer = await send("GET", "api/live", undefined, leave.signal);
  if (!answer.ok) throw new Refused(answer.status, await answer.json().catch(() => null));
  let silent = null;
  const alive = () => {
    clearTimeout(silent);
    silent = setTimeout(() => leave.abort(), SILENT_MS);
  };
  try {
    alive();
    for await (const event of eventsOf(answer.body, alive)) {
      await take(event);
      good();
    }
  } finally {
    clearTimeout(silent);
  }
}

/** Waits until somebody looks: a browser has few connections for all its pages. */
async function inSight() {
  if (!document.hidden) return;
  await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(unseen);
  if (document.hidden) unseen = setTimeout(() => leave.abort(), UNSEEN_MS);
});

async function take({ name, data }) {
  if (name === "hello") {
    await refresh();
    relight();
    tell("state", { word: "live", why: "" });
    if (isAgain) tell("again");
    isAgain = true;
    return;
  }
  if (name === "step") light(data);
  if (name === "end" && !data.lingers) putOut(data.id);
  if (["view", "lost"].includes(name)) soon();
  tell(name, data);
}

const keyOf = (step) => `${step.id} ${step.step}`;

/** Lights what the snapshot has under way, and nothing else: ends may have been lost. */
function relight() {
  const steps = live.view.in_flight.flatMap((request) => request.steps ?? []);
  const open = new Set(steps.map(keyOf));
  for (const key of lights.keys()) if (!open.has(key)) lights.delete(key);
  steps.forEach(light);
  tell("lights");
}

function light(step) {
  const key = keyOf(step);
  const { boxes } = step;
  if (step.kind === "attempt" && step.ended == null) {
    lights.set(key, { boxes, since: lights.get(key)?.since ?? Date.now() });
    tell("lights");
    return;
  }
  const tone = step.kind === "skip" ? "mixed" : step.outcome === "answered" ? "good" : "bad";
  const shown = lights.get(key)?.since ?? 0;
  setTimeout(() => end(key, boxes, tone), Math.max(0, shown + LEAST_LIT_MS - Date.now()));
}

function end(key, boxes, tone) {
  lights.delete(key);
  const marks = boxes.filter((box) => box.index != null).map((box) => `${box.combo}\n${box.index}`);
  const flash = { tone };
  for (const mark of marks) flashes.set(mark, flash);
  tell("lights");
  setTimeout(() => {
    for (const mark of marks) if (flashes.get(mark) === flash) flashes.delete(mark);
    tell("lights");
  }, FLASH_MS);
}

/** Whatever of a request is still lit when it is over: its ends may have been lost. */
function putOut(id) {
  setTimeout(() => {
    for (const key of lights.keys()) if (key.startsWith(`${id} `)) lights.delete(key);
    tell("lights");
  }, LEAST_LIT_MS + 50);
}

/** The events of a stream, each with its name and its data; `alive` is told of whatever comes. */
async function* eventsOf(body, alive) {
  let text = "";
  for await (const piece of chunks(body.pipeThrough(new TextDecoderStream()))) {
    alive();
    text += piece;
    const parts = text.split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const event = parsed(part);
      if (event) yield event;
    }
  }
}

async function* chunks(stream) {
  const reader = stream.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {}); // it may have broken already
  }
}

function parsed(part) {
  const event = { name: "", data: null };
  for (const line of part.split("\n")) {
    if (line.startsWith("event: ")) event.name = line.slice(7);
    if (line.startsWith("data: ")) event.data = JSON.parse(line.slice(6));
  }
  return event.name ? event : null;
}
