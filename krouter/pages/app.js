// The shell: which page is shown, light or dark, whether krouter is reached.

import { combosPage } from "./combos.js";
import { h, trouble } from "./dom.js";
import { follow, live } from "./live.js";
import { logPage } from "./log.js";
import { routesPage } from "./routes.js";
import { settingsPage } from "./settings.js";
import { whatifPage } from "./whatif.js";
import { countdown } from "./words.js";

const PAGES = {
  combos: ["Combos", combosPage],
  whatif: ["What if", whatifPage],
  routes: ["Routes", routesPage],
  log: ["Console Log", logPage],
  settings: ["Settings", settingsPage],
};

const THEME = "krouter.theme";
const main = document.getElementById("main");
let leave = new AbortController();

/** `#/routes/ID?combo=daily` → the page, what follows it, and the query. */
function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  return {
    name: Object.hasOwn(PAGES, name) ? name : "combos",
    rest: rest.map(decoded),
    query: new URLSearchParams(query),
  };
}

/** A part of an address that is typed by hand may be encoded badly: then it stands as it is. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** A page fills its place; `signal` tells it that it is left, and stops its listeners. */
function show() {
  leave.abort();
  leave = new AbortController();
  const { name, rest, query } = place();
  const [title, page] = PAGES[name];
  document.title = `${title} · krouter`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const box = h("div", { class: `page ${name}` });
  main.replaceChildren(box);
  const given = { rest, query, signal: leave.signal };
  new Promise((done) => done(page(box, given))).catch((error) => {
    if (!box.querySelector("h1")) box.prepend(h("h1", {}, title));
    box.append(trouble(error));
  });
}

/** Shows the page again once there is a snapshot. */
function begin() {
  window.addEventListener("hashchange", () => {
    show();
    main.focus();
  });
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address is that of the page shown
    main.focus();
  });
  live.addEventListener("view", show, { once: true });
  live.addEventListener("view", ({ detail }) => noteVersion(detail.version));
  live.addEventListener("state", ({ detail }) => {
    const place = document.getElementById("live");
    place.textContent = detail.word;
    place.title = detail.why;
    place.className = `live ${detail.word === "live" ? "good" : "warn"}`;
    if (!live.view && detail.why) main.replaceChildren(trouble({ message: detail.why }));
  });
  setInterval(tick, 1000);
  main.replaceChildren(h("p", { class: "dim" }, "Reading…"));
  follow();
}

let version = null;

/** These pages are of the krouter that sent them; one that was started since may tell other things. */
function noteVersion(now) {
  version ??= now;
  const old = document.getElementById("old");
  old.hidden = now === version;
  old.textContent = `krouter is version ${now} now, and these pages are of ${version}: reload them.`;
}

/** Keeps the countdowns of locks going. */
function tick() {
  for (const clock of document.querySelectorAll("[data-until]")) {
    clock.textContent = countdown(Number(clock.dataset.until) - live.now());
  }
}

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const toggle = document.getElementById("theme");

function isDark() {
  return (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
}

function paint() {
  toggle.textContent = isDark() ? "Light" : "Dark";
  toggle.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
}

/** What a browser keeps for the pages, where it is allowed to. */
function kept(...given) {
  try {
    return given.length ? localStorage.setItem(THEME, ...given) : localStorage.getItem(THEME);
  } catch {
    return null;
  }
}

const chosen = kept();
if (chosen) document.documentElement.dataset.theme = chosen;
toggle.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  kept(document.documentElement.dataset.theme);
  paint();
});
dark.addEventListener("change", paint);
paint();
begin();
