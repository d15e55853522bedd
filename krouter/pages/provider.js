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
      rows.get(account.name).show(account, provider.account_strategy);
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

  show(account, strategy) {
    const { health, score, quota, state } = this.cells;
    health.replaceChildren(
      account.health == null
        ? h("span", { class: "dim" }, "not asked yet")
        : percent(account.health),
    );
    score.textContent = account.score == null ? "" : String(Math.round(account.score));
    score.title = account.reason;
    quota.replaceChildren(...left(account));
    state.replaceChildren(...stateOf(account, strategy));
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

const MOST_QUOTAS = 4; // lines, the least first

/** What is left of each quota of an account, and which model or window it is of. */
function left(account) {
  if (!account.quotas.length) return [h("span", { class: "dim" }, "not told")];
  const shown = account.quotas.slice(0, MOST_QUOTAS);
  const more = account.quotas.length - shown.length;
  const rest = more ? [h("div", { class: "dim" }, `and ${more} with as much or more`)] : [];
  return [...shown.map((quota) => quotaLine(account, quota)), ...rest];
}

function quotaLine(account, { model, window, left, resets }) {
  const whose = [window, model].filter(Boolean).join(" of ");
  const meter = h("meter", {
    class: "meter",
    value: left,
    min: 0,
    max: 1,
    low: 0.3,
    optimum: 1,
    "aria-label": ["quota of", account.name, whose && `for ${whose}`].filter(Boolean).join(" "),
  });
  const full = resets ? [", full in ", clock(resets)] : [];
  return h("div", {}, meter, percent(left), h("span", { class: "dim" }, whose && ` ${whose}`, full));
}

const clock = (until) => h("span", { "data-until": until }, countdown(until - live.now()));

/** What is the matter with an account, a line each; what it can do besides is said last. */
function stateOf(account, strategy) {
  if (account.problem) return [h("span", { class: "bad" }, account.problem)];
  const lines = account.locks.map(lockLine);
  if (account.locks.some((lock) => !lock.model)) return lines;
  const busy = account.in_flight ? `${plural(account.in_flight, "request")} under way` : "";
  const words = busy || (lines.length ? "ready for other models" : "ready");
  // the reasons of zenith, health and quota, have columns of their own
  const reason = account.reason && strategy !== "zenith" ? h("span", { class: "dim" }, ` · ${account.reason}`) : "";
  return [...lines, h("div", {}, words, reason)];
}

function lockLine(lock) {
  const whom = lock.model ? ` for ${lock.model},` : "";
  const why = [lock.probing && "being probed,", lock.status, lock.reason].filter(Boolean).join(" ");
  return h("div", { class: "warn" }, `locked${whom} `, clock(lock.until), `: ${why}`);
}
