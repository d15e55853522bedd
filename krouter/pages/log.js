// Console Log: the live log of `krouter serve -l`.

import { get } from "./api.js";
import { button, h, say } from "./dom.js";
import { live } from "./live.js";
import { clock } from "./words.js";

const MOST = 2000; // lines kept here; krouter itself keeps 500

export async function logPage(place, { signal }) {
  const lines = h("ol", { class: "lines mono", tabindex: 0, "aria-label": "Lines of the log" });
  const find = h("input", {
    type: "search",
    placeholder: "part of a line",
    "aria-label": "Filter the lines",
    oninput: () => filter(lines, find.value),
  });
  const waiting = [];
  const pause = button("Pause", () => setPaused(pause.getAttribute("aria-pressed") !== "true"), {
    "aria-pressed": "false",
  });
  const copy = button("Copy", () => copied(lines));
  place.append(h("div", { class: "head" }, h("h1", {}, "Console Log"), find, pause, copy), lines);

  function setPaused(isPaused) {
    pause.setAttribute("aria-pressed", String(isPaused));
    pause.textContent = isPaused ? "Go on" : "Pause";
    if (!isPaused) append(waiting.splice(0));
  }

  function append(news) {
    const atEnd = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 40;
    lines.append(...news.map((line) => shown(line, find.value)));
    while (lines.children.length > MOST) lines.firstChild.remove();
    if (atEnd) lines.scrollTop = lines.scrollHeight;
  }

  live.addEventListener(
    "log",
    ({ detail }) => {
      if (pause.getAttribute("aria-pressed") !== "true") return append([detail]);
      waiting.push(detail);
      if (waiting.length > MOST) waiting.shift();
      pause.textContent = `Go on (${waiting.length})`;
    },
    { signal },
  );
  live.addEventListener(
    "lost",
    () => append([{ at: live.now(), kind: "PAGE", text: "lines were lost here" }]),
    { signal },
  );
  append((await get("api/log")).lines);
  lines.scrollTop = lines.scrollHeight;
}

function shown(line, wanted) {
  const item = h(
    "li",
    {},
    h("span", { class: "at" }, clock(line.at)),
    h("span", { class: "kind" }, line.kind),
    h("span", {}, line.text),
  );
  item.hidden = !matches(item, wanted);
  return item;
}

const matches = (item, wanted) =>
  item.textContent.toLowerCase().includes(wanted.trim().toLowerCase());

function filter(lines, wanted) {
  for (const item of lines.children) item.hidden = !matches(item, wanted);
  lines.scrollTop = lines.scrollHeight;
}

async function copied(lines) {
  const text = [...lines.children]
    .filter((item) => !item.hidden)
    .map((item) => [...item.children].map((part) => part.textContent).join(" "));
  await navigator.clipboard.writeText(`${text.join("\n")}\n`);
  say(`${text.length} lines copied`);
}
