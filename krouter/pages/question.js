// What is asked in What if: a combo, what the request carries, and which entries fail.

import { calm, check, field, h, select } from "./dom.js";
import { countedLeaves, everywhere } from "./faults.js";
import { live } from "./live.js";

const EXAMPLE = '{"messages": [{"role": "user", "content": "Hello"}]}';

let written = ""; // as a body, while the tab is open

/** The names of the combos that have an entry to ask. */
const askable = () =>
  (live.view?.combos ?? []).filter((combo) => combo.entries.length).map((combo) => combo.name);

const named = (choices) => choices.map(({ name, title }) => [name, title]);

/**
 * The form, of the choices of GET /api/whatif; `another` is called when the combo is another, `ask`
 * when anything else has changed.
 */
export class Question {
  constructor({ needs, dialects, faults }, { another, ask }) {
    this.faults = faults;
    this.fail = {};
    this.ask = ask;
    this.gone = h("p", { class: "word", role: "status" });
    const chosen = () => {
      this.gone.textContent = "";
      another();
    };
    this.combo = select([], "", { onchange: chosen });
    this.dialect = select(named(dialects), "chat", { onchange: ask });
    this.needs = named(needs).map(([name, label]) => check(label, { value: name, onchange: ask }));
    this.stream = check("streamed", { onchange: ask });
    this.befalls = new Map(); // by entry: the list of its faults
    this.entries = h("fieldset", {});
    this.element = this.form();
  }

  form() {
    return h(
      "form",
      { class: "card", onsubmit: (event) => event.preventDefault() },
      field("Combo", this.combo),
      this.gone,
      h("fieldset", {}, h("legend", {}, "The request carries"), this.needs),
      h("fieldset", {}, h("legend", {}, "It is asked for"), this.stream),
      field("In the dialect of", this.dialect),
      this.entries,
      this.ownBody(),
    );
  }

  /** What is written there stays, for when the page is opened again. */
  ownBody() {
    const ask = calm(this.ask, 300);
    this.body = h("textarea", {
      id: "body",
      spellcheck: "false",
      placeholder: EXAMPLE,
      value: written,
      oninput: () => {
        written = this.body.value;
        ask();
      },
    });
    return h(
      "details",
      { open: !!written },
      h("summary", {}, "A body of your own"),
      field("The body, as JSON", this.body, "In place of what is ticked above."),
    );
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

  /** The chosen combo, as it is known now; without entries where there is none. */
  get told() {
    const found = live.view.combos.find((combo) => combo.name === this.combo.value);
    return found ?? { name: "", entries: [] };
  }

  /** How often each model stands in the chosen combo. */
  get counts() {
    return countedLeaves(this.told, live.view.combos);
  }

  /** The same choice as the boxes have, for those inside nested combos and the judge too. */
  listEntries() {
    const counts = this.counts;
    const listed = JSON.stringify([...counts]);
    if (listed !== this.listed) {
      this.listed = listed;
      this.befalls = new Map([...counts.keys()].map((name) => [name, this.faultsOf(name)]));
      this.entries.replaceChildren(
        h("legend", {}, "What befalls the entries"),
        ...[...this.befalls].map(([name, list]) => field(name, list, everywhere(counts.get(name)))),
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

  /** Makes models fail, or with an empty `fault` answer. */
  set(names, fault) {
    for (const name of names) {
      if (fault) this.fail[name] = fault;
      else delete this.fail[name];
    }
    this.ask();
  }

  /** What POST /api/whatif takes. Raises SyntaxError where the body is no JSON, Error for null. */
  asJson() {
    const asked = {
      combo: this.combo.value,
      dialect: this.dialect.value,
      stream: isTicked(this.stream),
      fail: this.fail,
    };
    const text = this.body.value.trim();
    if (text) return { ...asked, body: parsed(text) };
    const boxes = this.needs.map((label) => label.querySelector("input"));
    return { ...asked, needs: boxes.filter((box) => box.checked).map((box) => box.value) };
  }
}

/** null would be taken for no body. */
function parsed(text) {
  const body = JSON.parse(text);
  if (body === null) throw new Error("The body should be an object.");
  return body;
}

const isTicked = (label) => label.querySelector("input").checked;
