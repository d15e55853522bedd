// What is said of times, money and reasons. Pure: values in, text out.

const ORDINAL_ENDS = { 1: "st", 2: "nd", 3: "rd" };
const MEDIA = ["image", "pdf", "audio", "video"];

/** Seconds as `8 ms`, `1.9 s`, `2 min 5 s`. */
export function span(seconds) {
  if (seconds == null) return "";
  if (seconds < 0.9995) return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  if (seconds < 59.95) return `${Number(seconds.toFixed(seconds < 9.95 ? 1 : 0))} s`;
  const whole = Math.round(seconds);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)];
  const parts = hours
    ? [
        [hours, "h"],
        [minutes, "min"],
      ]
    : [
        [minutes, "min"],
        [whole % 60, "s"],
      ];
  return parts
    .filter(([count]) => count)
    .map(([count, unit]) => `${count} ${unit}`)
    .join(" ");
}

/** Seconds left as `0:42`, `3:05`, `2 h 10 min`, `3 d 4 h`. */
export function countdown(seconds) {
  const left = Math.max(0, Math.ceil(seconds));
  if (left < 3600) return `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}`;
  if (left < 86400) return `${Math.floor(left / 3600)} h ${Math.floor((left % 3600) / 60)} min`;
  return `${Math.floor(left / 86400)} d ${Math.floor((left % 86400) / 3600)} h`;
}

/** US dollars with two figures that count; empty where the cost is not known. */
export function money(dollars) {
  if (dollars == null) return "";
  if (dollars === 0) return "$0";
  const places = Math.max(2, 1 - Math.floor(Math.log10(Math.abs(dollars))));
  return `$${dollars.toFixed(Math.min(places, 8))}`;
}

/** `67 in, 9 out`; empty where the provider told none. */
export function tokens(usage) {
  if (!usage) return "";
  const shown = (count) => count.toLocaleString("en");
  return `${shown(usage.input)} in, ${shown(usage.output)} out`;
}

/** A share of one as `63 %`; empty for null. */
export function percent(share) {
  return share == null ? "" : `${Math.round(share * 100)} %`;
}

/** Tokens of a window as `200k` or `1M`. */
export function size(count) {
  if (!count) return "";
  if (count >= 1e6) return `${+(count / 1e6).toFixed(1)}M`;
  return count >= 1000 ? `${Math.round(count / 1000)}k` : String(count);
}

export function ordinal(number) {
  const teen = number % 100 >= 11 && number % 100 <= 13;
  return `${number}${(!teen && ORDINAL_ENDS[number % 10]) || "th"}`;
}

export function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

/** What an entry reads: `reads image, pdf; may read audio`, `text only`, or that it is not known. */
export function reading(reads) {
  const those = (known) => MEDIA.filter((medium) => reads?.[medium] === known);
  if (!reads || those("unknown").length === MEDIA.length) return "not known what it reads";
  const parts = [];
  if (those("yes").length) parts.push(`reads ${those("yes").join(", ")}`);
  if (those("unknown").length) parts.push(`may read ${those("unknown").join(", ")}`);
  return parts.join("; ") || "text only";
}

/**
 * Why an entry stands where it does in an order: `moved: reads image`, `text only`.
 * `reads` says what it reads, where that is known.
 */
export function reason(placed, reads) {
  const parts = placed.why ?? [{ code: "", text: placed.reason }];
  const told = parts.length > 1 ? parts.filter(({ code }) => code !== "listed") : parts;
  const isText = reads && MEDIA.every((medium) => reads[medium] === "no");
  const words = told.map(({ code, text }) =>
    isText && code === "does not read" ? "text only" : text,
  );
  return `${placed.moved ? "moved: " : ""}${words.join("; ")}`;
}

/** `listed 3rd`, `not in the list`; empty where its place is not known or the same. */
export function listed(placed, index) {
  if (placed.listed == null || placed.listed === index + 1) return "";
  return placed.listed ? `listed ${ordinal(placed.listed)}` : "not in the list";
}

/** `an image and a pdf`. */
export function carried(needs) {
  const named = (needs ?? []).map(
    (need) => ({ image: "an image", pdf: "a PDF", audio: "audio", video: "a video" })[need] ?? need,
  );
  return named.join(" and ");
}

export function tone(outcome) {
  if (!outcome || outcome === "under way") return "open";
  return outcome === "answered" ? "good" : "bad";
}

/** The time of day, in the zone of whoever looks. */
export function clock(epoch) {
  return new Date(epoch * 1000).toLocaleTimeString("en-GB");
}

/** Date and time, in the zone of whoever looks. */
export function moment(epoch) {
  const date = new Date(epoch * 1000);
  const day = [date.getFullYear(), date.getMonth() + 1, date.getDate()];
  return `${day.map((part) => String(part).padStart(2, "0")).join("-")} ${clock(epoch)}`;
}
