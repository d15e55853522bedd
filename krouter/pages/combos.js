// Combos: a card each, drawn as it is now, with the requests under way.

import { calm, fill, h, picture } from "./dom.js";
import { drawCombo } from "./draw.js";
import { editor } from "./editor.js";
import { live, lit } from "./live.js";
import { wrongFiles } from "./wrong.js";

const AHEAD = "1500px"; // how near to what is in sight a card has to be to be drawn

/** All combos, or with `rest` one that is being edited. */
export function combosPage(place, { rest, query, signal }) {
  if (rest.length || query.has("new")) return editor(place, rest[0] ?? "", signal);
  const find = h("input", {
    type: "search",
    placeholder: "a name or a model",
    "aria-label": "Find a combo",
    value: query.get("find") ?? "",
  });
  const cards = h("div", { class: "cards" });
  const wrong = wrongFiles();
  place.append(
    h(
      "div",
      { class: "head" },
      h("h1", {}, "Combos"),
      find,
      h("a", { class: "button", href: "#/combos?new" }, "New combo"),
    ),
    wrong.element,
    cards,
  );
  const shown = new Map();
  const watch = new IntersectionObserver(
    (seen) => {
      for (const { target, isIntersecting } of seen) shown.get(target.dataset.name)?.see(isIntersecting);
    },
    { rootMargin: AHEAD },
  );
  signal.addEventListener("abort", () => watch.disconnect());
  const draw = () => {
    wrong.show();
    drawAll(cards, shown, watch, find.value.trim().toLowerCase());
  };
  find.addEventListener("input", draw);
  live.addEventListener("view", draw, { signal });
  live.addEventListener(
    "lights",
    calm(() => {
      for (const card of shown.values()) card.lights();
    }, 16),
    { signal },
  );
  onWidth(cards, draw, signal);
  draw();
}

/** Calls `then` when the width of an element has changed. */
export function onWidth(element, then, signal) {
  let width = element.clientWidth;
  const watch = new ResizeObserver(() => {
    if (element.clientWidth !== width) {
      width = element.clientWidth;
      then();
    }
  });
  watch.observe(element);
  signal.addEventListener("abort", () => watch.disconnect());
}

function drawAll(cards, shown, watch, wanted) {
  const combos = (live.view?.combos ?? []).filter((combo) => matches(combo, wanted));
  const names = new Set(combos.map((combo) => combo.name));
  for (const name of [...shown.keys()]) if (!names.has(name)) shown.delete(name);
  for (const { name } of combos) if (!shown.has(name)) {
      shown.set(name, new Card(name));
      watch.observe(shown.get(name).element);
    }
  const none = wanted ? "No combo matches." : "There is no combo yet.";
  const elements = combos.map((combo) => shown.get(combo.name).element);
  fill(cards, elements.length ? elements : [h("p", { class: "dim" }, none)]);
  for (const combo of combos) shown.get(combo.name).show(combo, cards.clientWidth - 34);
}

const matches = (combo, wanted) =>
  [combo.name, combo.description, ...combo.entries.map((entry) => entry.model)]
    .join(" ")
    .toLowerCase()
    .includes(wanted);

/** One card, which draws itself again only where something has changed. */
class Card {
  constructor(name) {
    const at = encodeURIComponent(name);
    this.how = h("p", { class: "dim how" });
    this.problem = h("div");
    this.drawn = h("div", { class: "drawn" });
    this.element = h(
      "article",
      { class: "card", "aria-labelledby": `combo-${name}`, "data-name": name },
      h(
        "div",
        { class: "head" },
        h("h2", { id: `combo-${name}` }, name),
        this.how,
        h(
          "span",
          { class: "links" },
          h("a", { href: `#/combos/${at}`, "aria-label": `Edit ${name}` }, "Edit"),
          h("a", { href: `#/whatif/${at}`, "aria-label": `What if, for ${name}` }, "What if"),
          h("a", { href: `#/routes?combo=${at}`, "aria-label": `Routes of ${name}` }, "Routes"),
        ),
      ),
      this.problem,
      this.drawn,
    );
  }

  show(combo, width) {
    Object.assign(this, { combo, width });
    const from = combo.shipped ? "shipped with krouter" : "";
    this.how.textContent = [told(combo), combo.description, from].filter(Boolean).join(" · ");
    this.problem.replaceChildren(
      ...(combo.problem ? [h("p", { class: "trouble" }, combo.problem)] : []),
    );
    this.paint();
  }

  lights() {
    const { lit: on, flash } = lit(this.combo.name);
    if (JSON.stringify([on, flash]) !== this.lit) this.paint();
  }

  /** What is far out of sight is drawn when it comes near: a page may have hundreds. */
  see(isNear) {
    this.isNear = isNear;
    if (isNear) this.paint();
  }

  paint() {
    if (!this.isNear) return;
    if (!this.combo.entries.length) return this.drawn.replaceChildren();
    const lights = lit(this.combo.name);
    this.lit = JSON.stringify([lights.lit, lights.flash]);
    const svg = drawCombo(this.combo, { width: this.width, now: live.now(), ...lights });
    if (svg !== this.svg) this.drawn.replaceChildren(picture((this.svg = svg)));
  }
}

function told(combo) {
  const also =
    combo.rotates && combo.strategy !== "round-robin"
      ? "round robin, by the switch for all combos"
      : "";
  const sticky = combo.rotates && combo.sticky ? `each for ${combo.sticky} requests` : "";
  const known = live.view.strategies.find(({ name }) => name === combo.strategy);
  const how = known ? `${known.name}: ${known.title}` : combo.strategy;
  return [also || how, sticky].filter(Boolean).join(", ");
}
