// Draws a combo, a route and a rehearsal as SVG: JSON in, the text of an SVG out. Pure, so that the
// pages and the documentation draw with the same code. How it looks is said in draw.css.

import { comboPicture } from "./picture.js";
import { chain, fan, ring } from "./layout.js";
import { rehearsalPicture, routePicture } from "./record.js";

const HEAD = 31; // from a box's top to its first line
const LINE = 17;
const FOOT = 5;
const EDGE = 12; // inside a box, left and right
const GRIP = 34; // the width at a box's right end that a finger takes hold of
const MARGIN = 4; // around the drawing, for the focus ring

/**
 * A combo as GET /api/view tells it. Options: `width` in pixels, `lit` (indices of entries under
 * way), `flash` (index to tone, of entries that have just ended), `now` (epoch seconds),
 * `interactive` (boxes can be chosen and put in order; the element with the id `keys` tells with
 * which keys), `selected` (an index).
 */
export const drawCombo = (combo, options = {}) => draw(comboPicture(combo, options), options);

/**
 * A route as GET /api/routes/ID tells it. What its entries read is taken from `options.combos`, those
 * of GET /api/view, or from `options.reads`, by the entries' names.
 */
export const drawRoute = (route, options = {}) => draw(routePicture(route, options), options);

/**
 * The answer of POST /api/whatif to `combo`, as GET /api/view tells that. Options: `fail` maps
 * entries to the faults that were chosen for them, `interactive` makes the boxes buttons, and
 * `selected` is the index in the combo of the one that is reached first.
 */
export const drawRehearsal = (answer, combo, options = {}) =>
  draw(rehearsalPicture(answer, combo, options), options);

function draw(picture, options) {
  const width = Math.max(280, Math.floor(options.width ?? 900)) - 2 * MARGIN;
  for (const box of everyBox(picture))
    box.height = HEAD + FOOT + LINE * box.lines.length - (box.lines.length ? 0 : 8);
  let laid = layOut(picture, width);
  if (everyBox(picture).map(wrap).some(Boolean)) laid = layOut(picture, width);
  const boxes = everyBox(picture);
  const reached = reachedFirst(boxes, options);
  const used = Math.max(...boxes.map((box) => box.x + box.width), 0);
  const across = picture.shape === "fan" && width < 700 ? width : Math.min(width, used + 1);
  return frame(picture, options, across + 2 * MARGIN, laid.height + 2 * MARGIN, [
    ...laid.edges.map((edge) => arrow(edge, picture)),
    ...boxes.map((box) => drawn(box, reached)),
  ]);
}

function layOut(picture, width) {
  const { shape, boxes } = picture;
  if (shape === "fan") return fan(picture.source, boxes, picture.sink, picture.last, width);
  return shape === "ring" ? ring(boxes, width) : chain(boxes, width);
}

function everyBox(picture) {
  return [picture.source, ...picture.boxes, picture.sink, picture.last].filter(Boolean);
}

/** The index of the box that Tab leads to, of those that are drawn; null where none can be chosen. */
function reachedFirst(boxes, options) {
  const indices = boxes.map((box) => box.index).filter((index) => index != null);
  if (!options.interactive || !indices.length) return null;
  return indices.includes(options.selected) ? options.selected : indices[0];
}

function frame(picture, options, width, height, parts) {
  const role = options.interactive ? (picture.isList ? "listbox" : "group") : "img";
  const style = options.style ? `<style>${options.style}</style>` : "";
  const size = `width="${width}" height="${Math.ceil(height)}" viewBox="${-MARGIN} ${-MARGIN} ${width} ${Math.ceil(height)}"`;
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" class="drawing" ${size} role="${role}" aria-label="${escaped(picture.label)}">` +
    `${style}${parts.join("")}</svg>`
  );
}

/** Arrows get their heads drawn: markers need ids, of which a page has only one each. */
function arrow(edge, picture) {
  const look = picture.edge?.(edge) ?? "";
  if (look === "none") return "";
  const numbers = edge.path.match(/-?\d+/g).map(Number);
  const [x, y] = numbers.slice(-2);
  const [fromX, fromY] = edge.path.includes("C") ? [x - 1, y] : numbers.slice(-4, -2);
  const angle = Math.round((Math.atan2(y - fromY, x - fromX) * 180) / Math.PI);
  return (
    `<path class="edge ${look}" d="${edge.path}"/>` +
    `<path class="tip ${look}" d="M0 0 L-7 -4 L-7 4 Z" transform="translate(${x} ${y}) rotate(${angle})"/>`
  );
}

function drawn(box, reached) {
  const isReached = reached === box.index;
  const selected = box.index != null && isReached ? " selected" : "";
  const asChosen = reached == null || box.index == null ? "" : chosen(box, isReached);
  const inner = [
    `<rect class="box" width="${box.width}" height="${box.height}" rx="7"/>`,
    title(box),
    ...box.lines.map((line, index) => lineOf(line, HEAD + 12 + index * LINE, box.width)),
    box.grip ? grip(box.width) : "",
  ];
  const at = `translate(${Math.round(box.x)} ${Math.round(box.y)})`;
  return `<g class="node ${box.state ?? ""}${selected}"${asChosen} transform="${at}">${inner.join("")}</g>`;
}

