// The parts that several screens use: panels, tables, notes, commands to copy.
import { mayChange } from "./api.js";
import { el, quiet } from "./dom.js";
import { many } from "./text.js";

const [MOST_ROWS, SHORT] = [300, 24];

export const panel = (title, ...children) => el("section", {}, title && el("h2", {}, title), children);

/** Return a state as a word with a class: good, warn, bad or quiet. */
export const state = (word, kind = "quiet") => el("span", { class: `state ${kind}` }, word);

export const KINDS = {
  ...{ running: "good", active: "good", following: "good", complete: "good", done: "good" },
  ...{ failed: "bad", stopped: "bad", different: "bad", lost: "bad", cancelled: "warn", paused: "warn" },
  ...{ waiting: "warn", reading: "warn", copying: "warn", parked: "bad", retrying: "warn" },
};

export const known = (word) => (word ? state(word, KINDS[word]) : "–");

/** Return a table. `columns` are its headings; each row is a list of cells. The first cell names the row. */
export function table(columns, rows, empty, more = "not shown") {
  if (!rows.length) return quiet(empty);
  const shown = rows.slice(0, MOST_ROWS);
  const ids = new Set();
  const line = (row) => {
    const made = el("tr", {}, row.map((cell, at) => el("td", { "data-name": columns[at] }, cell)));
    for (const each of made.children) each.className = each.textContent.length < SHORT ? "short" : "";
    const id = `${columns[0]} ${made.firstChild.textContent}`.replaceAll(/\s/g, "-");
    if (!ids.has(id)) made.id = id;
    ids.add(id);
    return made;
  };
  return [
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, columns.map((each) => el("th", { scope: "col" }, each)))),
      el("tbody", {}, shown.map(line)),
    ),
    rows.length > shown.length && quiet(`${many(rows.length - shown.length, "more row")}: ${more}.`),
  ];
}

/** The column of buttons and its cells, if this browser may change something. */
export const withActions = (...columns) => (mayChange() ? [...columns, "actions"] : columns);
export const actions = (buttons) => (mayChange() ? [el("div", { class: "buttons" }, buttons)] : []);

/** Return a checkbox that chooses a row, and what stands beside it; only the latter if this browser may only read. */
export const choosing = (key, name, chosen, choose, shown) =>
  mayChange() ? el("span", {}, el("input", { type: "checkbox", checked: chosen.has(key), "aria-label": `Choose ${name}`, onchange: (event) => choose(key, event.currentTarget.checked) }), " ", shown) : shown;

/** Return names and values, side by side. */
export const facts = (pairs) => el("dl", {}, pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));

/** Return a button that copies what `text` returns, also over plain HTTP. */
export function copying(text, label = "Copy") {
  return el("button", { type: "button", onclick: (event) => copy(text(), event.currentTarget, label) }, label);
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

/** Return a sentence; text between backticks is shown as code, and a command can be copied. */
export const sentence = (text) => String(text ?? "").split("`").map((part, at) => (at % 2 ? [el("code", {}, part), part.startsWith("pipeline ") && [" ", copying(() => part)]] : part));

export const remedy = (text) => text && el("p", {}, el("strong", {}, "What to do: "), sentence(text));

export const command = (text) => el("p", { class: "command" }, el("code", {}, text), " ", copying(() => text));

/** Return commands that are no buttons, folded away. */
export const terminal = (...texts) => el("details", {}, el("summary", {}, "Commands for a terminal"), texts.map(command));
