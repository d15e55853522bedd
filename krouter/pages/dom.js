// Elements, without a framework: what a page shows is made of these few functions.

/** An element. Properties beginning with `on` listen; `class`, `data-…` and the like are attributes. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child != null && child !== false && child !== ""),
  );
  return element;
}

/** The element of an SVG's text; scripts in it would not run, and draw.js writes none. */
export function picture(svg) {
  return document.importNode(
    new DOMParser().parseFromString(svg, "image/svg+xml").documentElement,
    true,
  );
}

/** Told to those who cannot see what has changed. */
export function say(words) {
  const place = document.getElementById("said");
  place.textContent = "";
  requestAnimationFrame(() => {
    place.textContent = words;
  });
}

/** Makes `elements` the children of a place; those that are there already stay, and so keep the focus. */
export function fill(place, elements) {
  const wanted = new Set(elements);
  for (const child of [...place.children]) if (!wanted.has(child)) child.remove();
  elements.forEach((element, index) => {
    const there = place.children[index];
    if (there !== element) place.insertBefore(element, there ?? null);
  });
}

/** Does `work` on a press of a button, which is deaf until then; to disable it would take its focus. */
export async function pressed(button, work) {
  if (button.getAttribute("aria-disabled")) return;
  button.setAttribute("aria-disabled", "true");
  try {
    await work();
  } finally {
    button.removeAttribute("aria-disabled");
  }
}

let labels = 0;

/** A form control with its label, and a word of explanation below it. */
export function field(label, control, hint = "") {
  control.id ||= `field-${++labels}`;
  const told = hint && h("small", { id: `${control.id}-hint` }, hint);
  if (told) control.setAttribute("aria-describedby", told.id);
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control, told);
}

/** A checkbox with its label behind it. */
export function check(label, properties) {
  return h(
    "label",
    { class: "check" },
    h("input", { type: "checkbox", ...properties }),
    h("span", {}, label),
  );
}

export function select(options, chosen, properties = {}) {
  const shown = options.map((option) => (Array.isArray(option) ? option : [option, option]));
  const list = h(
    "select",
    properties,
    shown.map(([value, text]) => h("option", { value, selected: value === chosen }, text)),
  );
  list.value = chosen;
  return list;
}

export function button(text, onclick, properties = {}) {
  return h("button", { type: "button", onclick, ...properties }, text);
}

/** The lines of a unified diff, coloured. */
export function diff(text) {
  const kind = (line) =>
    /^(\+\+\+|---|@@)/.test(line) ? "place" : { "+": "plus", "-": "minus" }[line[0]];
  const lines = text.replace(/\n$/, "").split("\n");
  return h(
    "pre",
    { class: "diff", tabindex: 0, "aria-label": "The change of the file" },
    lines.map((line) => h("span", { class: kind(line) }, `${line}\n`)),
  );
}

/** What is wrong, in a box that is read out. */
export function trouble(error) {
  const problems = error.problems ?? [];
  const isMild = problems.length > 0 && problems.every((problem) => problem.level === "warning");
  const each = problems.map((problem) =>
    h(
      "li",
      {},
      problem.path ? h("code", {}, problem.path) : "",
      ` ${problem.message} `,
      problem.hint && h("em", {}, problem.hint),
    ),
  );
  return h(
    "div",
    { class: isMild ? "trouble mild" : "trouble", role: "alert" },
    each.length ? h("ul", {}, each) : h("p", {}, error.message ?? String(error)),
  );
}

/** A modal dialog; `fill` is given the dialog. Escape closes it, and it leaves when closed. */
export function dialog(title, fill) {
  const box = h(
    "dialog",
    { "aria-labelledby": "dialog-title", onclose: () => box.remove() },
    h("h2", { id: "dialog-title" }, title),
  );
  box.append(...[fill(box)].flat());
  document.body.append(box);
  box.showModal();
  return box;
}

/** Asks `then` to run, at most every `wait` ms, the last time included. */
export function calm(then, wait) {
  let timer = null;
  return () => {
    timer ??= setTimeout(() => {
      timer = null;
      then();
    }, wait);
  };
}
