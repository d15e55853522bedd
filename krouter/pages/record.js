// What the drawing of a route shows: who was asked in which order, what came of it, and who was not
// needed. A rehearsal is drawn as the route that it would be. Pure.

import { carried, listed, money, plural, reason, span, tokens, tone } from "./words.js";

/** Boxes and arrows of a route; see drawRoute for the options. */
export function routePicture(route, options) {
  const known = { ...options, reads: readsOf(route, options) };
  return route.shape === "fan" ? panelPicture(route, known) : walkPicture(route, known);
}

/** What the entries read of the combo that was asked for: another may say otherwise of a model. */
function readsOf(route, { reads, combos }) {
  if (!combos) return reads;
  const own = combos.find((combo) => combo.name === route.combo);
  return Object.fromEntries((own?.entries ?? []).map((entry) => [entry.model, entry.reads]));
}

/** As drawRehearsal has it: `options.fail` maps entries to the faults that were chosen for them. */
export function rehearsalPicture(answer, combo, options) {
  const picture = routePicture(answer.route, { ...options, entries: combo.entries });
  const buttons = picture.boxes.filter((box) => box.index != null);
  for (const box of buttons) box.label = `${inWords(box)}; choose how it fails`;
  if (options.interactive) picture.label = heading(answer.route); // the boxes tell the rest
  return picture;
}

function walkPicture(route, options) {
  const groups = new Map(route.plan.map((_, index) => [index + 1, []]));
  const visited = [];
  route.steps.forEach((step) => {
    const place = step.places?.[0] ?? 0;
    if (!groups.has(place)) groups.set(place, []);
    if (!groups.get(place).length) visited.push(place);
    groups.get(place).push(step);
  });
  const boxes = [
    requestBox(route),
    ...visited.map((place) => placeBox(route, place, groups.get(place), options)),
    callerBox(route),
  ];
  const left = [...groups.keys()].filter((place) => place && !groups.get(place).length);
  const connected = boxes.length;
  for (const place of left) boxes.push(placeBox(route, place, [], options));
  const edge = ({ to }) => (to >= connected ? "none" : look(boxes[to].state));
  return { shape: "chain", boxes, edge, label: label(route, boxes) };
}

const look = (state) =>
  ["good", "bad"].find((each) => (state ?? "").split(" ").includes(each)) ?? "";

/** The arrow to the judge: nothing comes from an entry that has failed. */
const given = (box) => (look(box.state) === "bad" ? "none" : look(box.state));

function panelPicture(route, options) {
  const numbered = route.voices.map((voice, index) => ({ ...voice, number: index + 1 }));
  const own = numbered.filter((voice) => !voice.within);
  const boxes = own
    .filter((voice) => voice.role === "panel")
    .sort((a, b) => a.place - b.place)
    .map((voice) => voiceBox(route, voice, options));
  const last = own.filter((voice) => voice.role !== "panel").at(-1);
  const sink = last
    ? voiceBox(route, last, options)
    : {
        title: "no judge",
        state: "off",
        lines: [{ text: "nobody was asked to judge", tone: "dim", rows: 2 }],
      };
  if (last) sink.badge = { text: last.role === "judge" ? "judge" : "asked again" };
  const edge = ({ from, ends }) =>
    ends ? look(tone(route.outcome)) : from == null ? "" : given(boxes[from]);
  const picture = {
    shape: "fan",
    source: requestBox(route),
    boxes,
    sink,
    last: callerBox(route),
    edge,
  };
  return { ...picture, label: label(route, [picture.source, ...boxes, sink, picture.last]) };
}

function label(route, boxes) {
  return [heading(route), ...boxes.map(inWords)].join(". ");
}

const heading = (route) => `The route of a request for ${route.asked}`;

const inWords = ({ title, badge, lines }) =>
  [title, badge?.text, ...lines.map((line) => line.text)].filter(Boolean).join(", ");

function requestBox(route) {
  const lines = [{ text: `asks for ${route.asked}`, rows: 2 }];
  if (route.needs?.length)
    lines.push({ text: `with ${carried(route.needs)}`, tone: "accent", rows: 2 });
  if (route.dialect)
    lines.push({
      text: `${route.dialect}, ${route.stream ? "streamed" : "not streamed"}`,
      tone: "dim",
      rows: 2,
    });
  return { title: "the request", state: "end", slim: true, lines };
}

function callerBox(route) {
  const state = tone(route.outcome);
  const took = route.ended == null ? "" : span(route.ended - route.began);
  const lines = [
    {
      text: [route.status, route.outcome].filter(Boolean).join(" ") || "waits",
      tone: state,
      rows: 2,
    },
  ];
  for (const text of [tokens(route.usage), [took, money(route.cost)].filter(Boolean).join(" · ")]) {
    if (text) lines.push({ text, tone: "dim", rows: 2 });
  }
  return { title: "the caller", state: `end ${state}`, slim: true, lines };
}

