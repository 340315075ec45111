// The screen Events: the newest first, one event, and the history of one row.
import { call, explain, withQuery } from "./api.js";
import { el, quiet } from "./dom.js";
import { copying, facts, panel, table } from "./parts.js";
import { count, cut, json, plain, time } from "./text.js";

const NEWEST = String(Number.MAX_SAFE_INTEGER);
const [PAGE, IN_LIST, IN_EVENT, WAIT_SECONDS] = [50, 60, 4000, 20];
const HAS_ROW = ["insert", "update", "delete", "read"];
const ACTIONS = [...HAS_ROW, "truncate", "message"];

const query = (parameters) => ({ tables: parameters.table, actions: parameters.action, key: parameters.key, events_table: parameters.log });
const link = (parameters) => withQuery("#/events", parameters);
const below = (seq) => (/^\d+$/.test(seq) ? (BigInt(seq) + 1n).toString() : seq);
const name = (event) => `${event.source_table_schema}.${event.source_table_name}`;

export const events = {
  title: "Events",
  reads: ["status", "tables"],
  load: async (parameters, signal) =>
    call(
      parameters.seq
        ? withQuery("events", { before: below(parameters.seq), limit: 1, events_table: parameters.log })
        : withQuery("events", { ...query(parameters), before: parameters.before ?? NEWEST, limit: PAGE }),
      { signal },
    ),
  /** Resolve when new events have arrived after `found`. */
  follow: async (parameters, found, signal) => {
    const { table: tables, action: actions, log: events_table } = parameters;
    const after = plain(found.last_seq);
    await call(withQuery("events", { after, tables, actions, events_table, limit: 1, wait: WAIT_SECONDS }), { signal, wait: WAIT_SECONDS });
  },
  isLive: (parameters) => !parameters.seq && !parameters.before,
  show: (parameters, { tables, status }, found, live) => (parameters.seq ? one(parameters, found) : list(parameters, tables, status, found, live)),
};

function list(parameters, tables, status, found, live) {
  const logs = status.events_tables.map((each) => each.name);
  const isKnown = found && !(found instanceof Error);
  return [
    panel(
      null,
      el(
        "form",
        { class: "filters", onsubmit: filter },
        choice("table", "Table", tables.data.map((each) => each.table), parameters.table),
        choice("action", "Action", ACTIONS, parameters.action),
        el("label", {}, "Key (with one table)", el("input", { name: "key", id: "key", value: parameters.key ?? "", autocomplete: "off" })),
        logs.length > 1 && choice("log", "Events table", logs, parameters.log),
        el("button", {}, "Show"),
        events.isLive(parameters) && el("button", { type: "button", id: "live", "aria-pressed": String(!live.paused), onclick: live.toggle }, live.paused ? "Live: paused" : "Live: on"),
      ),
    ),
    panel(heading(parameters), isKnown ? pageOf(parameters, found) : quiet(found ? explain(found) : "Loading…")),
  ];
}

function heading({ table: of, key }) {
  if (key === undefined) return null;
  return key === "" ? `Events of ${of} with an empty key` : `History of the row ${cut(key, IN_LIST)}`;
}

function pageOf(parameters, found) {
  const next = plain(found.first_seq);
  return [
    table(["seq", "committed", "table", "action", "key", "changed values, or the row"], found.data.map((event) => row(parameters, event)), nothing(parameters, found)),
    next !== "0" && el("p", {}, el("a", { href: link({ ...parameters, before: next }) }, found.data.length ? "Older events" : `Look further, below seq ${count(found.first_seq)}`)),
    parameters.before && el("p", {}, el("a", { href: link({ ...parameters, before: undefined }) }, "Newest events")),
  ];
}

function nothing(parameters, found) {
  if (plain(found.first_seq) !== "0") return `No event from seq ${count(found.first_seq)} on matches.`;
  return parameters.table || parameters.action || parameters.key !== undefined ? "No event matches." : "The log is empty: change a row of the source.";
}

function choice(id, label, values, chosen = "") {
  const all = chosen && !values.includes(chosen) ? [chosen, ...values] : values;
  const options = all.map((each) => el("option", { value: each, selected: each === chosen }, each));
  return el("label", {}, label, el("select", { name: id, id }, el("option", { value: "" }, "all"), options));
}

function filter(event) {
  event.preventDefault();
  const given = Object.fromEntries(new FormData(event.currentTarget));
  if (!given.key) delete given.key;
  location.hash = link(given);
}

function row(parameters, event) {
  const history = link({ table: name(event), key: event.record_pk, log: parameters.log });
  return [
    el("a", { href: link({ seq: plain(event.seq), log: parameters.log }) }, plain(event.seq)),
    time(event.committed_at),
    name(event),
    event.action,
    HAS_ROW.includes(event.action) ? el("a", { href: history, title: "History of this row" }, cut(event.record_pk, IN_LIST) || "(empty)") : "–",
    el("code", {}, summary(event)),
  ];
}

function summary(event) {
  const changed = Object.entries(event.changes ?? {});
  const shown = (value) => cut(plain(value), IN_LIST);
  if (changed.length) return cut(changed.map(([column, before]) => `${column}: ${shown(before)} → ${shown(event.record[column])}`).join(", "), 240);
  return cut(Object.entries(event.record ?? {}).slice(0, 20).map(([column, value]) => `${column}: ${shown(value)}`).join(", "), 240);
}

function one(parameters, found) {
  const back = el("p", {}, el("a", { href: link({ log: parameters.log }) }, "All events"));
  if (!found || found instanceof Error) return [back, panel(null, quiet(found ? explain(found) : "Loading…"))];
  const event = found.data[0];
  if (!event || plain(event.seq) !== parameters.seq) return [back, panel(null, el("p", {}, `The log has no event with seq ${parameters.seq}: retention has dropped it, or it does not exist.`))];
  const { record, changes, ...rest } = event;
  const columns = [...new Set([...Object.keys(record ?? {}), ...Object.keys(changes ?? {})])];
  const before = (column) => (changes && column in changes ? value(changes[column]) : "same");
  return [
    back,
    panel(
      `Event ${count(event.seq)}: ${event.action} of ${name(event)}`,
      el("p", {}, copying(() => json(event, 2), "Copy as JSON"), " ", HAS_ROW.includes(event.action) && el("a", { href: link({ table: name(event), key: event.record_pk, log: parameters.log }) }, "History of this row")),
      table(changes ? ["column", "before", "now"] : ["column", "value"], columns.map((column) => [column, ...(changes ? [before(column)] : []), value(record?.[column])]), "The event has no row."),
    ),
    panel("About this event", facts(Object.entries(rest).map(([key, found]) => [key, key.endsWith("_at") ? time(found) : value(found)]))),
  ];
}

function value(found) {
  const text = plain(found);
  return el("code", {}, text.length > IN_EVENT ? `${cut(text, IN_EVENT)} (${count(text.length)} characters; "Copy as JSON" has all)` : text);
}
