// What is wrong with krouter.toml and the files of combos, as krouter told it last.

import { h } from "./dom.js";
import { live } from "./live.js";

/** `element`, and `show()`, which takes in what is told now. */
export function wrongFiles() {
  const element = h("ul", {
    class: "trouble wrong",
    "aria-label": "What is wrong with the files",
  });
  const show = () => {
    const problems = live.view?.problems ?? [];
    element.replaceChildren(...problems.map((problem) => h("li", {}, problem)));
    element.hidden = !problems.length;
  };
  return { element, show };
}
