// The screens of lists: tables, consumers, followers, the lake, problems, the server.
import { call } from "./api.js";
import { el } from "./dom.js";
import { command, facts, known, panel, remedy, sentence, state, table } from "./parts.js";
import { count, cut, lasted, many, plain, size, time } from "./text.js";

const tables = {
  title: "Tables",
  reads: () => ["status", "tables", "backfills"],
  show: (parameters, { tables: found, backfills }) => {
    const wanted = (parameters.find ?? "").toLowerCase();
    const rows = found.data.filter((each) => each.table.toLowerCase().includes(wanted));
    return [
      panel(null, finder("tables", parameters.find)),
      panel(
        many(rows.length, "table"),
        table(
          ["table", "captured", "rows in the log", "why"],
          rows.map((each) => [
            el("a", { href: `#/events?table=${encodeURIComponent(each.table)}` }, each.table),
            each.not_captured ? state(each.state ? "in part" : "no", "warn") : state("yes", "good"),
            each.rewritten ? state("rewritten", "warn") : known(each.state),
            [each.not_captured, each.rewritten, each.reason].filter(Boolean).map((why) => el("p", {}, sentence(why))).concat(remedy(each.remedy)),
          ]),
          "No table matches.",
        ),
      ),
      panel(
        "Backfills",
        table(
          ["backfill", "table", "state", "rows", "left", "began"],
          backfills.data.map((each) => [
            `${each.id} (${each.kind})`,
            [each.table, each.condition && el("p", { class: "quiet" }, `rows with ${each.condition}`)],
            [known(each.state), each.reason && el("p", {}, sentence(each.reason))],
            `${count(each.rows_read)} read, ${count(each.rows)} new in the log`,
            lasted(each.seconds_left),
            time(each.started_at ?? each.created_at),
          ]),
          "No backfill was asked for.",
        ),
      ),
    ];
  },
};

function finder(screen, text = "") {
  const search = (event) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget).get("find");
    location.hash = `#/${screen}${given ? `?find=${encodeURIComponent(given)}` : ""}`;
  };
  return el("form", { class: "filters", onsubmit: search }, el("label", {}, "Name contains", el("input", { name: "find", id: "find", value: text, autocomplete: "off" })), el("button", {}, "Filter"));
}

const consumers = {
  title: "Consumers",
  reads: () => ["status", "consumers"],
  load: (parameters, signal) => parameters.name && call(`consumers/${encodeURIComponent(parameters.name)}/dead-letters?limit=100`, { signal }),
  show: (parameters, { consumers: found }, letters) => [
    panel(
      many(found.data.length, "consumer"),
      table(
        ["consumer", "kind", "tables", "state", "waiting", "in flight", "dead", "oldest", "behind"],
        found.data.map((each) => [
          el("a", { href: `#/consumers?name=${encodeURIComponent(each.name)}` }, each.name),
          each.kind,
          each.tables.join(", ") || "all",
          [known(each.state), each.reader && el("p", { class: "quiet" }, `read by ${each.reader}`)],
          ...[each.pending, each.in_flight, each.dead].map(count),
          lasted(each.oldest_pending_seconds),
          many(each.lag, "event"),
        ]),
        "No consumer exists.",
      ),
      !found.data.length && command("pipeline consumers create mailer --tables public.orders"),
    ),
    letters && panel(`Dead letters of ${parameters.name}`, deadLetters(letters.data)),
  ],
};

function deadLetters(found) {
  return table(
    ["seq", "table", "key", "action", "deliveries", "row"],
    found.map((each) => [
      el("a", { href: `#/events?seq=${plain(each.seq)}` }, plain(each.seq)),
      `${each.source_table_schema}.${each.source_table_name}`,
      cut(each.record_pk, 60),
      each.action,
      count(each.deliveries),
      el("code", {}, cut(plain(each.record), 200)),
    ]),
    "No dead letters.",
  );
}

const followers = {
  title: "Followers",
  reads: () => ["status", "followers"],
  show: (_parameters, { followers: found }) =>
    found.data.length ? found.data.map(follower) : panel(null, el("p", { class: "quiet" }, "No follower exists. `pipeline followers add` creates one.")),
};

