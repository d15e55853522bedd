// What if: a request that is not sent, and who would answer it while entries fail in chosen ways.

import { call, get } from "./api.js";
import { arranged } from "./arrange.js";
import { onWidth } from "./combos.js";
import { button, calm, check, dialog, field, h, picture, say, select, trouble } from "./dom.js";
import { drawRehearsal } from "./draw.js";
import { live } from "./live.js";
import { money, plural, span } from "./words.js";

const NEEDS = [
  ["image", "an image"],
  ["pdf", "a PDF"],
  ["audio", "audio"],
  ["video", "a video"],
  ["tools", "tools"],
  ["json", "a JSON schema"],
];
const DIALECTS = [
  ["chat", "OpenAI chat"],
  ["messages", "Anthropic messages"],
  ["responses", "OpenAI responses"],
  ["gemini", "Google Gemini"],
];

/** The faults that are met most, which stand first. */
const OFTEN = "529 429 quota 402 401 timeout reset empty stall cut 404 image too-large".split(" ");
const AGAIN_MS = 5000; // at most so often a rehearsal is made anew because accounts have changed

export async function whatifPage(place, { rest, signal }) {
  const faults = await get("api/faults");
  if (!signal.aborted) new WhatIf(place, rest[0], faults, signal);
}

/** The names of the combos that have an entry to ask. */
const askable = () =>
  (live.view?.combos ?? []).filter((combo) => combo.entries.length).map((combo) => combo.name);

class WhatIf {
  constructor(place, wanted, faults, signal) {
    const rank = ({ name }) => (OFTEN.indexOf(name) + OFTEN.length + 1) % (OFTEN.length + 1);
    this.faults = [...faults].sort((a, b) => rank(a) - rank(b));
    this.fail = {};
    this.selected = 0;
    this.latest = 0;
    this.gone = h("p", { class: "word", role: "status" });
    this.combo = select([], "", {
      onchange: () => {
        this.gone.textContent = "";
        this.another();
      },
    });
    this.dialect = select(DIALECTS, "chat", { onchange: () => this.ask() });
    this.needs = NEEDS.map(([name, label]) =>
      check(label, { value: name, onchange: () => this.ask() }),
    );
    this.stream = check("streamed", { onchange: () => this.ask() });
    this.body = h("textarea", {
      id: "body",
      spellcheck: "false",
      oninput: calm(() => this.ask(), 300),
      placeholder: '{"messages": [{"role": "user", "content": "Hello"}]}',
    });
    this.drawn = h("div", { class: "drawn" });
    this.verdict = h("p", { class: "verdict", role: "status" });
    this.moves = h("tbody");
    this.befalls = new Map(); // by entry: the list of its faults
    this.entries = h("fieldset", {});
    place.append(
      h(
        "div",
        { class: "head" },
        h("h1", {}, "What if"),
        h(
          "p",
          { class: "dim how" },
          "Nothing is sent: the request is rehearsed with what is known of your accounts now.",
        ),
      ),
      h(
        "div",
        { class: "aside" },
        this.choices(),
        h(
          "div",
          { class: "card" },
          this.verdict,
          h("p", { class: "dim" }, "Choose a box to make its entry fail."),
          this.drawn,
          this.table(),
        ),
      ),
    );
    arranged(this.drawn, {
      select: (index) => this.choose(index),
      open: (index) => this.openFaults(index),
    });
    onWidth(this.drawn, () => this.paint(), signal);
    const again = calm(() => {
      if (!signal.aborted) this.ask();
    }, AGAIN_MS);
    live.addEventListener("view", () => (this.offer() ? this.another() : again()), { signal });
    this.offer(wanted);
    this.another();
  }

  /** Lists the combos that there are now; whether another than before is chosen. */
  offer(wanted = this.combo.value) {
    const names = askable();
    const before = this.combo.value;
    const offered = [...this.combo.options].map((option) => option.value);
    if (names.join("\n") !== offered.join("\n"))
      this.combo.replaceChildren(...names.map((name) => h("option", { value: name }, name)));
    this.combo.value = names.includes(wanted) ? wanted : (names[0] ?? "");
    if (before && before !== this.combo.value) this.gone.textContent = `${before} is gone.`;
    return before !== this.combo.value;
  }

  choices() {
    return h(
      "form",
      { class: "card", onsubmit: (event) => event.preventDefault() },
      field("Combo", this.combo),
      this.gone,
      h("fieldset", {}, h("legend", {}, "The request carries"), this.needs),
      h("fieldset", {}, h("legend", {}, "It is asked for"), this.stream),
      field("In the dialect of", this.dialect),
      this.entries,
      h(
        "details",
        {},
        h("summary", {}, "A body of your own"),
        field("The body, as JSON", this.body, "In place of what is ticked above."),
      ),
    );
  }

