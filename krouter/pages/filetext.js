// The text of a combo's file: it may be typed, and is no combo for as long as it is half typed.

import { h } from "./dom.js";

const isObject = (value) => !!value && typeof value === "object" && !Array.isArray(value);

/** A number that would be written otherwise, as 1.0 or one of twenty digits, is kept as it is written. */
function exact(_, value, context) {
  const isOther = typeof value === "number" && context?.source && String(value) !== context.source;
  return isOther && JSON.rawJSON ? JSON.rawJSON(context.source) : value;
}

/** What a text holds, and what keeps it from being a combo. */
function parsed(text) {
  try {
    const value = JSON.parse(text, exact);
    const broken = isObject(value) ? "" : "A combo is an object.";
    return { value, broken, isJson: true };
  } catch (error) {
    return { value: null, broken: `This is no JSON: ${error.message}`, isJson: false };
  }
}

export class FileText {
  /** `typed` is told whenever the text has been typed in. */
  constructor(text, typed) {
    this.area = h("textarea", {
      id: "file",
      spellcheck: "false",
      rows: 12,
      "aria-describedby": "file-broken file-hint",
      oninput: () => {
        this.isTyped = true;
        this.judge();
        typed();
      },
    });
    this.note = h("p", { class: "trouble", id: "file-broken" });
    const hint =
      "All that a combo can say; what the form and the drawing change is written here.";
    this.element = h(
      "div",
      { class: "field" },
      h("label", { for: "file" }, "The file"),
      this.area,
      this.note,
      h("small", { id: "file-hint" }, hint),
    );
    this.take(text);
  }

  get value() {
    return this.area.value;
  }

  /** A file as it was read; one that is no combo yet is not taken for an empty one. */
  take(text) {
    this.rewrite(text);
    this.isTyped = !!this.broken;
  }

  /** The draft in place of what was typed. */
  rewrite(text) {
    this.area.value = text;
    this.isTyped = false;
    this.judge();
  }

  judge() {
    const { value, broken, isJson } = parsed(this.area.value);
    this.combo = broken ? null : value;
    this.isJson = isJson;
    this.broken = broken;
    this.area.setCustomValidity(broken);
    this.area.setAttribute("aria-invalid", String(!!broken));
    this.note.textContent = broken && `${broken} Until it is one, the form and the drawing wait.`;
    this.note.hidden = !broken;
  }
}