function follower(each) {
  const late = each.tables.filter((one) => one.state !== "following");
  return panel(
    each.name,
    facts([
      ["state", known(each.state)],
      ["behind", `${lasted(each.lag_seconds)}, ${many(each.lag_seqs, "event")}`],
      ["database", each.database],
      ["tables", `${many(each.tables.length, "table")}, ${each.tables.length - late.length} following`],
      ["last applied", time(each.committed_at)],
    ]),
    each.reason && el("p", {}, sentence(each.reason)),
    remedy(each.remedy),
    late.length > 0 && table(["table", "state", "why"], late.map((one) => [one.table, known(one.state), [sentence(one.reason), remedy(one.remedy)]]), ""),
  );
}

const lake = {
  title: "Lake",
  reads: () => ["status"],
  show: (_parameters, { status: { exports: found } }) => {
    if (!found) return panel(null, el("p", { class: "quiet" }, "The state of exports is not known."));
    const run = found.last_run;
    return [
      found.off && panel("Exports are off", el("p", {}, sentence(found.off))),
      found.problem && panel("The next run cannot begin", el("p", {}, sentence(found.problem))),
      panel(
        "Exports",
        facts([
          ["directory", found.directory],
          ["schedule (cron)", el("code", {}, found.schedule)],
          ["next run", time(found.next_run)],
          ["last success", time(found.last_success)],
          ["exported up to seq", count(found.exported_seq)],
          ["behind the log", many(found.behind_seqs ?? 0, "event")],
        ]),
        el("p", {}, "To export now:"),
        command("pipeline export"),
      ),
      panel(
        "Last run",
        run
          ? facts([["run", `${run.id}, by ${run.trigger}`], ["state", known(run.state)], ["began", time(run.started_at)], ["lasted", lasted(run.seconds)], ["why", run.reason ? sentence(run.reason) : "–"], ["log", run.log ?? "–"]])
          : el("p", { class: "quiet" }, "No export has run."),
      ),
      found.without_state.length > 0 && panel("Tables without a current state", el("p", {}, `They have no key: ${found.without_state.join(", ")}.`)),
    ];
  },
};

const problems = {
  title: "Problems",
  reads: () => ["status", "dead-letters"],
  show: (_parameters, { status, "dead-letters": letters }) => [
    panel(
      "Changes that could not be written",
      table(
        ["id", "state", "table", "action", "key", "cause", "since"],
        letters.data.map((each) => [each.id, known(each.state), each.table, each.action, cut(each.record_pk, 60), sentence(each.cause), time(each.parked_at)]),
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

function comparison(found) {
  if (!found) return [el("p", { class: "quiet" }, "The log was never compared with the source. To compare:"), command("pipeline verify --content")];
  return facts([
    ["finished", time(found.finished_at)],
    ["result", found.differing ? state(`${many(found.differing, "row")} differ`, "bad") : state("no difference", "good")],
    ["rows", `${count(found.rows)} compared (${Math.round(found.share * 100)} % of each table), ${count(found.unknown)} unknown`],
    ["tables", `${found.tables_compared} compared, ${found.tables_refused} refused`],
    ["differing", found.differs.join(", ") || "–"],
  ]);
}

const OWNERS = { ours: "this pipeline", part: "this pipeline, a part of a backlog", session: "a session", other: "another program" };

const server = {
  title: "Server",
  reads: () => ["status", "slots", "sources", "routes"],
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
      table(
        ["slot", "whose", "read by", "holds back", "WAL"],
        slots.data.map((each) => [each.name, OWNERS[each.whose] ?? "–", each.holder ?? (each.active_pid ? "a session" : "no session"), size(each.retained_bytes), each.wal_status === "lost" ? state("lost", "bad") : each.wal_status]),
        "The source has no slot.",
      ),
      el("p", {}, "To delete a slot that no program needs:"),
      command("pipeline slots delete NAME"),
    ),
    panel("Sessions", table(["session", "value"], sessions(status), "No client has a session.")),
    panel(
      "Sources",
      table(["source", "epoch", "database", "slot", "since"], sources.data.map((each) => [each.id, each.epoch, each.database, each.slot, time(each.since)]), "No source has been replicated."),
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

export const lists = { tables, consumers, followers, lake, problems, server };
