// One combo to be edited: drag or keys put its entries in order, forms set the rest. Saving shows the
// change of the file first.

import { call, get, part } from "./api.js";
import { arranged } from "./arrange.js";
import { onWidth } from "./combos.js";
import { button, dialog, diff, h, picture, pressed, say, trouble } from "./dom.js";
import { drawCombo } from "./draw.js";
import { form } from "./form.js";
import { drafted, nameOf } from "./draft.js";
import { FileText } from "./filetext.js";
import { live } from "./live.js";

const unsaved = new Map(); // by name: what was left without saving, while the tab is open

/** The page of the combo `name`, or of a new one where that is empty. */
export async function editor(place, name, signal) {
  const file = !name
    ? { text: '{"models": []}', digest: "", shipped: false, returns: false }
    : await get(`api/combos/${part(name)}`);
  if (!signal.aborted) new Editor(place, name, file, signal);
}

const AGAIN = "What you have changed here is lost if you take it.";
const TAKEN = "Choose another name, or edit the combo that has it.";

class Editor {
  constructor(place, name, file, signal) {
    this.name = name;
    this.shipped = file.shipped;
    this.returns = file.returns || file.shipped;
    this.selected = 0;
    this.drawn = h("div", { class: "drawn editing" });
    this.outcome = h("div", { class: "outcome" });
    this.form = form((change) => this.change(change));
    this.draft = {};
    this.file = new FileText("", () => this.typed());
    place.append(
      this.head(),
      h("div", { class: "card" }, this.help(), this.drawn, this.tools()),
      h(
        "div",
        { class: "columns below" },
        h("div", { class: "card" }, this.form.element),
        h("div", { class: "card" }, this.file.element, this.saving()),
      ),
    );
    arranged(this.drawn, {
      move: (from, to) => this.move(from, to),
      remove: (index) => this.remove(index),
      select: (index) => this.select(index),
    });
    onWidth(this.drawn, () => this.paint({ keepText: true }), signal);
    live.addEventListener("view", () => this.paint({ keepText: true }), { signal });
    const warn = (event) => this.isUnsaved && event.preventDefault();
    window.addEventListener("beforeunload", warn, { signal });
    signal.addEventListener("abort", () => this.leave());
    this.take(file);
    if (unsaved.has(name)) this.takeUp(unsaved.get(name), file);
  }

  /** Begins with a file as it was read. */
  take(file) {
    this.saved = file.text;
    this.digest = file.digest;
    this.file.take(file.text);
    this.outcome.replaceChildren();
    this.typed();
  }

  /** A button in place of which comes what it has done. */
  taker(read) {
    const take = async () => {
      this.take(await read());
      this.reviewer.focus();
    };
    return button("Take the file as it is", () => take().catch((error) => this.refuse(error)));
  }

  /** Goes on with what was left without saving. */
  takeUp({ text, digest, title }, file) {
    this.digest = digest;
    this.title.value = title;
    this.file.take(text);
    this.file.isTyped = true;
    this.typed();
    this.outcome.replaceChildren(
      h("p", { class: "word" }, "What you had not saved is here again."),
      this.taker(() => file),
    );
  }

  get isUnsaved() {
    return this.file.value !== this.saved;
  }

  /** What is not saved is there again when the combo is opened again. */
  leave() {
    const left = { text: this.file.value, digest: this.digest, title: this.title.value };
    if (this.isUnsaved) unsaved.set(this.name, left);
    else unsaved.delete(this.name);
  }

  head() {
    this.title = h("input", {
      id: "name",
      "aria-label": "Name of the combo",
      placeholder: "its name",
      value: this.name,
      class: "title",
      oninput: () => this.outcome.replaceChildren(), // what was reviewed had another name
    });
    const shown = this.name
      ? h("h1", {}, `Edit ${this.name}`)
      : [h("h1", {}, "New combo"), this.title];
    const from = this.shipped ? "shipped with krouter; saving makes a file of your own" : "";
    this.note = h("span", { class: "dim" }, from);
    return h(
      "div",
      { class: "head" },
      shown,
      this.note,
      h("span", { class: "links" }, h("a", { href: "#/combos" }, "Back to the combos")),
    );
  }

