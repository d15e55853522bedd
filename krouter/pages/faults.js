// The faults that can befall entries, as What if offers them.

import { button, dialog, h } from "./dom.js";

/** The models that an entry comes down to: itself, or those of the combo that it names. */
export function leaves(entry, combos) {
  if (entry.kind !== "combo") return [entry.model];
  const name = entry.model.replace(/^combo\//, "");
  const entries = combos.find((combo) => combo.name === name)?.entries ?? [];
  return entries.flatMap((each) => leaves(each, combos));
}

/** How often each model stands in a combo, nested ones and a judge that is none of them included. */
export function countedLeaves({ entries, judge }, combos) {
  const counts = new Map();
  for (const name of entries.flatMap((entry) => leaves(entry, combos)))
    counts.set(name, (counts.get(name) ?? 0) + 1);
  if (judge?.includes("/") && !counts.has(judge)) counts.set(judge, 1);
  return counts;
}

/** That a fault is one of the model, where that stands in more than one place; else empty. */
export const everywhere = (count) =>
  count > 1 ? `It is listed ${count} times; a fault befalls it each time.` : "";

/**
 * Asks for the fault of a box. `names` are its models, `told` is a word on them, `fail` has what
 * befalls them now; `set` takes what is chosen, `left` is called in any case.
 */
export function askFault({ title, faults, names, told, fail, set, left }) {
  dialog(title, (box) => {
    box.addEventListener("close", left);
    const one = ({ name, title }) => {
      const isSet = names.every((each) => (fail[each] ?? "") === name);
      const choose = () => {
        set(name);
        box.close();
      };
      const shown = [h("strong", {}, name || "answers"), ` ${title}`];
      return button(shown, choose, { "aria-pressed": String(isSet) });
    };
    const words = told ? [h("p", { class: "dim" }, told)] : [];
    const offered = [{ name: "", title: "as it should" }, ...faults];
    return [...words, h("div", { class: "faults" }, offered.map(one))];
  });
}
