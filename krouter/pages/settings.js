// Settings: the routing strategy, the vision adapter, and every provider with its accounts.

import { call, confirmed } from "./api.js";
import { button, check, diff, field, h, say, select, trouble } from "./dom.js";
import { live } from "./live.js";
import { countdown, percent, plural, span } from "./words.js";

const STRATEGIES = [
  ["zenith", "zenith: the healthiest first"],
  ["fill-first", "fill first: by priority"],
  ["round-robin", "round robin: in turns"],
  ["p2c", "two at random, the better of them"],
  ["random", "random"],
];
const MEDIA = ["image", "pdf", "audio", "video"];

export function settingsPage(place, { signal }) {
  const routing = h("section", { class: "card", "aria-labelledby": "routing" });
  const vision = h("section", { class: "card", "aria-labelledby": "vision" });
  const providers = h("div", { class: "cards below" });
  const others = h("p", { class: "dim others" });
  place.append(
    h("div", { class: "head" }, h("h1", {}, "Settings")),
    h("div", { class: "columns" }, routing, vision),
    h("h2", { class: "part" }, "Providers"),
    providers,
    others,
  );
  showRouting(routing);
  showVision(vision);
  const cards = new Map();
  const draw = () => {
    const known = live.view.providers.filter((each) => each.accounts.length);
    const bare = live.view.providers
      .filter((each) => !each.accounts.length)
      .map((each) => each.title);
    others.textContent = bare.length
      ? `Named by a combo, but without any account: ${bare.join(", ")}. Their usual variable, or an account in krouter.toml, makes them work.`
      : "";
    for (const [name, card] of cards)
      if (!known.some((each) => each.name === name)) {
        card.element.remove();
        cards.delete(name);
      }
    for (const provider of known) {
      if (!cards.has(provider.name)) cards.set(provider.name, new ProviderCard(provider));
      const card = cards.get(provider.name);
      if (!card.element.isConnected) providers.append(card.element);
      card.show(provider);
    }
  };
  let before = JSON.stringify(live.view.settings);
  live.addEventListener(
    "view",
    () => {
      const now = JSON.stringify(live.view.settings);
      if (now !== before) {
        before = now;
        showRouting(routing);
        showVision(vision);
      }
      draw();
    },
    { signal },
  );
  draw();
}

/** Shows what an edit does to krouter.toml, and makes it when that is wanted. */
async function change(title, path, edit, place) {
  place.replaceChildren();
  const show = (told) =>
    told.diff ? diff(told.diff) : h("p", { class: "word" }, "Nothing is changed.");
  try {
    await confirmed(
      title,
      () => call("PUT", `${path}?dry=1`, edit),
      () => call("PUT", path, edit),
      show,
      () => say("Saved"),
    );
  } catch (error) {
    place.replaceChildren(trouble(error));
  }
}

/** Of what is set now, only what differs: a file names no more than it has to. */
function changed(now, set) {
  const differs = ([name, value]) => JSON.stringify(value) !== JSON.stringify(now[name]);
  return Object.fromEntries(Object.entries(set).filter(differs));
}

