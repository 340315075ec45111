// The actions of the page: each is a button that opens a dialog, which has the command that does the same.
import { call, mayChange } from "./api.js";
import { ask } from "./dialog.js";
import { el } from "./dom.js";
import { count, many } from "./text.js";

const post = (path, body) => call(path, { method: "POST", body });
const words = (text) => text.split(",").map((each) => each.trim()).filter(Boolean);

/** Return a button for an action on something; none if this browser may only read. */
const button = (label, name, question) =>
  mayChange() && el("button", { type: "button", "aria-label": name ? `${label} ${name}` : null, onclick: () => ask({ button: label, ...question() }) }, label);

/** Return the command with these words. An option is a pair, and is left out without a value. */
function cli(...given) {
  const shown = given.filter((each) => (Array.isArray(each) ? each[1] : each)).flat();
  return ["pipeline", ...shown].map((each) => (/^[\w./:@%+=,-]+$/.test(each) ? each : `'${String(each).replaceAll("'", "'\\''")}'`)).join(" ");
}

const START = { name: "start", label: "Start: now, beginning, or a seq after which to begin", required: true };
const [LIST, NUMBER] = [{ as: (text) => (text.trim() ? words(text) : undefined) }, { type: "number", min: 1, as: (text) => (text ? Number(text) : undefined) }];
const CONSUMER = [
  { name: "kind", label: "Kind: records is a queue, cursor a position", options: ["records", "cursor"], value: "records" },
  { name: "tables", label: "Tables, comma separated; empty: all", ...LIST },
  { name: "actions", label: "Actions, comma separated; empty: all", ...LIST },
  { name: "events_table", label: "Events table; empty: the default one", as: (text) => text || undefined },
  { ...START, value: "now" },
  { name: "group_by", label: "Columns of a group, comma separated; empty: the key", ...LIST },
  { name: "collapse", label: "An item is a row with its last change", type: "checkbox", checked: true, value: "true", as: (text) => text === "true" },
  { name: "visibility", label: "Seconds until an item is delivered again", ...NUMBER, value: "30", min: 0.001, step: "any", required: true },
  { name: "max_deliveries", label: "Deliveries before an item is a dead letter; empty: no limit", ...NUMBER },
  { name: "max_unacknowledged", label: "The most items in flight; empty: no limit", ...NUMBER },
];
const changed = ({ name, value }, given) => given[name] !== value && (name === "collapse" ? "--no-collapse" : [`--${name.replace("_", "-")}`, given[name]]);

export const newConsumer = () =>
  button("Create a consumer", "", () => ({
    title: "Create a consumer",
    text: "It receives the events that are written to the log from its start on.",
    button: "Create",
    fields: [{ name: "name", label: "Name", required: true }, ...CONSUMER],
    command: (given) => cli("consumers", "create", given.name || "NAME", ...CONSUMER.map((each) => changed(each, given))),
    send: (given) => post("consumers", Object.fromEntries([["name", given.name], ...CONSUMER.map(({ name, as }) => [name, as ? as(given[name]) : given[name]])])),
    done: ({ name }) => `consumer ${name} is created.`,
  }));

const consumerPath = (name) => `consumers/${encodeURIComponent(name)}`;
const held = (each) => (each.kind === "records" ? `${many(each.pending, "waiting item")}, ${count(each.in_flight)} in flight, ${many(each.dead, "dead letter")}` : `its position, ${many(each.lag, "event")} behind the newest`);

/** Return the buttons of one consumer. */
export const consumerActions = (each) => [
  each.state === "paused" ? simple("Resume", "consumer", each.name, "Items are delivered to it again.") : simple("Pause", "consumer", each.name, "No items are delivered to it. Changes are kept for it."),
  button("Reset", each.name, () => ({
    title: `Reset consumer ${each.name}?`,
    text: `It forgets ${held(each)}. It starts again at another place in the log.`,
    typed: each.name,
    fields: [{ ...START, value: "beginning" }],
    command: ({ start }) => cli("consumers", "reset", each.name, ["--start", start]),
    send: ({ start }) => post(`${consumerPath(each.name)}/reset`, { start }),
    done: `consumer ${each.name} is reset.`,
  })),
  button("Delete", each.name, () => ({
    title: `Delete consumer ${each.name}?`,
    text: `It is deleted with ${held(each)}. The log stays.`,
    typed: each.name,
    command: () => cli("consumers", "delete", each.name),
    send: () => call(consumerPath(each.name), { method: "DELETE" }),
    done: `consumer ${each.name} is deleted.`,
  })),
];

/** Return the button that pauses or resumes a consumer or a follower. */
const simple = (label, what, name, text) =>
  button(label, name, () => ({
    title: `${label} ${what} ${name}?`,
    text,
    command: () => cli(`${what}s`, label.toLowerCase(), name),
    send: () => post(`${what}s/${encodeURIComponent(name)}/${label.toLowerCase()}`),
    done: `${what} ${name} is ${label.toLowerCase()}d.`,
  }));