/** A box of a list that is put in order, or a button. */
function chosen(box, isReached) {
  const role = box.grip
    ? `role="option" aria-selected="${isReached}" aria-describedby="keys"`
    : 'role="button" aria-haspopup="dialog"';
  const tab = isReached ? 0 : -1;
  return ` ${role} tabindex="${tab}" data-index="${box.index}" aria-label="${escaped(box.label)}"`;
}

/** Six dots, and around them room for a finger. */
function grip(width) {
  const dots = [10, 15, 20].flatMap((y) =>
    [0, 5].map((x) => `<circle cx="${width - EDGE - 5 + x}" cy="${y}" r="1.5"/>`),
  );
  const room = `<rect class="room" x="${width - GRIP}" width="${GRIP}" height="${HEAD}"/>`;
  return `<g class="grip">${room}${dots.join("")}</g>`;
}

function title(box) {
  const number = box.number ? `${box.number} ` : "";
  const end = box.width - EDGE - (box.grip ? 16 : 0);
  const badge = box.badge
    ? text(box.badge.text, end, 20, `badge ${box.badge.tone ?? ""}`, "end")
    : "";
  const taken = measure(number, 12) + (box.badge ? measure(box.badge.text, 11) + 10 : 0);
  const name = fitted(box.title, end - EDGE - taken, 12.5, box.isName);
  const shown = `<tspan class="number">${escaped(number)}</tspan><tspan>${escaped(name)}</tspan>`;
  const hint = name === box.title ? "" : `<title>${escaped(box.title)}</title>`;
  return `<text class="name${box.isName ? " mono" : ""}" x="${EDGE}" y="20">${shown}${hint}</text>${badge}`;
}

function lineOf(line, y, width) {
  const indent = EDGE + (line.dot ? 12 : 0) + (line.indent ? 12 : 0);
  const parts = [];
  if (line.dot)
    parts.push(`<circle class="dot ${line.dot}" cx="${EDGE + 4}" cy="${y - 4}" r="3.5"/>`);
  const far = line.right ? measure(line.right, 11.5) + 8 : 0;
  const near = fitted(line.text, width - indent - EDGE - far, 11.5);
  parts.push(text(near, indent, y, line.tone ?? "", "", line, near === line.text ? "" : line.text));
  if (line.right) parts.push(text(line.right, width - EDGE, y, line.rightTone ?? "dim", "end"));
  return parts.join("");
}

/** Where a line is a countdown, its clock is marked, so that the page can keep it going. */
function text(words, x, y, look, anchor = "", line = {}, whole = "") {
  const end = anchor ? ` text-anchor="${anchor}"` : "";
  const hint = whole ? `<title>${escaped(whole)}</title>` : "";
  const clock = `<tspan data-until="${line.until}">${line.clock}</tspan>`;
  const shown = line.until ? escaped(words).replace(line.clock, clock) : escaped(words);
  return `<text class="line ${look}" x="${x}" y="${y}"${end}>${shown}${hint}</text>`;
}

/** Breaks lines that may take more than one; true where the height has changed. */
function wrap(box) {
  const before = box.lines.length;
  box.lines = box.lines.flatMap((line) => {
    if (!line.rows) return [line];
    const room =
      box.width -
      2 * EDGE -
      (line.dot || line.indent ? 12 : 0) -
      (line.right ? measure(line.right, 11.5) + 8 : 0);
    return broken(line.text, room, line.rows).map((words, index) =>
      index
        ? {
            ...line,
            rows: 0,
            text: words,
            dot: null,
            right: null,
            indent: line.indent || !!line.dot,
          }
        : { ...line, rows: 0, text: words },
    );
  });
  box.height += LINE * (box.lines.length - before);
  return box.lines.length !== before;
}

function broken(words, room, most) {
  const rows = [];
  for (const word of words.split(" ")) {
    const longer = rows.length ? `${rows.at(-1)} ${word}` : word;
    if (rows.length && (measure(longer, 11.5) <= room || rows.length === most))
      rows[rows.length - 1] = longer;
    else rows.push(word);
  }
  return rows;
}

const NARROW = /[ijl.,:;'|!ftrI()[\]/ ]/;
const WIDE = /[mwMW@%→]/;

/** About how wide a text is: there is nobody to ask. */
export function measure(words, size, isMono = false) {
  let sum = 0;
  for (const sign of words) {
    if (isMono) sum += 0.61;
    else if (NARROW.test(sign)) sum += 0.34;
    else if (WIDE.test(sign)) sum += 0.88;
    else sum += sign >= "A" && sign <= "Z" ? 0.68 : 0.59;
  }
  return sum * size;
}

/** With … in its middle where it is too long: both ends of a model's name tell. */
function fitted(words, room, size, isMono = false) {
  if (measure(words, size, isMono) <= room) return words;
  const signs = [...words]; // none of them cut in two
  let kept = Math.min(signs.length - 1, Math.ceil(room / (0.34 * size)));
  const cut = () =>
    isMono
      ? `${head(signs, Math.ceil(kept / 2))}…${tail(signs, Math.floor(kept / 2))}`
      : `${head(signs, kept)}…`;
  while (kept > 1 && measure(cut(), size, isMono) > room) kept--;
  return cut();
}

const head = (signs, count) => signs.slice(0, count).join("");
const tail = (signs, count) => signs.slice(signs.length - count).join("");

const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

function escaped(words) {
  return String(words)
    .replace(/[&<>"]/g, (sign) => ENTITIES[sign])
    .replace(/[\u0000-\u0008\u000b-\u001f\ufffe\uffff]/g, "\ufffd");
}