function showRouting(card) {
  const now = live.view.settings;
  const outcome = h("div");
  const turns = check("Combo Round Robin", {
    checked: now.combo_round_robin,
    onchange: () => arrange(),
  });
  const combos = live.view.combos
    .filter((combo) => combo.strategy === "round-robin")
    .map((combo) => combo.name);
  const limit = h("input", { type: "number", min: 1, value: String(now.combo_sticky_limit) });
  const limitBox = field(
    "Combo Sticky Limit",
    limit,
    "How many requests an entry keeps the front for, before the next takes its turn.",
  );
  const word = h("p", { class: "word" });
  const strategy = select(STRATEGIES, now.account_strategy, { onchange: () => arrange() });
  const account = h("input", { type: "number", min: 1, value: String(now.account_sticky_limit) });
  const accountBox = field(
    "Account sticky limit",
    account,
    "Requests in a row on one account, where accounts take turns.",
  );
  const arrange = () => {
    const isOn = turns.querySelector("input").checked;
    limitBox.hidden = !isOn && !combos.length;
    word.hidden = isOn || !combos.length;
    word.textContent = `The switch is off; the limit still counts for ${plural(combos.length, "combo")} set to round robin: ${combos.join(", ")}.`;
    accountBox.hidden =
      strategy.value !== "round-robin" &&
      !live.view.providers.some((each) => each.account_strategy === "round-robin");
  };
  const edit = () =>
    changed(now, {
      combo_round_robin: turns.querySelector("input").checked,
      combo_sticky_limit: Number(limit.value),
      account_strategy: strategy.value,
      account_sticky_limit: Number(account.value),
    });
  const save = button(
    "Review the change",
    () => change("Routing Strategy", "api/settings", edit(), outcome),
    { class: "main" },
  );
  card.replaceChildren(
    h("h2", { id: "routing" }, "Routing Strategy"),
    h("p", { class: "dim" }, "Combos pick a model, and providers one of their accounts for it."),
    turns,
    h("small", {}, "All fallback combos take turns; those set to priority do not."),
    word,
    limitBox,
    field("Account strategy", strategy, "For every provider that has none of its own."),
    accountBox,
    h("div", { class: "actions" }, save),
    outcome,
  );
  arrange();
}

function showVision(card) {
  const now = live.view.settings.vision_adapter;
  const outcome = h("div");
  const rows = MEDIA.filter((medium) => now[medium]).map((medium) => pool(medium, now[medium]));
  const edit = () => {
    const pools = rows
      .map((row) => row.read())
      .map(([name, set]) => [name, changed(now[name], set)]);
    return { vision_adapter: Object.fromEntries(pools) };
  };
  const save = button(
    "Review the change",
    () => change("Vision Adapter", "api/settings", edit(), outcome),
    { class: "main" },
  );
  card.replaceChildren(
    h("h2", { id: "vision" }, "Vision Adapter"),
    h(
      "p",
      { class: "dim" },
      "Where no entry of a combo reads what a request carries, these models go first, in this order.",
    ),
    ...rows.map((row) => row.box),
    h("div", { class: "actions" }, save),
    outcome,
  );
}

/** The models for one kind of attachment; `read` gives the kind and what is set for it. */
function pool(medium, now) {
  const on = h("input", { type: "checkbox", checked: now.enabled });
  const turns = h("input", { type: "checkbox", checked: now.round_robin });
  const models = h("input", {
    value: now.models.join(", "),
    spellcheck: "false",
    placeholder: "provider/model, …",
  });
  const marked = (label, input) => h("label", { class: "check" }, input, h("span", {}, label));
  const box = h(
    "fieldset",
    { class: "pool" },
    h("legend", {}, medium),
    marked("on", on),
    field(`Models for ${medium}`, models),
    marked("in turns", turns),
  );
  const listed = () => models.value.split(/[\s,]+/).filter(Boolean);
  const read = () => [
    medium,
    { enabled: on.checked, models: listed(), round_robin: turns.checked },
  ];
  return { box, read };
}

