// Routes: what happened to the last requests, as it happens; each opens as a drawing.

import { get, part } from "./api.js";
import { onWidth } from "./combos.js";
import { button, calm, field, fill, h, picture, pressed, say, select, trouble } from "./dom.js";
import { drawRoute } from "./draw.js";
import { live } from "./live.js";
import { attempts } from "./record.js";
import { carried, clock, moment, money, plural, span, tokens, tone } from "./words.js";

const PAGE = 50;
const SAID_MS = 5000; // news are said no more often
const FILTERS = ["combo", "outcome", "asked", "account"];

/** The list, or with `rest` one route. */
export function routesPage(place, { rest, query, signal }) {
  if (rest.length) return onePage(place, rest[0], signal);
  return new List(place, query, signal).read();
}

class List {
  constructor(place, query, signal) {
    this.signal = signal;
    this.filters = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""]));
    this.rows = h("tbody");
    this.listed = new Map(); // by id, the newest first
    this.most = PAGE; // more of them after each press of "Older"
    this.turn = 0;
    this.note = h("div");
    this.older = button("Older", () => pressed(this.older, () => this.more()));
    place.append(
      h("div", { class: "head" }, h("h1", {}, "Routes")),
      this.bar(),
      h("div", { class: "card" }, this.note, this.table()),
      h("div", { class: "actions" }, this.older),
    );
    this.news = 0;
    this.sayNews = calm(() => {
      if (!signal.aborted) say(plural(this.news, "new request"));
      this.news = 0;
    }, SAID_MS);
    const again = calm(() => this.read(true), 400);
    for (const name of ["begin", "end", "lost", "again"]) live.addEventListener(name, again, { signal });
  }

  bar() {
    const combos = [
      ["", "all"],
      ...(live.view?.combos ?? []).map((combo) => [combo.name, combo.name]),
    ];
    if (this.filters.combo && !combos.some(([name]) => name === this.filters.combo))
      combos.push([this.filters.combo, this.filters.combo]);
    const set = (name) => (event) => this.filter(name, event.target.value.trim());
    const typed = (name, placeholder) =>
      h("input", { type: "search", value: this.filters[name], placeholder, onchange: set(name) });
    return h(
      "form",
      { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
      field("Combo", select(combos, this.filters.combo, { onchange: set("combo") })),
      field("Outcome", typed("outcome", "ok, failed, 529, late…")),
      field("Asked for", typed("asked", "a whole name")),
      field("Account", typed("account", "its whole name")),
      h("small", {}, "Enter lists what matches."),
    );
  }

  filter(name, value) {
    this.filters[name] = value;
    const query = new URLSearchParams(Object.entries(this.filters).filter(([, each]) => each));
    history.replaceState(null, "", `#/routes${query.size ? `?${query}` : ""}`);
    this.read();
  }

  table() {
    const heads = ["Time", "Asked for", "Served by", "Outcome", "Tries", "Tokens", "Cost", "Took"];
    const numbers = new Set(["Tries", "Cost", "Took"]);
    return h(
      "table",
      { class: "list" },
      h("caption", { class: "unseen" }, "Requests, the newest first"),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          heads.map((head) =>
            h("th", { scope: "col", class: numbers.has(head) ? "number" : null }, head),
          ),
        ),
      ),
      this.rows,
    );
  }

  path(before = "") {
    const given = Object.entries({ ...this.filters, before, limit: PAGE }).filter(
      ([, value]) => value !== "",
    );
    return `api/routes?${new URLSearchParams(given)}`;
  }

  /** The newest that match. News go on top of what is listed, which may go back further. */
  async read(isNews = false) {
    const turn = isNews ? this.turn : ++this.turn;
    try {
      const routes = await get(this.path());
      if (this.signal.aborted || turn !== this.turn) return;
      const before = isNews && this.meets(routes) ? this.listed : new Map();
      if (!before.size) this.most = PAGE;
      const fresh = isNews ? routes.filter((route) => !this.listed.has(route.id)) : [];
      const newest = new Set(routes.map((route) => route.id));
      const older = [...before.values()].filter((route) => !newest.has(route.id));
      const all = [...routes, ...older];
      this.list(all.slice(0, this.most), fresh);
      this.news += fresh.length;
      if (this.news) this.sayNews();
      if (!before.size) this.older.hidden = routes.length < PAGE;
      else if (all.length > this.most) this.older.hidden = false;
    } catch (error) {
      if (turn === this.turn) this.note.replaceChildren(trouble(error));
    }
  }

  async more() {
    const turn = this.turn;
    try {
      const routes = await get(this.path([...this.listed.keys()].at(-1) ?? ""));
      if (this.signal.aborted || turn !== this.turn) return;
      this.most += PAGE;
      this.list([...this.listed.values(), ...routes], []);
      this.older.hidden = routes.length < PAGE;
    } catch (error) {
      this.note.replaceChildren(trouble(error));
    }
  }

  /** Whether the newest go on from those that are listed, so that none between them is left out. */
  meets(newest) {
    return newest.length < PAGE || newest.some((route) => this.listed.has(route.id));
  }

  list(routes, fresh) {
    this.listed = new Map(routes.map((route) => [route.id, route]));
    const isFresh = new Set(fresh.map((route) => route.id));
    const there = new Map([...this.rows.children].map((each) => [each.dataset.id, each]));
    const rows = routes.map((route) => {
      const before = there.get(route.id);
      const now = row(route, isFresh.has(route.id));
      if (!before) return now;
      for (const [index, cell] of [...now.children].entries())
        if (!before.children[index].isEqualNode(cell)) before.children[index].replaceWith(cell);
      return before;
    });
    fill(this.rows, rows);
    const none = "No request yet that matches. What comes appears here at once.";
    this.note.replaceChildren(rows.length ? "" : h("p", { class: "dim" }, none));
  }
}