  table() {
    const heads = ["", "Entry", "Account", "Outcome", "Why", "When"];
    return h(
      "details",
      { open: true },
      h("summary", {}, "Step by step"),
      h(
        "table",
        { class: "list" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            heads.map((head) =>
              h("th", { scope: "col" }, head || h("span", { class: "unseen" }, "Step")),
            ),
          ),
        ),
        this.moves,
      ),
    );
  }

  /** The chosen combo, as it is known now; without entries where there is none. */
  get told() {
    const found = live.view.combos.find((combo) => combo.name === this.combo.value);
    return found ?? { name: "", entries: [] };
  }

  another() {
    this.fail = {};
    this.answer = null;
    this.paint();
    this.ask();
  }

  /** The same choice as the boxes have, in a form, for those inside nested combos and the judge too. */
  listEntries() {
    const { entries, judge } = this.told;
    const judges = judge?.includes("/") ? [judge] : [];
    const names = [...new Set([...entries.flatMap(leaves), ...judges])];
    if (names.join("\n") !== [...this.befalls.keys()].join("\n")) {
      this.befalls = new Map(names.map((name) => [name, this.faultsOf(name)]));
      this.entries.replaceChildren(
        h("legend", {}, "What befalls the entries"),
        ...[...this.befalls].map(([name, list]) => field(name, list)),
      );
    }
    for (const [name, list] of this.befalls) list.value = this.fail[name] ?? "";
  }

  faultsOf(name) {
    const choices = this.faults.map((fault) => [fault.name, `${fault.name}: ${fault.title}`]);
    return select([["", "answers"], ...choices], "", {
      onchange: (event) => this.set([name], event.target.value),
    });
  }

  choose(index) {
    if (!Number.isFinite(index)) index = this.told.entries.length - 1;
    this.selected = Math.max(0, Math.min(index, this.told.entries.length - 1));
    this.paint();
    this.drawn.querySelector(`[data-index="${this.selected}"]`)?.focus();
  }

  openFaults(index) {
    const entry = this.told.entries[index];
    if (!entry) return; // the combo has become shorter since it was drawn
    const names = leaves(entry);
    dialog(`What befalls ${entry.model}?`, (box) => {
      const set = (fault) => () => {
        box.close();
        this.set(names, fault);
        this.choose(index);
      };
      const one = ({ name, title }) => {
        const isSet = names.every((each) => (this.fail[each] ?? "") === name);
        const shown = [h("strong", {}, name || "answers"), ` ${title}`];
        return button(shown, set(name), { "aria-pressed": String(isSet) });
      };
      return h(
        "div",
        { class: "faults" },
        [{ name: "", title: "as it should" }, ...this.faults].map(one),
      );
    });
  }

  set(names, fault) {
    for (const name of names) {
      if (fault) this.fail[name] = fault;
      else delete this.fail[name];
    }
    this.ask();
  }

  question() {
    const asked = {
      combo: this.combo.value,
      dialect: this.dialect.value,
      stream: this.stream.querySelector("input").checked,
      fail: this.fail,
    };
    const text = this.body.value.trim();
    if (text) return { ...asked, body: JSON.parse(text) };
    return {
      ...asked,
      needs: this.needs
        .map((each) => each.querySelector("input"))
        .filter((box) => box.checked)
        .map((box) => box.value),
    };
  }

  async ask() {
    const turn = ++this.latest;
    this.listEntries();
    if (!this.combo.value) return this.verdict.replaceChildren("There is no combo to ask.");
    try {
      const question = this.question();
      const answer = await call("POST", "api/whatif", question);
      if (turn !== this.latest) return;
      this.answer = answer;
      this.tell();
      this.paint();
    } catch (error) {
      if (turn === this.latest)
        this.verdict.replaceChildren(
          trouble(
            error instanceof SyntaxError
              ? { message: `The body is no JSON: ${error.message}` }
              : error,
          ),
        );
    }
  }

  tell() {
    const { reply, waited, cost, moves, assumed } = this.answer;
    const who = reply.from
      ? h(
          "span",
          { class: reply.whole === false ? "warn" : "good" },
          `${reply.from} answers${reply.whole === false ? ", but not to the end" : ""}`,
        )
      : h("span", { class: "bad" }, `nobody answers: ${reply.status} ${reply.message ?? ""}`);
    const after = [
      moves.length && `after ${plural(moves.length, "step")}`,
      waited != null && span(waited),
      cost > 0 && `about ${money(cost)}`,
    ]
      .filter(Boolean)
      .join(" · ");
    this.verdict.replaceChildren(h("strong", {}, who), h("span", { class: "dim" }, ` ${after}`));
    if (assumed?.length) {
      const names = assumed.join(", ");
      this.verdict.append(h("small", {}, ` It is assumed that ${names} had an account.`));
    }
    if (this.verdict.textContent !== this.said) say((this.said = this.verdict.textContent));
    this.moves.replaceChildren(
      ...moves.map((move, index) =>
        h(
          "tr",
          {},
          h("td", {}, String(index + 1)),
          h("td", {}, move.entry),
          h("td", {}, move.account),
          h("td", { class: move.outcome === "answered" ? "good" : "bad" }, move.outcome),
          h("td", { class: "wide" }, move.why ?? ""),
          h("td", {}, move.began == null ? "" : span(move.began)),
        ),
      ),
    );
  }

  paint() {
    if (!this.answer?.route || !this.told.name) return this.drawn.replaceChildren();
    const held = this.drawn.contains(document.activeElement);
    const svg = drawRehearsal(this.answer, this.told, {
      width: this.drawn.clientWidth,
      interactive: true,
      selected: this.selected,
      fail: this.fail,
      reads: Object.fromEntries(this.told.entries.map((entry) => [entry.model, entry.reads])),
    });
    this.drawn.replaceChildren(picture(svg));
    if (held) this.drawn.querySelector(`[data-index="${this.selected}"]`)?.focus();
  }
}

/** The models that an entry comes down to: itself, or those of the combo that it names. */
function leaves(entry) {
  if (entry.kind !== "combo") return [entry.model];
  const name = entry.model.replace(/^combo\//, "");
  return (live.view.combos.find((combo) => combo.name === name)?.entries ?? []).flatMap(leaves);
}
