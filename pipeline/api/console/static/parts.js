// The parts that several screens use: panels, tables, notes, commands to copy.
import { el } from "./dom.js";
import { many } from "./text.js";

const MOST_ROWS = 300;

export const panel = (title, ...children) => el("section", {}, title && el("h2", {}, title), children);

/** Return a state as a word with a class: good, warn, bad or quiet. */
export const state = (word, kind = "quiet") => el("span", { class: `state ${kind}` }, word);

export const KINDS = {
  ...{ running: "good", active: "good", following: "good", complete: "good", done: "good" },
  ...{ failed: "bad", stopped: "bad", different: "bad", lost: "bad", cancelled: "warn", paused: "warn" },
  ...{ waiting: "warn", reading: "warn", copying: "warn", parked: "bad", retrying: "warn" },
};

export const known = (word) => (word ? state(word, KINDS[word]) : "–");

/** Return a table. `columns` are its headings; each row is a list of cells. */
export function table(columns, rows, empty) {
  if (!rows.length) return el("p", { class: "quiet" }, empty);
  const shown = rows.slice(0, MOST_ROWS);
  return [
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, columns.map((each) => el("th", { scope: "col" }, each)))),
      el("tbody", {}, shown.map((row) => el("tr", {}, row.map((cell, at) => el("td", { "data-name": columns[at] }, cell))))),
    ),
    rows.length > shown.length && el("p", { class: "quiet" }, `${many(rows.length - shown.length, "more row")}: filter by name to see them.`),
  ];
}

/** Return names and values, side by side. */
export const facts = (pairs) => el("dl", {}, pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));

/** Return a button that copies this text, also over plain HTTP. */
export function copying(text, label = "Copy") {
  return el("button", { type: "button", onclick: (event) => copy(text, event.currentTarget, label) }, label);
}

async function copy(text, button, label) {
  const area = el("textarea", { class: "away", "aria-hidden": "true" });
  area.value = text;
  button.parentNode.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  button.focus();
  button.textContent = isCopied ? "Copied" : "Not copied";
  setTimeout(() => (button.textContent = label), 1500);
}

/** Return a sentence; text between backticks is shown as code. */
export function sentence(text) {
  return String(text ?? "").split("`").map((part, at) => (at % 2 ? el("code", {}, part) : part));
}

export const remedy = (text) => text && el("p", {}, el("strong", {}, "What to do: "), sentence(text));

export const command = (text) => el("p", { class: "command" }, el("code", {}, text), " ", copying(text));
