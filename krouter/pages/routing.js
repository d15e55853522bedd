// The card Routing Strategy: turns and sticky limits of combos, and how providers choose an account.

import { button, check, field, h, select } from "./dom.js";
import { live } from "./live.js";
import { change, changed, Setting } from "./setting.js";
import { plural } from "./words.js";

const STRATEGIES = [
  ["zenith", "zenith: the healthiest first"],
  ["fill-first", "fill first: by priority"],
  ["round-robin", "round robin: in turns"],
  ["p2c", "two at random, the better of them"],
  ["random", "random"],
];

const number = (input) =>
  new Setting(
    () => Number(input.value),
    (value) => (input.value = String(value)),
  );

export class RoutingCard {
  constructor() {
    const arrange = () => this.arrange();
    this.turns = check("Combo Round Robin", { onchange: arrange });
    this.isOn = this.turns.querySelector("input");
    const limit = h("input", { type: "number", min: 1 });
    this.limitBox = field(
      "Combo Sticky Limit",
      limit,
      "How many requests an entry keeps the front for, before the next takes its turn.",
    );
    this.word = h("p", { class: "word" });
    this.strategy = select(STRATEGIES, "", { onchange: arrange });
    const account = h("input", { type: "number", min: 1 });
    this.accountBox = field(
      "Account sticky limit",
      account,
      "Requests in a row on one account, where accounts take turns.",
    );
    this.settings = {
      combo_round_robin: new Setting(
        () => this.isOn.checked,
        (value) => (this.isOn.checked = value),
      ),
      combo_sticky_limit: number(limit),
      account_strategy: new Setting(
        () => this.strategy.value,
        (value) => (this.strategy.value = value),
      ),
      account_sticky_limit: number(account),
    };
    this.outcome = h("div");
    this.element = this.card();
  }

  card() {
    const review = () =>
      change("Routing Strategy", "api/settings", changed(this.settings), this.outcome);
    return h(
      "section",
      { class: "card", "aria-labelledby": "routing" },
      h("h2", { id: "routing" }, "Routing Strategy"),
      h("p", { class: "dim" }, "Combos pick a model, and providers one of their accounts for it."),
      this.turns,
      h("small", {}, "All fallback combos take turns; those set to priority do not."),
      this.word,
      this.limitBox,
      field("Account strategy", this.strategy, "For every provider that has none of its own."),
      this.accountBox,
      h("div", { class: "actions" }, button("Review the change", review, { class: "main" })),
      this.outcome,
    );
  }

  /** What is set now; what has been changed here stays. */
  show() {
    for (const [name, setting] of Object.entries(this.settings))
      setting.show(live.view.settings[name]);
    this.arrange();
  }

  /** The limits stand here where they count for anything. */
  arrange() {
    const ringed = live.view.combos
      .filter((combo) => combo.strategy === "round-robin")
      .map((combo) => combo.name);
    const isOn = this.isOn.checked;
    this.limitBox.hidden = !isOn && !ringed.length;
    this.word.hidden = isOn || !ringed.length;
    this.word.textContent = `The switch is off; the limit still counts for ${plural(ringed.length, "combo")} set to round robin: ${ringed.join(", ")}.`;
    this.accountBox.hidden =
      this.strategy.value !== "round-robin" &&
      !live.view.providers.some((each) => each.account_strategy === "round-robin");
  }
}
