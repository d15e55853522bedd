// A combo that is being edited, and what is known of its entries now.

import { live } from "./live.js";

/** What is shown of a value that should be a text, but may be anything while it is typed. */
export const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));

/** The name of an entry as the file has it, a text or an object. */
export const nameOf = (entry) => shown((typeof entry === "string" ? entry : entry?.model) ?? "?");

/** What krouter tells of the strategy of a draft: the first where it names none. */
export function strategyOf(draft) {
  const known = live.view?.strategies ?? [];
  return known.find(({ name }) => name === (draft.strategy ?? known[0]?.name));
}

/** The draft as GET /api/view would tell it, with what is known of its entries now. */
export function drafted(name, draft) {
  const known = live.view?.combos ?? [];
  const before = known.find((combo) => combo.name === name);
  const pool = [before, ...known].filter(Boolean).flatMap((combo) => combo.entries);
  const entries = (Array.isArray(draft.models) ? draft.models : []).map((entry) => {
    const model = nameOf(entry);
    const found = pool.find((each) => each.model === model) ?? {
      model,
      kind: "model",
      reads: null,
      accounts: [],
      skip: "",
    };
    return { ...found, label: shown(entry?.label ?? "") };
  });
  const strategy = strategyOf(draft);
  const shape = (entries.length === 1 ? strategy?.alone : strategy?.shape) ?? "chain";
  const tuning = JSON.parse(JSON.stringify(draft.fusionTuning ?? {})); // numbers kept as written too
  const judge = shown(draft.judge ?? tuning.judgeModel ?? "") || null;
  return {
    name: name || "new combo",
    strategy: strategy?.name ?? shown(draft.strategy),
    shape,
    rotates: shape === "ring",
    turn: null,
    judge,
    auto_judge: !judge,
    tuning,
    effective: { ...live.view?.fusion_tuning, ...tuning },
    entries,
  };
}