/** Return the buttons for the chosen dead letters, and for all that the page knows: `all` is their `through` and `count`. */
function letterActions({ path, ids, of, typed, effects, command }, chosen, all) {
  const one = (label, isAll, body) => {
    const number = isAll ? all.count : chosen.length;
    const letters = `${many(number, "dead letter")} of ${of}`;
    return button(`${label} ${isAll ? "all" : "chosen"}`, "", () => ({
      title: `${label} ${isAll ? "all " : ""}${letters}?`,
      text: [effects[label], isAll && `These are all up to ${all.through}. If they are no longer ${count(number)}, nothing is done.`],
      typed: label === "Discard" ? (isAll ? typed : String(number)) : undefined,
      button: label,
      command: () => command(label.toLowerCase(), isAll ? [] : chosen),
      send: () => post(`${path}/${label.toLowerCase()}`, body),
      done: `${label.toLowerCase()} ${letters}.`,
    }));
  };
  return el(
    "p",
    { class: "filters" },
    Object.keys(effects).map((label) => [el("span", {}, chosen.length > 0 && one(label, false, { [ids]: chosen })), el("span", {}, all.count > 0 && one(label, true, all))]),
  );
}

/** Return the buttons for dead letters of a consumer; `chosen` are seqs. */
export const consumerLetterActions = (name, chosen, all) =>
  letterActions(
    {
      path: `${consumerPath(name)}/dead-letters`,
      ids: "seqs",
      of: name,
      typed: name,
      effects: { Retry: "They are put back into the queue.", Discard: "They are deleted. Their events stay in the log." },
      command: (action, seqs) => cli("consumers", "dead-letters", name, `--${action}`, ...seqs.map((seq) => ["--seq", seq])),
    },
    chosen,
    all,
  );

/** Return the buttons for dead letters of the log; `chosen` are ids. */
export const logLetterActions = (chosen, all) =>
  letterActions(
    {
      path: "dead-letters",
      ids: "ids",
      of: "the log",
      typed: "all",
      effects: { Retry: "The server writes the changes again, as the newest events.", Discard: "The changes are given up. They stay listed, and the events in their place stay." },
      command: (action, ids) => cli("dead-letters", action, ...(ids.length ? ids : ["--all"])),
    },
    chosen,
    all,
  );

export const startBackfill = (table) =>
  button("Backfill", table, () => ({
    title: `Backfill table ${table}?`,
    text: ["The server reads the table. Each row becomes an event with the action read, unless the log has a newer one.", "To read only some rows, use the command with --where."],
    button: "Start",
    fields: [{ name: "differences", label: "Append only what differs from the log", type: "checkbox" }],
    command: ({ differences }) => cli("backfill", "start", table, differences && "--differences"),
    send: ({ differences }) => post("backfills", { table, differences: differences === "on" }),
    done: `a backfill of ${table} begins.`,
  }));

/** Return the buttons of one backfill. */
export function backfillActions(each) {
  const change = (label, text, more) =>
    button(label, `backfill ${each.id}`, () => ({
      title: `${label} backfill ${each.id} of ${each.table}?`,
      text,
      button: `${label} backfill`,
      command: () => cli("backfill", label.toLowerCase(), each.id),
      send: () => post(`backfills/${each.id}/${label.toLowerCase()}`),
      done: `${label.toLowerCase()} backfill ${each.id} of ${each.table}.`,
      ...more,
    }));
  if (!["waiting", "reading", "paused"].includes(each.state)) return null;
  return [
    each.state === "paused" ? change("Resume", "The server reads the ranges that are left.") : change("Pause", "Ranges that are being read are finished."),
    change("Cancel", `It ends after ${each.ranges_done} of ${many(each.ranges_all, "range")} and ${many(each.rows_read, "row")}. The events that it has added stay.`, { typed: each.table }),
  ];
}

/** Return the buttons of one follower. */
export function followerActions(each) {
  const late = each.tables.filter((one) => ["stopped", "different"].includes(one.state));
  return el(
    "p",
    { class: "filters" },
    each.state === "paused" ? simple("Resume", "follower", each.name, "It continues at its position.") : simple("Pause", "follower", each.name, "Nothing is applied to it, and the log is kept for it."),
    button("Resync", each.name, () => ({
      title: `Resync follower ${each.name}?`,
      text: `It has ${many(each.tables.length, "table")}. Those that you name are copied again. Until then they keep their old rows.`,
      typed: each.name,
      fields: [{ name: "tables", label: "Tables, comma separated; * matches anything", value: late.map((one) => one.table).join(", "), required: true }],
      command: ({ tables }) => cli("followers", "resync", each.name, ...words(tables)),
      send: ({ tables }) => post(`followers/${encodeURIComponent(each.name)}/resync`, { tables: words(tables) }),
      done: `tables of follower ${each.name} are copied again.`,
    })),
  );
}

export const exportNow = () =>
  button("Export now", "", () => ({
    title: "Export now?",
    text: "The server begins an export within 5 seconds.",
    button: "Export",
    command: () => cli("export", "run"),
    send: () => post("exports/run"),
    done: "an export begins.",
  }));
