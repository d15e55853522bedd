// The card Vision Adapter: the models that go first where no entry reads what a request carries.

import { button, check, field, h } from "./dom.js";
import { live } from "./live.js";
import { change, changed, Setting } from "./setting.js";

const MEDIA = ["image", "pdf", "audio", "video"];

export class VisionCard {
  constructor() {
    const now = live.view.settings.vision_adapter;
    this.pools = Object.fromEntries(
      MEDIA.filter((medium) => now[medium]).map((medium) => [medium, pool(medium)]),
    );
    const outcome = h("div");
    const edit = () => {
      const pools = Object.entries(this.pools).map(([medium, { settings }]) => [
        medium,
        changed(settings),
      ]);
      return { vision_adapter: Object.fromEntries(pools) };
    };
    const review = () => change("Vision Adapter", "api/settings", edit(), outcome);
    this.element = h(
      "section",
      { class: "card", "aria-labelledby": "vision" },
      h("h2", { id: "vision" }, "Vision Adapter"),
      h(
        "p",
        { class: "dim" },
        "Where no entry of a combo reads what a request carries, these models go first, in this order.",
      ),
      Object.values(this.pools).map(({ box }) => box),
      h("div", { class: "actions" }, button("Review the change", review, { class: "main" })),
      outcome,
    );
  }

  /** What is set now; what has been changed here stays. */
  show() {
    for (const [medium, { settings }] of Object.entries(this.pools))
      for (const [name, setting] of Object.entries(settings))
        setting.show(live.view.settings.vision_adapter[medium][name]);
  }
}

/** The models for one kind of attachment: its `box`, and its `settings` by name. */
function pool(medium) {
  const on = check("on");
  const turns = check("in turns");
  const models = h("input", { spellcheck: "false", placeholder: "provider/model, …" });
  const box = h(
    "fieldset",
    { class: "pool" },
    h("legend", {}, medium),
    on,
    field(`Models for ${medium}`, models),
    turns,
  );
  const ticked = (input) =>
    new Setting(
      () => input.checked,
      (value) => (input.checked = value),
    );
  const settings = {
    enabled: ticked(on.querySelector("input")),
    models: new Setting(
      () => models.value.split(/[\s,]+/).filter(Boolean),
      (value) => (models.value = value.join(", ")),
    ),
    round_robin: ticked(turns.querySelector("input")),
  };
  return { box, settings };
}
