// The screens of those who read the log: consumers with their dead letters, and followers.
import { consumerActions, consumerLetterActions, followerActions, newConsumer } from "./actions.js";
import { call, explain, mayChange } from "./api.js";
import { el, quiet } from "./dom.js";
import { actions, choosing, command, facts, known, panel, remedy, sentence, table, terminal, withActions } from "./parts.js";
import { count, cut, lasted, many, plain, time } from "./text.js";

const [LETTERS, LETTERS_MS] = [50, 10_000];
const named = ({ parameters, answers }) => answers.consumers.data.find((each) => each.name === parameters.name);

export const consumers = {
  title: "Consumers",
  reads: ["status", "consumers"],
  load: async ({ name }, signal) => name && { at: Date.now(), ...(await call(`consumers/${encodeURIComponent(name)}/dead-letters?limit=${LETTERS}`, { signal })) },
  isOld: (now) => Date.now() - now.loaded.at > LETTERS_MS || now.loaded.data.length !== Math.min(named(now)?.dead ?? 0, LETTERS),
  show: (parameters, answers, letters, view) => [
    panel(
      many(answers.consumers.data.length, "consumer"),
      el("p", { class: "filters" }, newConsumer()),
      table(withActions("consumer", "kind", "tables", "state", "waiting", "in flight", "dead", "oldest", "behind"), answers.consumers.data.map(row), "No consumer exists. To create one in a terminal:"),
      !answers.consumers.data.length && command("pipeline consumers create mailer --tables public.orders"),
    ),
    parameters.name && panel(`Dead letters of ${parameters.name}`, deadLetters(named({ parameters, answers }), answers.status, letters, view)),
  ],
};

const row = (each) => [
  el("a", { href: `#/consumers?name=${encodeURIComponent(each.name)}` }, each.name),
  each.kind,
  cut(each.tables.join(", "), 200) || "all",
  [known(each.state), each.reader && quiet(`read by ${each.reader}`)],
  ...[each.pending, each.in_flight, each.dead].map(count),
  lasted(each.oldest_pending_seconds),
  many(each.lag, "event"),
  ...actions(consumerActions(each)),
];

function deadLetters(consumer, status, letters, { chosen, choose }) {
  if (!consumer) return quiet("This consumer does not exist.");
  if (!letters || letters instanceof Error) return quiet(letters ? explain(letters) : "Loading…");
  const seqs = letters.data.map((each) => each.seq);
  const log = status.events_tables.find((each) => each.name === consumer.events_table);
  const through = Math.max(log?.last_seq ?? status.last_seq ?? 0, ...seqs);
  return [
    mayChange() && seqs.length > 0 && consumerLetterActions(consumer.name, seqs.filter((seq) => chosen.has(seq)), { through, count: consumer.dead }),
    table(
      ["seq", "table", "key", "action", "deliveries", "row"],
      letters.data.map((each) => [
        choosing(each.seq, `seq ${each.seq}`, chosen, choose, el("a", { href: `#/events?seq=${each.seq}` }, each.seq)),
        `${each.source_table_schema}.${each.source_table_name}`,
        cut(each.record_pk, 60),
        each.action,
        count(each.deliveries),
        el("code", {}, cut(plain(each.record), 200)),
      ]),
      "No dead letters.",
    ),
    consumer.dead > seqs.length && quiet(`These are the oldest ${seqs.length} of ${count(consumer.dead)}.`),
  ];
}

export const followers = {
  title: "Followers",
  reads: ["status", "followers"],
  show: (_parameters, { followers: found }) =>
    found.data.length
      ? found.data.map(follower)
      : panel(null, quiet("No follower exists. To add a database that is kept equal to the source:"), command("pipeline followers add reports --dsn postgresql://reports.internal/shop")),
};

function follower(each) {
  const late = each.tables.filter((one) => one.state !== "following");
  const made = panel(
    each.name,
    facts([
      ["state", known(each.state)],
      ["behind", `${lasted(each.lag_seconds)}, ${many(each.lag_seqs, "event")}`],
      ["database", each.database],
      ["tables", `${many(each.tables.length, "table")}, ${each.tables.length - late.length} following`],
      ["last applied", time(each.committed_at)],
    ]),
    mayChange() && followerActions(each),
    el("div", {}, sentence(each.reason), remedy(each.remedy), late.length > 0 && table(["table", "state", "why"], late.map((one) => [one.table, known(one.state), [sentence(one.reason), remedy(one.remedy)]]))),
    terminal(`pipeline followers verify ${each.name}`, `pipeline followers release ${each.name}`, `pipeline followers remove ${each.name}`),
  );
  made.id = `follower-${each.name}`;
  return made;
}
