// What if: a request that is not sent, and who would answer it while entries fail in chosen ways.

import { call, get } from "./api.js";
import { onWidth } from "./combos.js";
import { calm, h } from "./dom.js";
import { askFault, everywhere, leaves } from "./faults.js";
import { live } from "./live.js";
import { Question } from "./question.js";
import { Rehearsed } from "./rehearsed.js";

const AGAIN_MS = 5000; // at most so often a rehearsal is made anew because accounts have changed
const HOW = "Nothing is sent: the request is rehearsed with what is known of your accounts now.";

export async function whatifPage(place, { rest, signal }) {
  const choices = await get("api/whatif");
  if (!signal.aborted) new WhatIf(place, rest[0], choices, signal);
}

class WhatIf {
  constructor(place, wanted, choices, signal) {
    this.turn = 0;
    const [another, ask] = [() => this.another(), () => this.ask()];
    this.question = new Question(choices, { another, ask });
    this.answer = new Rehearsed((index) => this.openFaults(index));
    place.append(
      h("div", { class: "head" }, h("h1", {}, "What if"), h("p", { class: "dim how" }, HOW)),
      h("div", { class: "aside" }, this.question.element, this.answer.element),
    );
    onWidth(this.answer.drawn, () => this.paint(), signal);
    this.follow(signal);
    this.question.offer(wanted);
    this.another();
  }

  /** What is known changes: then the question is asked again. */
  follow(signal) {
    const again = calm(() => {
      if (!signal.aborted) this.ask();
    }, AGAIN_MS);
    const told = () => (this.question.offer() ? this.another() : again());
    live.addEventListener("view", told, { signal });
  }

  another() {
    this.question.fail = {};
    this.answer.clear(this.question.told);
    this.ask();
  }

  paint() {
    this.answer.paint(this.question.told, this.question.fail);
  }

  async ask() {
    const turn = ++this.turn;
    const { question } = this;
    question.listEntries();
    if (!question.combo.value) return this.answer.conclude("There is no combo to ask.");
    try {
      const answer = await call("POST", "api/whatif", question.asJson());
      if (turn === this.turn) this.answer.show(answer, question.told, question.fail);
    } catch (error) {
      if (turn === this.turn) this.answer.refuse(error);
    }
  }

  openFaults(index) {
    const { question } = this;
    const entry = question.told.entries[index];
    if (!entry) return; // the combo has become shorter since it was drawn
    const names = leaves(entry, live.view.combos);
    askFault({
      title: `What befalls ${entry.model}?`,
      faults: question.faults,
      names,
      told: entry.kind === "combo" ? "" : everywhere(question.counts.get(entry.model)),
      fail: question.fail,
      set: (fault) => question.set(names, fault),
      left: () => this.answer.choose(index),
    });
  }
}