  help() {
    return h(
      "p",
      { class: "dim", id: "keys" },
      "Drag a box to another place, with a finger by its dots; Escape takes it back. With the keys: arrows choose, Alt with arrows moves, Delete removes.",
    );
  }

  tools() {
    const models = h("datalist", { id: "models" });
    get("v1/models").then(
      (told) => models.append(...told.data.map((model) => h("option", { value: model.id }))),
      () => {},
    );
    this.added = h("input", {
      list: "models",
      "aria-label": "Model or combo to add",
      placeholder: "provider/model, or a combo",
      spellcheck: "false",
      class: "add",
    });
    const add = () => {
      if (this.added.value.trim()) this.add(this.added.value.trim());
    };
    this.added.addEventListener("keydown", (event) => {
      if (event.key === "Enter") add();
    });
    this.adding = [this.added, button("Add", add)];
    this.moving = [
      button("Earlier", () => this.move(this.selected, this.selected - 1)),
      button("Later", () => this.move(this.selected, this.selected + 1)),
      button("Remove", () => this.remove(this.selected)),
    ];
    return h(
      "div",
      { class: "actions" },
      this.adding,
      models,
      h("span", { class: "gap" }),
      this.moving,
    );
  }

  typed() {
    this.outcome.replaceChildren();
    if (this.file.combo) this.draft = this.file.combo;
    this.paint({ keepText: true });
  }

  saving() {
    this.reviewer = button("Review the change", () => this.review(), { class: "main" });
    this.eraser = button("Delete the combo", () => this.askToDelete());
    this.eraser.hidden = !this.name || this.shipped;
    return [
      h(
        "div",
        { class: "actions" },
        this.reviewer,
        this.eraser,
      ),
      this.outcome,
    ];
  }

  models() {
    return Array.isArray(this.draft.models) ? this.draft.models : [];
  }

  change(change) {
    if (this.file.broken) return;
    change(this.draft);
    this.paint();
  }

  select(index, focus = true) {
    this.selected = Math.max(0, Math.min(index, this.models().length - 1));
    this.paint({ keepText: true, focus });
  }

  move(from, to) {
    const models = this.models();
    if (this.file.broken || to < 0 || to >= models.length || from === to) return;
    models.splice(to, 0, ...models.splice(from, 1));
    this.selected = to;
    this.paint({ focus: this.drawn.contains(document.activeElement) });
    say(`${nameOf(models[to])} is now entry ${to + 1} of ${models.length}`);
  }

  add(model) {
    if (this.file.broken) return;
    this.draft.models = [...this.models(), model];
    this.added.value = "";
    this.selected = this.draft.models.length - 1;
    this.paint();
    say(`${model} added as entry ${this.draft.models.length}`);
  }

  remove(index) {
    if (this.file.broken) return;
    const [gone] = this.models().splice(index, 1);
    if (gone === undefined) return;
    this.selected = Math.max(0, Math.min(index, this.models().length - 1));
    this.paint();
    say(`${nameOf(gone)} removed`);
  }

  /** The draft in the drawing, the form and the text; a change is not reviewed any more. */
  paint({ keepText = false, focus = false } = {}) {
    focus ||= this.drawn.contains(document.activeElement);
    const combo = drafted(this.name, this.draft);
    const svg = combo.entries.length
      ? picture(
          drawCombo(combo, {
            width: this.drawn.clientWidth || 900,
            now: live.now(),
            interactive: true,
            selected: this.selected,
          }),
        )
      : h("p", { class: "dim" }, "No entry yet: add the first below.");
    this.drawn.replaceChildren(svg);
    const chosen = this.drawn.querySelector(`[data-index="${this.selected}"]`);
    if (focus) (chosen ?? this.added).focus();
    this.form.show(this.draft);
    const text = JSON.stringify(this.draft, null, 2);
    if (!keepText) this.file.rewrite(text);
    if (text !== this.painted) this.outcome.replaceChildren();
    this.painted = text;
    const waits = !!this.file.broken;
    this.form.element.inert = waits;
    for (const each of this.adding) each.disabled = waits;
    for (const each of this.moving) each.disabled = waits || !combo.entries.length;
  }

