// The answer of What if: who answers, the drawing of how it gets there, and each step.

import { arranged } from "./arrange.js";
import { h, picture, say, trouble } from "./dom.js";
import { drawRehearsal } from "./draw.js";
import { money, plural, span } from "./words.js";

const HEADS = ["", "Entry", "Account", "Outcome", "Why", "When"];

const TONES = { answered: "good", skipped: "warn" };

/** The view; `open` is called with the index of an entry whose box is pressed. */
export class Rehearsed {
  constructor(open) {
    this.answer = null;
    this.selected = 0;
    this.drawn = h("div", { class: "drawn" });
    this.verdict = h("div", { class: "verdict", tabindex: -1 });
    this.moves = h("tbody");
    this.element = h(
      "div",
      { class: "card" },
      this.verdict,
      h("p", { class: "dim" }, "Choose a box to make its entry fail."),
      this.drawn,
      h("details", { open: true }, h("summary", {}, "Step by step"), table(this.moves)),
    );
    arranged(this.drawn, { select: (index) => this.choose(index), open });
  }

  /** Shows an answer to `combo` while `fail` befalls its entries. */
  show(answer, combo, fail) {
    this.answer = answer;
    this.conclude(...verdict(answer));
    this.moves.replaceChildren(...answer.moves.map(move));
    this.paint(combo, fail);
  }

  /** Draws the last answer again, for instance at another width. */
  paint(combo, fail) {
    Object.assign(this, { combo, fail });
    if (!this.answer?.route || !combo.name) return this.drawn.replaceChildren();
    const isHeld = this.drawn.contains(document.activeElement);
    const svg = drawRehearsal(this.answer, combo, {
      width: this.drawn.clientWidth,
      interactive: true,
      selected: this.selected,
      fail,
      reads: Object.fromEntries(combo.entries.map((entry) => [entry.model, entry.reads])),
    });
    this.drawn.replaceChildren(picture(svg));
    if (isHeld) this.focus();
  }

  /** Nothing is known yet of another combo. */
  clear(combo) {
    this.answer = null;
    this.selected = 0;
    this.paint(combo, {});
  }

  choose(index) {
    this.selected = index;
    this.paint(this.combo, this.fail);
    this.focus();
  }

  /** The box that is chosen, or where that is not drawn the first. */
  focus() {
    this.drawn.querySelector('[tabindex="0"]')?.focus();
  }

  /** What is wrong with the question, in place of the answer to another. */
  refuse(error) {
    const isText = error instanceof SyntaxError;
    this.conclude(trouble(isText ? { message: `The body is no JSON: ${error.message}` } : error));
    if (this.drawn.contains(document.activeElement)) this.verdict.focus();
    this.answer = null;
    this.moves.replaceChildren();
    this.drawn.replaceChildren();
  }

  /** Shown and read out only where it is another than before. */
  conclude(...words) {
    const told = h("div", {}, words);
    if (told.textContent === this.verdict.textContent) return;
    this.verdict.replaceChildren(told);
    if (!told.querySelector("[role=alert]")) say(told.textContent);
  }
}

function table(rows) {
  const named = HEADS.map((head) => head || h("span", { class: "unseen" }, "Step"));
  const heads = named.map((head) => h("th", { scope: "col" }, head));
  return h("table", { class: "list" }, h("thead", {}, h("tr", {}, heads)), rows);
}

function move({ entry, account, outcome, why, began }, index) {
  return h(
    "tr",
    {},
    h("td", {}, String(index + 1)),
    h("td", {}, entry),
    h("td", {}, account),
    h("td", { class: TONES[outcome] ?? "bad" }, outcome),
    h("td", { class: "wide" }, why ?? ""),
    h("td", {}, began == null ? "" : span(began)),
  );
}

/** Who answers, after what, and what was assumed for it. */
function verdict({ reply, waited, cost, moves, assumed }) {
  const after = [
    moves.length && `after ${plural(moves.length, "step")}`,
    waited != null && span(waited),
    cost > 0 && `about ${money(cost)}`,
  ];
  const told = after.filter(Boolean).join(" · ");
  const words = [h("strong", {}, who(reply)), h("span", { class: "dim" }, ` ${told}`)];
  if (!assumed?.length) return words;
  return [...words, h("span", { class: "word" }, `It is assumed that ${assumed.join(", ")} had an account.`)];
}

function who({ from, whole, status, message }) {
  if (!from) return h("span", { class: "bad" }, `nobody answers: ${status} ${message ?? ""}`);
  if (whole === false) return h("span", { class: "warn" }, `${from} answers, but not to the end`);
  return h("span", { class: "good" }, `${from} answers`);
}