/** An entry of the order with what was tried of it. */
function placeBox(route, place, steps, options) {
  const placed = route.plan[place - 1];
  const name = placed?.entry ?? steps[0].entry;
  const box = { title: name, isName: true, number: place || "", lines: [] };
  if (placed) {
    const words = reason(placed, options.reads?.[name]);
    box.lines.push({ text: words, tone: placed.moved ? "accent" : "dim", rows: 2 });
    const where = listed(placed, place - 1);
    if (where) box.lines.push({ text: where, tone: "dim" });
    indexed(box, placed, options);
  }
  box.lines.push(...allLines(route, steps, name));
  if (!steps.length) box.lines.push({ text: untried(route), tone: "dim" });
  box.state = steps.length ? stateOf(steps) : "off";
  return box;
}

const UNTRIED = { good: "not needed", open: "not tried yet", bad: "not tried" };
const untried = (route) => UNTRIED[tone(route.outcome)];

/** In What if a box leads to the faults of its entry; it knows that by its place in the list. */
function indexed(box, placed, options) {
  if (!placed?.listed || !options.entries) return;
  const index = placed.listed - 1;
  if (options.entries[index]?.model !== placed.entry) return; // the combo has changed since
  box.index = index;
  const fault = options.fail?.[placed.entry];
  if (fault) box.lines.push({ text: `made to fail: ${fault}`, tone: "bad", rows: 2 });
}

function voiceBox(route, voice, options) {
  const steps = route.steps.filter((step) => around(route, step.voice).includes(voice.number));
  const box = {
    title: voice.entry,
    isName: true,
    number: voice.place || "",
    lines: allLines(route, steps, voice.entry),
  };
  if (voice.outcome !== "answered" || !steps.length)
    box.lines.unshift({ text: voice.outcome, tone: tone(voice.outcome), rows: 2 });
  if (voice.length != null)
    box.lines.push({
      text: `${voice.length.toLocaleString("en")} characters${shortened(voice)}`,
      tone: "dim",
    });
  box.state = tone(voice.outcome);
  indexed(box, route.plan[voice.place - 1], options);
  return box;
}

const shortened = (voice) =>
  voice.given != null && voice.given < voice.length
    ? `, ${voice.given.toLocaleString("en")} judged`
    : "";

function around(route, number) {
  const found = [];
  for (let at = number; at; at = route.voices[at - 1].within) found.push(at);
  return found;
}

function stateOf(steps) {
  const attempts = steps.filter((step) => step.step === "attempt");
  if (!attempts.length) return "mixed";
  if (attempts.some((step) => step.outcome === "answered")) return "good";
  return attempts.some((step) => tone(step.outcome) === "open") ? "lit" : "bad";
}

/** The steps of a box; in a nested combo each model is named once. */
function allLines(route, steps, name) {
  return steps.flatMap((step, index) => stepLines(route, step, steps[index - 1]?.entry ?? name));
}

/** What came of one account: outcome and time, tokens and cost, and the error's own words. */
function stepLines(route, step, named) {
  const whom = [step.entry === named ? "" : step.entry, step.account].filter(Boolean).join(", ");
  if (step.step === "skip") {
    const why = [step.reason, step.detail].filter(Boolean).join(": ");
    return [
      { text: `${whom ? `${whom} ` : ""}skipped, ${why}`, tone: "warn", dot: "warn", rows: 3 },
    ];
  }
  const inner = step.entry === named ? [] : [{ text: step.entry }];
  const lines = [
    ...inner,
    { text: step.account || "no account", dot: tone(step.outcome), right: took(step) },
  ];
  const answered = step.outcome === "answered";
  const outcome = [step.status, step.outcome].filter(Boolean).join(" ");
  const error =
    step.detail && step.detail !== step.outcome ? `${outcome}: ${step.detail}` : outcome;
  lines.push({
    text: answered ? outcome : error,
    tone: tone(step.outcome),
    indent: true,
    rows: 3,
    right: begins(route, step),
  });
  const spent = [tokens(step.usage), money(step.cost)].filter(Boolean).join(" · ");
  if (spent) lines.push({ text: spent, tone: "dim", indent: true });
  if (step.lock)
    lines.push({
      text: `locks ${step.locked || "it"} for ${span(step.lock)}`,
      tone: "warn",
      indent: true,
    });
  return lines;
}

function took(step) {
  if (step.ended == null || step.began == null) return step.began == null ? "" : "under way";
  const isWhole = step.first_byte == null || step.ended - step.first_byte < 0.02;
  const first = isWhole ? "" : `first byte ${span(step.first_byte - step.began)}, `;
  return `${first}${span(step.ended - step.began)}`;
}

function begins(route, step) {
  const after = step.began == null ? null : step.began - route.began;
  return after == null || after < 0.0005 ? "" : `at ${span(after)}`;
}

/** `2 attempts`. */
export const attempts = (route) =>
  plural(route.steps.filter((step) => step.step === "attempt").length, "attempt");
