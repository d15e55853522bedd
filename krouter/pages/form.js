// The form of a combo: what of its file has a control of its own. The rest is written as JSON.

import { shown, strategyOf } from "./draft.js";
import { field, h, select } from "./dom.js";
import { live } from "./live.js";

const isFusion = (draft) => strategyOf(draft)?.shape === "fan";
const takesTurns = (draft) => !!strategyOf(draft)?.turns;
const always = () => true;

/**
 * Path in the file, label, hint, kind, and when it is shown. A kind that is a list has what holds
 * where nothing is set behind the empty choice.
 */
const FIELDS = [
  [["description"], "Description", "", "text", always],
  [["strategy"], "Strategy", "", "strategy", always],
  [
    ["stickyLimit"],
    "Sticky limit",
    "Requests that an entry keeps the front for, instead of the limit for all combos; counts while the combo takes turns.",
    "number",
    takesTurns,
  ],
  [["judge"], "Judge", "A model or a combo; empty for the first entry.", "model", isFusion],
  [
    ["fusionTuning", "minPanel"],
    "Answers to wait for",
    () => unlessSet("minPanel"),
    "number",
    isFusion,
  ],
  [
    ["fusionTuning", "stragglerGraceMs"],
    "Then wait, ms more",
    () => unlessSet("stragglerGraceMs"),
    "number",
    isFusion,
  ],
  [
    ["fusionTuning", "panelHardTimeoutMs"],
    "Wait at most, ms",
    () => unlessSet("panelHardTimeoutMs"),
    "number",
    isFusion,
  ],
  [
    ["fusionTuning", "onSingle"],
    "Where only one has answered",
    "",
    ["", "resend", "judge", "return"],
    isFusion,
  ],
  [
    ["fusionTuning", "onJudgeFailure"],
    "Where the judge fails",
    "",
    ["", "error", "best"],
    isFusion,
  ],
  [["fusionTuning", "lateCalls"], "Late calls", "", ["", "run", "cancel"], isFusion],
  [
    ["streamGuard"],
    "Hold streams back",
    "first: until there is content; full: until they have ended properly",
    ["", "off", "first", "full"],
    always,
  ],
  [["onTooLarge"], "Where a request is too large", "", ["", "return", "larger"], always],
  [["onRefusal"], "Where a model refuses", "", ["", "next", "return"], always],
  [
    ["retries"],
    "Retries of an account",
    "before the next one, for limits and failures that pass",
    "number",
    always,
  ],
];

const unlessSet = (name) => `${name}, ${live.view?.fusion_tuning[name]} unless set`;
const strategies = () =>
  (live.view?.strategies ?? []).map(({ name, title }) => [name, `${name}: ${title}`]);

/** `element`, and `show(draft)`; `change` is called with what alters the draft. */
export function form(change) {
  const controls = FIELDS.map(([path, label, hint, kind, isShown]) => ({
    path,
    isShown,
    ...control(kind, label, hint, (value) => change((draft) => put(draft, path, value))),
  }));
  return {
    element: h(
      "form",
      { class: "fields", onsubmit: (event) => event.preventDefault() },
      controls.map((each) => each.box),
    ),
    show(draft) {
      for (const each of controls) {
        each.box.hidden = !each.isShown(draft);
        const value = each.path.reduce((at, key) => at?.[key], draft) ?? each.blank;
        if (document.activeElement !== each.input) each.input.value = shown(value);
      }
    },
  };
}

function control(kind, label, hint, changed) {
  const isNumber = kind === "number";
  const isStrategy = kind === "strategy";
  const options = isStrategy
    ? strategies()
    : Array.isArray(kind)
    ? kind.map((option) => (option === "" ? ["", `not set: ${kind[1]}`] : option))
    : null;
  const input = options
    ? select(options, "")
    : h("input", {
        type: isNumber ? "number" : "text",
        list: kind === "model" ? "models" : null,
        spellcheck: "false",
      });
  input.addEventListener(options ? "change" : "input", () => {
    const text = input.value.trim();
    changed(
      text === "" ? undefined : isNumber ? Number(text) : kind === "text" ? input.value : text,
    );
  });
  return { input, box: field(label, input, typeof hint === "function" ? hint() : hint), blank: isStrategy ? options[0]?.[0] : "" };
}

/** Sets what stands at `path` of a draft, or takes it and what is empty then out. */
function put(draft, path, value) {
  const [key, ...rest] = path;
  if (rest.length) {
    const inner = { ...(draft[key] ?? {}) };
    put(inner, rest, value);
    value = Object.keys(inner).length ? inner : undefined;
  }
  if (value === undefined) delete draft[key];
  else draft[key] = value;
}
