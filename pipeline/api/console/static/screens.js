// The screens of lists: tables, the lake, problems, the server.
import { backfillActions, exportNow, logLetterActions, startBackfill } from "./actions.js";
import { mayChange, withQuery } from "./api.js";
import { el, quiet } from "./dom.js";
import { actions, choosing, command, facts, known, panel, remedy, sentence, state, table, terminal, withActions } from "./parts.js";
import { count, cut, lasted, many, plain, size, time } from "./text.js";

const tables = {
  title: "Tables",
  reads: ["status", "tables", "backfills"],
  show: (parameters, { tables: found, backfills }) => {
    const wanted = (parameters.find ?? "").toLowerCase();
    const rows = found.data.filter((each) => each.table.toLowerCase().includes(wanted));
    return [
      panel(null, finder(parameters.find)),
      panel(
        many(rows.length, "table"),
        table(
          withActions("table", "captured", "rows in the log", "why"),
          rows.map((each) => [
            el("a", { href: `#/events?table=${encodeURIComponent(each.table)}` }, each.table),
            each.not_captured ? state(each.state ? "in part" : "no", "warn") : state("yes", "good"),
            each.rewritten ? state("rewritten", "warn") : known(each.state),
            [each.not_captured, each.rewritten, each.reason].filter(Boolean).map((why) => el("p", {}, sentence(why))).concat(remedy(each.remedy)),
            ...actions(each.state && startBackfill(each.table)),
          ]),
          "No table matches.",
          "filter by name to see them",
        ),
      ),
      panel(
        "Backfills",
        table(
          withActions("backfill", "table", "state", "rows", "left", "began"),
          backfills.data.map((each) => [
            `${each.id} (${each.kind})`,
            [each.table, each.condition && quiet(`rows with ${each.condition}`)],
            [known(each.state), each.reason && el("p", {}, sentence(each.reason))],
            `${count(each.rows_read)} read, ${count(each.rows)} new in the log`,
            lasted(each.seconds_left),
            time(each.started_at ?? each.created_at),
            ...actions(backfillActions(each)),
          ]),
          "No backfill was asked for.",
        ),
      ),
    ];
  },
};

function finder(text) {
  const search = (event) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget).get("find");
    location.hash = withQuery("#/tables", { find: given });
  };
  return el("form", { class: "filters", onsubmit: search }, el("label", {}, "Name contains", el("input", { name: "find", id: "find", value: text, autocomplete: "off" })), el("button", {}, "Filter"));
}

const lake = {
  title: "Lake",
  reads: ["status", "exports"],
  show: (_parameters, { status, exports: { status: found, runs, ranges } }) => [
    panel(
      "Exports",
      found.off && el("p", {}, state("Off", "warn"), ": ", sentence(found.off)),
      found.problem && el("p", {}, state("The next run cannot begin", "bad"), ": ", sentence(found.problem)),
      facts([
        ["directory", found.directory],
        ["schedule (cron)", el("code", {}, found.schedule)],
        ["next run", time((status.exports ?? found).next_run)],
        ["last success", time(found.last_success)],
        ["exported up to seq", count(found.exported_seq)],
        ["behind the log", found.behind_seqs === null ? "–" : many(found.behind_seqs, "event")],
      ]),
      el("p", { class: "filters" }, exportNow()),
      terminal("pipeline export run", "pipeline export compact"),
    ),
    panel(
      "Runs",
      table(
        ["run", "state", "began", "lasted", "by", "why", "log"],
        runs.map((each) => [each.id, known(each.state), time(each.started_at), lasted(each.seconds), `${each.trigger}, ${each.holder}`, each.reason ? sentence(each.reason) : "–", each.log ?? "–"]),
        "No export has run.",
      ),
    ),
    panel(
      "Ranges",
      table(
        ["range", "state", "events", "rows", "files", "size", "began", "lasted", "why"],
        ranges.map((each) => [
          each.id,
          known(each.state),
          `seq ${count(each.after_seq + 1)} to ${count(each.upto_seq)}`,
          count(each.rows),
          count(each.files),
          size(each.bytes),
          time(each.started_at),
          lasted(each.seconds),
          each.reason ? sentence(each.reason) : "–",
        ]),
        "No range was exported.",
      ),
    ),
    found.without_state.length + found.hidden.length > 0 &&
      panel(
        "Tables without a current state",
        table(
          ["table", "why"],
          [...found.without_state.map((each) => [each, "it has no key"]), ...found.hidden.map((each) => [each.table_name, sentence(each.reason)])],
        ),
      ),
  ],
};

