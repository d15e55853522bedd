// What is set in krouter.toml: controls that follow it, and changes that are seen before they are made.

import { call, confirmed } from "./api.js";
import { diff, h, say, trouble } from "./dom.js";

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** A control that shows what is set, unless somebody has changed it: that stays until it is saved. */
export class Setting {
  /** `read` and `write` get and fill the control. */
  constructor(read, write) {
    this.read = read;
    this.write = write;
  }

  show(value) {
    const isKept = this.shown !== undefined && this.isChanged;
    this.shown = value;
    if (!isKept) this.write(value);
  }

  get isChanged() {
    return !same(this.read(), this.shown);
  }
}

/** Of named settings those that are changed: a file names no more than it has to. */
export function changed(settings) {
  const those = Object.entries(settings).filter(([, setting]) => setting.isChanged);
  return Object.fromEntries(those.map(([name, setting]) => [name, setting.read()]));
}

/** Shows what an edit does to krouter.toml, and makes it when that is wanted. */
export async function change(title, path, edit, place) {
  place.replaceChildren();
  const show = ({ diff: text, problems }) => {
    const shown = [
      text ? diff(text) : h("p", { class: "word" }, "Nothing is changed."),
      problems.length ? trouble({ problems }) : "",
    ];
    return { shown, isChange: !!text };
  };
  try {
    await confirmed(
      title,
      () => call("PUT", `${path}?dry=1`, edit),
      ({ digest }) => call("PUT", `${path}?digest=${digest}`, edit),
      show,
      () => say("Saved"),
    );
  } catch (error) {
    place.replaceChildren(trouble(error));
  }
}