function row(route, isFresh) {
  const link = h("a", { href: `#/routes/${encodeURIComponent(route.id)}` }, route.asked || "-");
  const needs = route.needs?.length
    ? h("span", { class: "dim" }, ` with ${carried(route.needs)}`)
    : "";
  const tries = route.steps.filter((step) => step.step === "attempt").length;
  return h(
    "tr",
    { "data-id": route.id, class: isFresh ? "fresh" : null },
    h("td", { title: moment(route.began) }, clock(route.began)),
    h("td", {}, link, needs),
    h("td", { class: "wide" }, route.served || h("span", { class: "dim" }, "nobody")),
    h("td", { class: tone(route.outcome) }, outcome(route)),
    h("td", { class: "number", "data-label": "tries" }, String(tries)),
    h("td", {}, tokens(route.usage)),
    h("td", { class: "number" }, money(route.cost)),
    h("td", { class: "number" }, route.ended == null ? "" : span(route.ended - route.began)),
  );
}

const outcome = (route) => [route.status, route.outcome].filter(Boolean).join(" ");

async function onePage(place, id, signal) {
  place.append(
    h(
      "div",
      { class: "head" },
      h("h1", {}, "Route"),
      h("code", {}, id),
      h("span", { class: "links" }, h("a", { href: "#/routes" }, "All routes")),
    ),
  );
  const facts = h("div");
  const drawn = h("div", { class: "drawn" });
  place.append(h("div", { class: "card" }, facts, drawn));
  const read = () => get(`api/routes/${part(id)}`);
  let route = await read();
  const paint = () => {
    facts.replaceChildren(told(route));
    const options = { width: drawn.clientWidth, combos: live.view?.combos };
    drawn.replaceChildren(picture(drawRoute(route, options)));
  };
  if (signal.aborted) return;
  onWidth(drawn, paint, signal);
  const again = calm(follow, 100);
  for (const name of ["step", "end"])
    live.addEventListener(name, ({ detail }) => detail.id === id && again(), { signal });
  for (const name of ["lost", "again"]) live.addEventListener(name, again, { signal });
  paint();

  let turn = 0;
  async function follow() {
    const now = ++turn;
    try {
      const told = await read();
      if (signal.aborted || now !== turn) return;
      route = told;
      paint();
    } catch {
      // what is shown stays; "again" comes as soon as krouter is reached
    }
  }
}

function told(route) {
  const took = route.ended == null ? "under way" : span(route.ended - route.began);
  const spent = [
    tokens(route.usage),
    money(route.cost),
    route.unpriced ? `${plural(route.unpriced, "attempt")} of unknown cost` : "",
  ];
  const wasted = route.steps.filter((step) => step.step === "attempt" && !step.seen && step.usage);
  const facts = [
    [
      "asked",
      [
        route.asked,
        carried(route.needs) && `with ${carried(route.needs)}`,
        `${route.dialect}, ${route.stream ? "streamed" : "not streamed"}`,
      ],
    ],
    ["outcome", [outcome(route), route.served && `from ${route.served}`]],
    ["when", [moment(route.began), took]],
    ["spent", [attempts(route), ...spent]],
    ["waste", [wasted.length && `${plural(wasted.length, "attempt")} that the caller never saw`]],
    ["order", route.switches],
    ["dropped", route.dropped],
    ["notes", route.notes],
    ["key", [route.caller]],
  ];
  const shown = facts
    .map(([name, parts]) => [name, parts.filter(Boolean).join(" · ")])
    .filter(([, text]) => text);
  return h(
    "dl",
    { class: "facts" },
    shown.map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]),
  );
}
