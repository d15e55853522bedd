// The card of a provider: its accounts with all that is known of them, and whether they take turns.

import { call } from "./api.js";
import { button, check, field, fill, h, pressed } from "./dom.js";
import { live } from "./live.js";
import { change } from "./setting.js";
import { countdown, percent, plural, span } from "./words.js";

export class ProviderCard {
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
    this.rows = new Map(); // by the name of the account
    this.body = h("tbody");
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
      this.body,
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
    const rows = new Map();
    for (const account of provider.accounts) {
      rows.set(account.name, this.rows.get(account.name) ?? new AccountRow(this.name, account.name));
      rows.get(account.name).show(account);
    }
    this.rows = rows;
    fill(
      this.body,
      [...rows.values()].map((row) => row.element),
    );
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

/** One account; its button stays where it is, whatever comes of the rest. */
class AccountRow {
  constructor(provider, account) {
    this.provider = provider;
    this.account = account;
    this.told = h("span", { role: "status" });
    this.press = button("Test", () => pressed(this.press, () => this.test()), {
      "aria-label": `Test the account ${account} of ${provider}`,
    });
    this.cells = {
      health: h("td", { "data-label": "health" }),
      score: h("td", { "data-label": "score" }),
      quota: h("td", { "data-label": "quota" }),
      state: h("td", { class: "wide" }),
    };
    this.element = h(
      "tr",
      {},
      h("td", {}, h("strong", {}, account)),
      Object.values(this.cells),
      h("td", {}, h("span", { class: "test" }, this.press, this.told)),
    );
  }

  show(account) {
    const { health, score, quota, state } = this.cells;
    health.replaceChildren(
      account.health == null
        ? h("span", { class: "dim" }, "not asked yet")
        : percent(account.health),
    );
    score.textContent = account.score == null ? "" : String(Math.round(account.score));
    score.title = account.reason;
    quota.replaceChildren(...left(account));
    state.replaceChildren(stateOf(account));
  }

  async test() {
    this.told.replaceChildren("asking…");
    const tell = (kind, words) => this.told.replaceChildren(h("span", { class: kind }, words));
    const path = `api/providers/${encodeURIComponent(this.provider)}/test`;
    try {
      const result = await call("POST", path, { account: this.account });
      const took = result.seconds != null && span(result.seconds);
      const words = [result.status, result.message, took].filter(Boolean).join(" · ");
      tell(result.ok ? "good" : "bad", `${result.ok ? "works" : "fails"}: ${words}`);
    } catch (error) {
      tell("bad", error.message);
    }
  }
}

/** What is left of the quota of an account. */
function left(account) {
  if (account.left == null) return [h("span", { class: "dim" }, "not told")];
  const meter = h("meter", {
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
  return [meter, percent(account.left), full];
}

function stateOf(account) {
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
