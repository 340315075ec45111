// Shows numbers, sizes, durations and times as text, and JSON with all digits.
import { el } from "./dom.js";

const NUMBER = /-?\d+(\.\d+)?([eE][-+]?\d+)?/g;
const MARK = `${Math.random()} `; // no server can guess it, so no text of an answer begins with it
const MARKED = new RegExp(`"${MARK.replace(".", "\\.")}([^"]*)"`, "g");

/** A number whose digits JavaScript would change. */
class ExactNumber {
  constructor(text) {
    this.text = text;
  }
  toJSON() {
    return MARK + this.text;
  }
}

/** Parse JSON. Integers beyond 2^53 keep their digits, and if `exact`, every number keeps its text, such as 1.50. */
export function parse(text, exact) {
  const isKept = (number) => (exact ? String(Number(number)) !== number : /^-?\d+$/.test(number) && !Number.isSafeInteger(Number(number)));
  let marked = "";
  for (let at = 0; at < text.length; ) {
    const quote = text.indexOf('"', at);
    const from = quote < 0 ? text.length : quote;
    marked += text.slice(at, from).replace(NUMBER, (number) => (isKept(number) ? `"${MARK}${number}"` : number));
    at = afterString(text, from);
    marked += text.slice(from, at);
  }
  return JSON.parse(marked, (_key, value) => (typeof value === "string" && value.startsWith(MARK) ? new ExactNumber(value.slice(MARK.length)) : value));
}

/** Return the place after the string that begins here. */
function afterString(text, from) {
  for (let at = text.indexOf('"', from + 1); at >= 0; at = text.indexOf('"', at + 1)) {
    let slashes = 0;
    while (text[at - 1 - slashes] === "\\") slashes += 1;
    if (slashes % 2 === 0) return at + 1;
  }
  return text.length;
}

/** Return a value as JSON. Numbers have the digits that they had in the answer. */
export const json = (value, indent) => JSON.stringify(value, null, indent).replace(MARKED, "$1");

/** Return a value as text: a string without quotes, everything else as JSON. */
export const plain = (value) => (value === undefined ? "" : typeof value === "string" ? value : json(value));

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