  /** What is sent: a text that was typed keeps its layout. */
  get content() {
    return this.file.isTyped ? { text: this.file.value } : { combo: this.draft };
  }

  get sent() {
    return { ...this.content, digest: this.digest };
  }

  get path() {
    return `api/combos/${part(this.name || this.title.value.trim() )}`;
  }

  async review() {
    if (!this.name && !this.title.value.trim()) {
      this.refuse({ message: "Give the combo a name first." });
      return this.title.focus();
    }
    if (!this.file.isJson) return this.refuse({ message: this.file.broken });
    const asked = JSON.stringify([this.path, this.content]);
    try {
      const told = await call("POST", `${this.path}/preview`, this.sent);
      if (JSON.stringify([this.path, this.content]) !== asked) return; // edited meanwhile: not what would be saved
      if (told.problems.some((each) => each.level !== "warning")) return this.refuse(told);
      this.showChange(told);
    } catch (error) {
      this.refuse(error);
      if (error.status === 409) this.offerFile();
    }
  }

  refuse(error, head = "This cannot be saved") {
    this.reviewer.focus();
    this.outcome.replaceChildren(h("h2", {}, head), trouble(error));
  }

  showChange({ diff: text, meaning, problems }) {
    if (!text)
      return this.outcome.replaceChildren(h("p", { class: "word" }, "Nothing is changed."));
    const save = button("Save", () => pressed(save, () => this.save()), { class: "main" });
    const words = meaning.length
      ? [
          h("h3", {}, "What it means"),
          h(
            "ul",
            { class: "meaning" },
            meaning.map((line) => h("li", {}, line)),
          ),
        ]
      : [];
    this.outcome.replaceChildren(
      h("h2", {}, "The change of the file"),
      diff(text),
      problems.length ? trouble({ problems }) : "",
      ...words,
      h("div", { class: "actions" }, save),
    );
    save.focus();
  }

  async save() {
    try {
      const { digest } = await call("PUT", this.path, this.sent);
      this.digest = digest;
      this.saved = this.file.value;
      this.shipped = false;
      this.note.replaceChildren();
      this.eraser.hidden = !this.name;
      say("Saved");
      this.outcome.replaceChildren(h("p", { class: "done" }, "Saved. It is in force."));
      this.reviewer.focus();
      if (!this.name) location.hash = `#/combos/${encodeURIComponent(this.title.value.trim())}`;
    } catch (error) {
      this.refuse(error);
      if (error.status === 409) this.offerFile();
    }
  }

  /** After a refusal because the file is another than the one that was read. */
  offerFile() {
    if (!this.name) return this.outcome.append(h("p", { class: "word" }, TAKEN));
    this.outcome.append(
      h("p", { class: "word" }, AGAIN),
      this.taker(() => get(this.path)),
    );
  }

  askToDelete() {
    dialog(`Delete ${this.name}?`, (box) => [
      h(
        "p",
        {},
        this.returns
          ? "Its file is removed, and the combo of this name that ships with krouter stands in."
          : "Its file is removed for good: there will be no combo of this name.",
      ),
      h(
        "div",
        { class: "actions" },
        button("Keep it", () => box.close()),
        button(
          "Delete",
          () => {
            box.close();
            this.erase();
          },
        ),
      ),
    ]);
  }

  async erase() {
    try {
      await call("DELETE", `${this.path}?digest=${encodeURIComponent(this.digest)}`);
      this.saved = this.file.value; // nothing is left to be saved
      location.hash = "#/combos";
    } catch (error) {
      this.refuse(error, "This cannot be deleted");
      if (error.status === 409) this.offerFile();
    }
  }
}