const problems = {
  title: "Problems",
  reads: ["status", "dead-letters?limit=1000"],
  show: (_parameters, { status, "dead-letters?limit=1000": letters }, _loaded, view) => [
    panel(
      "Changes that could not be written",
      mayChange() && parkedActions(letters.data, view.chosen),
      table(
        ["id", "state", "table", "action", "key", "cause", "since"],
        letters.data.map((each) => [
          each.state === "parked" ? choosing(each.id, `dead letter ${each.id}`, view.chosen, view.choose, each.id) : each.id,
          known(each.state),
          each.table,
          each.action,
          cut(each.record_pk, 60),
          sentence(each.cause),
          time(each.parked_at),
        ]),
        "None.",
      ),
    ),
    panel(
      "Gaps in the log",
      table(
        ["table", "missing", "from", "until"],
        status.gaps.map((each) => [each.table, each.what, [time(each.since), " ", each.from_lsn], [time(each.until), " ", each.until_lsn]]),
        "None.",
      ),
    ),
    panel("Last comparison with the source", comparison(status.verification)),
  ],
};

/** Return the buttons for the parked letters. */
function parkedActions(letters, chosen) {
  const ids = letters.filter((each) => each.state === "parked").map((each) => each.id);
  return logLetterActions(ids.filter((id) => chosen.has(id)), { through: Math.max(0, ...ids), count: ids.length });
}

function comparison(found) {
  if (!found) return [quiet("The log was never compared with the source. To compare:"), command("pipeline verify --content")];
  return facts([
    ["finished", time(found.finished_at)],
    ["result", found.differing ? state(`${many(found.differing, "row")} differ`, "bad") : state("no difference", "good")],
    ["rows", `${count(found.rows)} compared (${Math.round(found.share * 100)} % of each table), ${count(found.unknown)} unknown`],
    ["tables", `${found.tables_compared} compared, ${found.tables_refused} refused`],
    ["differing", found.differs.join(", ") || "–"],
  ]);
}

const OWNERS = { ours: "this pipeline", part: "this pipeline, a part of a backlog", session: "a session", other: "another program" };

const slotTable = (slots) =>
  table(
    ["slot", "whose", "read by", "holds back", "WAL"],
    slots.map((each) => [each.name, OWNERS[each.whose] ?? "–", each.holder ?? (each.active_pid ? "a session" : "no session"), size(each.retained_bytes), each.wal_status === "lost" ? state("lost", "bad") : each.wal_status]),
    "The source has no slot.",
  );

const server = {
  title: "Server",
  reads: ["status", "slots", "sources", "routes"],
  mayLack: "slots",
  show: (_parameters, { status, slots, sources, routes }) => [
    panel(
      "Versions",
      facts([["server", status.version], ["Postgres of the source", status.source_version ?? "–"], ["Postgres of the pipeline", status.pipeline_version ?? "–"], ["newest seq", count(status.last_seq)]]),
      status.warnings.map((each) => el("p", {}, state("Rights", "warn"), " ", sentence(each))),
    ),
    panel(
      "Roles",
      table(["role", "state", "server", "since", "why"], status.roles.map((each) => [each.role, each.held || each.state === "failed" ? known(each.state) : state("not running", "warn"), each.server, time(each.since), sentence(each.reason)]), "No server has run."),
    ),
    panel(
      "Slots of the source",
      slots ? slotTable(slots.data) : quiet("The source does not answer."),
      terminal(...(slots?.data ?? []).filter((each) => each.whose === "other").map((each) => `pipeline slots delete ${each.name}`), "pipeline slots list"),
    ),
    panel("Sessions", table(["session", "value"], sessions(status), "No client has a session.")),
    panel(
      "Sources",
      table(["source", "epoch", "database", "slot", "since"], sources.data.map((each) => [each.id, each.epoch, each.database, each.slot, time(each.since)]), "No source has been replicated."),
      terminal("pipeline sources adopt", "pipeline sources skip-transaction"),
    ),
    panel(
      "Events tables",
      routes.pending && el("p", {}, state("Pending", "warn"), " The settings of the routes differ; they apply from the next start on."),
      table(["table", "events", "newest seq", "last event"], routes.tables.map((each) => [each.name, count(each.events), count(each.last_seq), time(each.updated_at)]), "None."),
      (routes.in_force?.routes ?? []).map((each) => el("p", {}, el("code", {}, plain(each)))),
    ),
  ],
};

const sessions = ({ sessions: wires, walstream }) => [
  ...(wires?.live ?? []).map((each) => [each.name ?? each.slot ?? "pgdeltastream", el("code", {}, plain(each))]),
  ...(walstream?.sessions ?? []).map((each) => [each.peer, each.connected ? "connected" : "ended"]),
];

export const lists = { tables, lake, problems, server };
