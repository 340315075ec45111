// Shows numbers, sizes, durations and times as text, and JSON with all digits.
import { el } from "./dom.js";

const isExact = (value) => JSON.isRawJSON?.(value) ?? false;

/** Parse JSON. Integers beyond 2^53 keep their digits, and if `exact`, every number keeps its text, such as 1.50. */
export function parse(text, exact) {
  return JSON.parse(text, (_key, value, context) => {
    const source = context?.source;
    if (typeof value !== "number" || source === undefined || !JSON.rawJSON) return value;
    const isRounded = Number.isInteger(value) && !Number.isSafeInteger(value);
    return isRounded || (exact && String(value) !== source) ? JSON.rawJSON(source) : value;
  });
}

/** Return a value as text: a string without quotes, everything else as JSON. */
export function plain(value) {
  if (value === undefined) return "";
  if (isExact(value)) return value.rawJSON;
  return typeof value === "string" ? value : JSON.stringify(value);
}

export const cut = (text, length) => (text.length > length ? `${text.slice(0, length)}…` : text);

export const count = (number) => (number === null || number === undefined ? "–" : digits(plain(number)));

const digits = (text) => text.replace(/^-?\d+/, (whole) => whole.replace(/\B(?=(\d{3})+$)/g, ","));

/** Return a number and its noun. */
export const many = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** Return a size in bytes with a unit. */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  let value = Number(plain(bytes));
  while (value >= 1000 && unit < units.length - 1) [value, unit] = [value / 1000, unit + 1];
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** Return a duration with a unit. */
export function lasted(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 10) return `${seconds ? seconds.toFixed(1) : 0} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}

/** Return a time in UTC with its date; the title has local time. */
export function time(text) {
  if (!text) return "–";
  const at = new Date(text);
  const utc = `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
  return el("time", { datetime: text, title: `${at.toLocaleString()} local time` }, utc);
}
