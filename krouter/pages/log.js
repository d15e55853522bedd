// Console Log: the live log of `krouter serve -l`.

import { get } from "./api.js";
import { button, h, say } from "./dom.js";
import { live } from "./live.js";
import { clock } from "./words.js";

const MOST = 2000; // lines kept here; krouter itself keeps 500

export function logPage(place, { signal }) {
  return new Log(place, signal).read();
}

class Log {
  constructor(place, signal) {
    this.last = 0; // the number of the last line that has come
    this.waiting = null; // lines that come while it is paused or read anew
    this.isPaused = false;
    this.isStale = false; // whether lines were missed while it is paused
    this.lines = h("ol", { class: "lines mono", tabindex: 0, "aria-label": "Lines of the log" });
    this.find = h("input", {
      type: "search",
      placeholder: "part of a line",
      "aria-label": "Filter the lines",
      oninput: () => this.filter(),
    });
    this.pause = button("Pause", () => this.turn(), { "aria-pressed": "false" });
    const copy = button("Copy", () => this.copy());
    place.append(
      h("div", { class: "head" }, h("h1", {}, "Console Log"), this.find, this.pause, copy),
      this.lines,
    );
    live.addEventListener("log", ({ detail }) => this.come(detail), { signal });
    for (const name of ["again", "lost"])
      live.addEventListener(name, () => this.missed(), { signal });
  }

  /** Takes what krouter has kept in place of what is shown of the same time, and what came meanwhile. */
  async read() {
    this.waiting ??= [];
    this.isStale = false;
    try {
      const { lines } = await get("api/log");
      const first = lines[0];
      for (const item of [...this.lines.children].reverse()) {
        if (!first || Number(item.dataset.at) < first.at) break;
        item.remove();
      }
      const isGap = first?.number > 1 && this.last && first.number > this.last + 1;
      if (isGap) this.append([{ at: first.at, kind: "PAGE", text: "lines were lost here" }]);
      this.append(lines);
    } finally {
      if (!this.isPaused) this.goOn();
    }
  }

  goOn() {
    const come = this.waiting ?? [];
    this.waiting = null;
    this.append(come.filter((line) => line.number > this.last));
  }

  come(line) {
    if (line.number <= this.last) return; // it was read already
    if (!this.waiting) return this.append([line]);
    this.waiting.push(line);
    if (this.waiting.length > MOST) this.waiting.shift();
    if (this.isPaused) this.pause.textContent = `Go on (${this.waiting.length})`;
  }

  missed() {
    if (this.isPaused) this.isStale = true;
    else this.read().catch(() => {}); // "again" comes as soon as krouter is reached
  }

  turn() {
    this.isPaused = !this.isPaused;
    this.pause.setAttribute("aria-pressed", String(this.isPaused));
    this.pause.textContent = this.isPaused ? "Go on" : "Pause";
    if (this.isPaused) this.waiting ??= [];
    else if (this.isStale) this.missed();
    else this.goOn();
  }

  append(news) {
    const { lines } = this;
    const atEnd = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 40;
    lines.append(...news.map((line) => this.shown(line)));
    this.last = news.reduce((last, line) => Math.max(last, line.number ?? 0), this.last);
    while (lines.children.length > MOST) lines.firstChild.remove();
    if (atEnd) lines.scrollTop = lines.scrollHeight;
  }

  shown(line) {
    const item = h(
      "li",
      { "data-at": line.at },
      h("span", { class: "at" }, clock(line.at)),
      h("span", { class: "kind" }, line.kind),
      h("span", {}, ...linked(line)),
    );
    item.hidden = !this.matches(item);
    return item;
  }

  matches(item) {
    return item.textContent.toLowerCase().includes(this.find.value.trim().toLowerCase());
  }

  filter() {
    for (const item of this.lines.children) item.hidden = !this.matches(item);
    this.lines.scrollTop = this.lines.scrollHeight;
  }

  async copy() {
    const text = [...this.lines.children]
      .filter((item) => !item.hidden)
      .map((item) => [...item.children].map((part) => part.textContent).join(" "));
    say((await copied(`${text.join("\n")}\n`)) ? `${text.length} lines copied` : "It was not copied.");
  }
}

/** The text of a line; the id of a request that has ended by it leads to its route. */
function linked({ text, route }) {
  if (!route || !text.startsWith(route)) return [text];
  const at = `#/routes/${encodeURIComponent(route)}`;
  return [h("a", { href: at }, route), text.slice(route.length)];
}

/** Puts a text into the clipboard; a browser offers its own way on loopback and by https only. */
async function copied(text) {
  if (navigator.clipboard) {
    return navigator.clipboard.writeText(text).then(
      () => true,
      () => false,
    );
  }
  const area = h("textarea", { class: "unseen" }, text);
  const held = document.activeElement;
  document.body.append(area);
  area.select();
  const isDone = document.execCommand("copy");
  area.remove();
  held?.focus();
  return isDone;
}