class ProviderCard {
  constructor(provider) {
    const id = `provider-${provider.name}`;
    this.name = provider.name;
    this.turns = check("Round Robin", { onchange: (event) => this.toggle(event.target.checked) });
    this.how = h("p", { class: "dim how" });
    this.limit = h("input", {
      type: "number",
      min: 1,
      onchange: () => this.limited(Number(this.limit.value)),
    });
    this.limitBox = field("Sticky limit", this.limit);
    this.outcome = h("div");
    this.rows = h("tbody");
    this.tests = new Map();
    const heads = ["Account", "Health", "Score", "Quota left", "State", ""];
    this.table = h(
      "table",
      { class: "list" },
      h("caption", { class: "unseen" }, `Accounts of ${provider.title}`),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          heads.map((head) =>
            h("th", { scope: "col" }, head || h("span", { class: "unseen" }, "Test")),
          ),
        ),
      ),
      this.rows,
    );
    this.element = h(
      "section",
      { class: "card", "aria-labelledby": id },
      h(
        "div",
        { class: "head" },
        h("h3", { id }, provider.title),
        h("code", {}, provider.name),
        this.how,
        this.limitBox,
        this.turns,
      ),
      this.outcome,
      this.table,
    );
  }

  show(provider) {
    this.provider = provider;
    const isRing = provider.account_strategy === "round-robin";
    this.turns.querySelector("input").checked = isRing;
    this.how.textContent = `${provider.account_strategy}${provider.own_strategy ? "" : ", as the others"}`;
    this.limitBox.hidden = !isRing;
    if (document.activeElement !== this.limit)
      this.limit.value = String(provider.account_sticky_limit);
    this.rows.replaceChildren(...provider.accounts.map((account) => this.row(account)));
  }

  row(account) {
    const meter =
      account.left == null
        ? ""
        : h("meter", {
            class: "meter",
            value: account.left,
            min: 0,
            max: 1,
            low: 0.3,
            optimum: 1,
            "aria-label": `quota of ${account.name}`,
          });
    const full = account.resets
      ? h("span", { class: "dim" }, `, full in ${countdown(account.resets - live.now())}`)
      : "";
    return h(
      "tr",
      {},
      h("td", {}, h("strong", {}, account.name)),
      h(
        "td",
        { "data-label": "health" },
        account.health == null
          ? h("span", { class: "dim" }, "not asked yet")
          : percent(account.health),
      ),
      h(
        "td",
        { "data-label": "score", title: account.reason },
        account.score == null ? "" : String(Math.round(account.score)),
      ),
      h(
        "td",
        { "data-label": "quota" },
        meter,
        percent(account.left) || h("span", { class: "dim" }, "not told"),
        full,
      ),
      h("td", { class: "wide" }, state(account)),
      h("td", {}, this.test(account.name)),
    );
  }

  /** The button and what came of it stay while the row is drawn anew. */
  test(name) {
    if (!this.tests.has(name)) {
      const told = h("span", { role: "status" });
      const press = button("Test", () => this.run(name, press, told), {
        "aria-label": `Test the account ${name} of ${this.name}`,
      });
      this.tests.set(name, h("span", { class: "test" }, press, told));
    }
    return this.tests.get(name);
  }

  async run(account, press, told) {
    press.disabled = true;
    told.replaceChildren("asking…");
    try {
      const result = await call("POST", `api/providers/${encodeURIComponent(this.name)}/test`, {
        account,
      });
      const words = [result.status, result.message, result.seconds != null && span(result.seconds)]
        .filter(Boolean)
        .join(" · ");
      told.replaceChildren(
        h(
          "span",
          { class: result.ok ? "good" : "bad" },
          `${result.ok ? "works" : "fails"}: ${words}`,
        ),
      );
    } catch (error) {
      told.replaceChildren(h("span", { class: "bad" }, error.message));
    }
    press.disabled = false;
  }

  async limited(value) {
    await this.save({ account_sticky_limit: value });
    this.show(this.provider); // a number in question shows what is so until it is saved
  }

  async toggle(isOn) {
    const global = live.view.settings.account_strategy;
    await this.save({
      account_strategy: isOn ? "round-robin" : global === "round-robin" ? "zenith" : null,
    });
    this.show(this.provider); // the switch shows what is so until the change is saved
  }

  save(edit) {
    return change(
      `Accounts of ${this.provider.title}`,
      `api/providers/${encodeURIComponent(this.name)}`,
      edit,
      this.outcome,
    );
  }
}

function state(account) {
  if (account.problem) return h("span", { class: "bad" }, account.problem);
  if (account.lock) {
    const clock = h(
      "span",
      { "data-until": account.lock.until },
      countdown(account.lock.until - live.now()),
    );
    return h("span", { class: "warn" }, "locked ", clock, `: ${account.lock.reason}`);
  }
  const busy = account.in_flight ? `${plural(account.in_flight, "request")} under way` : "ready";
  return h(
    "span",
    {},
    busy,
    h("span", { class: "dim" }, account.reason ? ` · ${account.reason}` : ""),
  );
}
