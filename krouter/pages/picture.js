// What the drawing of a combo shows: its entries as boxes, each with all its accounts. Pure.

import { clock, countdown, percent, plural, reading, size } from "./words.js";

const JUDGE = "judge"; // stands for its box among the indices of those under way

/** Boxes, shape and the words for who cannot see it; see drawCombo for the options. */
export function comboPicture(combo, options) {
  const { shape } = combo;
  const boxes = combo.entries.map((entry, index) => entryBox(combo, entry, index, options));
  const picture = { shape, boxes, label: comboLabel(combo, boxes, options), isList: true };
  if (shape === "fan") Object.assign(picture, aroundPanel(combo, options));
  picture.edge = ({ from, to }) =>
    isLit(to ?? (from == null ? null : JUDGE), options) ? "lit" : "";
  return picture;
}

const nameOf = (entry) => entry?.label || entry?.model || "the first entry";
const isLit = (index, options) => options.lit?.includes(index);

function aroundPanel(combo, options) {
  const tuning = combo.effective;
  const least = Math.min(tuning.minPanel, combo.entries.length);
  const judge = combo.judge || nameOf(combo.entries[0]);
  const now = isLit(JUDGE, options) ? "lit" : (options.flash?.[JUDGE] ?? "");
  return {
    source: { title: "request", lines: [{ text: "a copy each", tone: "dim" }], state: "end" },
    sink: {
      title: judge,
      isName: true,
      badge: { text: combo.auto_judge || !combo.judge ? "judge, auto" : "judge" },
      state: `judge ${now}`,
      lines: [
        { text: `gathers from ${plural(least, "answer")} on`, tone: "dim" },
        ...waits(tuning),
      ],
    },
    last: {
      title: "answer",
      lines: [{ text: "one, to the caller", tone: "dim", rows: 2 }],
      state: "end",
    },
  };
}

function waits(tuning) {
  const grace = tuning.stragglerGraceMs / 1000;
  const hard = tuning.panelHardTimeoutMs / 1000;
  return [
    { text: `stragglers get ${grace} s more`, tone: "dim" },
    { text: `waits ${hard} s at most`, tone: "dim" },
  ];
}

/** Boxes that can be chosen have words of their own. */
function comboLabel(combo, boxes, options) {
  const how = combo.rotates ? "round robin" : combo.strategy;
  const told = options.interactive ? [] : boxes.map((box, index) => `${index + 1}. ${box.label}`);
  return [`${combo.name}, ${how}`, ...told].join(". ");
}

function entryBox(combo, entry, index, options) {
  const lines = [{ text: about(entry), tone: "dim", rows: 2 }];
  if (entry.skip && !entry.accounts?.length)
    lines.push({ text: entry.skip, tone: "warn", rows: 2 });
  for (const account of entry.accounts ?? []) lines.push(...accountLines(account, options.now));
  const box = { index, number: index + 1, title: nameOf(entry), isName: true, lines };
  box.badge = badge(combo, index);
  box.state = state(combo, entry, index, options);
  box.label = [entry.model, ...lines.map(spoken)].join(", ");
  box.grip = options.interactive;
  if (box.badge) box.label += `, ${box.badge.text}`;
  return box;
}

/** A line in words. A countdown would stand still in them, so they tell when it ends. */
function spoken(line) {
  const words = line.until ? line.text.replace(line.clock, `until ${clock(line.until)}`) : line.text;
  return [words, line.right].filter(Boolean).join(" ");
}

function about(entry) {
  const window = size(entry.window);
  if (entry.kind === "combo") return `a combo; ${reading(entry.reads)}`;
  return [reading(entry.reads), window && `${window} window`].filter(Boolean).join(" · ");
}

function badge(combo, index) {
  return combo.rotates && combo.turn === index ? { text: "next", tone: "accent" } : null;
}

function state(combo, entry, index, options) {
  const parts = [];
  if (entry.skip) parts.push("off");
  if (combo.rotates && combo.turn === index) parts.push("turn");
  if (isLit(index, options)) parts.push("lit");
  else if (options.flash?.[index]) parts.push(options.flash[index]);
  return parts.join(" ");
}

/** An account in a line, and in another what is the matter with it. */
function accountLines(account, now) {
  const lines = [{ text: account.name, dot: dot(account), right: figures(account) }];
  if (account.lock) lines.push(lockLine(account.lock, now));
  if (account.problem) lines.push({ text: account.problem, tone: "bad", indent: true, rows: 3 });
  return lines;
}

function dot(account) {
  if (account.problem) return "bad";
  if (account.lock) return "warn";
  if (account.health == null) return "idle";
  return account.health >= 0.8 ? "good" : account.health >= 0.4 ? "warn" : "bad";
}

function figures(account) {
  const busy = account.in_flight ? `${account.in_flight} in flight` : "";
  const health = account.health == null ? "" : `${percent(account.health)} healthy`;
  const left = account.left == null ? "" : `${percent(account.left)} left`;
  return [busy || health, left].filter(Boolean).join(" · ");
}

function lockLine(lock, now) {
  const left = countdown(lock.until - now);
  const scope = lock.scope ? ` (${lock.scope})` : "";
  const text = `locked ${left}: ${lock.probing ? "being probed, " : ""}${lock.reason}${scope}`;
  return { text, tone: "warn", indent: true, rows: 2, until: lock.until, clock: left };
}
