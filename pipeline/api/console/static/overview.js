// The screen Overview: does it work, how late is it, and why?
import { chart } from "./chart.js";
import { el, quiet } from "./dom.js";
import { panel, remedy, sentence, state } from "./parts.js";
import { count, lasted, many, size } from "./text.js";

const STAGES = { decoded: "Decoded", received: "Received", staged: "Stored", shuffled: "In the log", consumed: "Consumers", followed: "Followers", exported: "Lake" };
const LATE_SECONDS = 10;

/** Return the verdict on a status: a word and its class. */
export function verdict(now) {
  if (!now.replicating) return ["Stopped", "bad"];
  return now.lag_seconds >= LATE_SECONDS ? [`Replicating, ${lasted(now.lag_seconds)} late`, "warn"] : ["Replicating", "good"];
}

export const overview = {
  title: "Overview",
  reads: ["status", "lag"],
  show: (_parameters, { status, lag }) => [
    el("div", {}, standby(status), limits(status)),
    panel("The way of a change", stages(status)),
    panel("Needs a look", look(status)),
    el(
      "div",
      { class: "pair" },
      chart("Behind the source, in seconds", lag.data, "behind_seconds", lasted),
      chart("Events per second", lag.data, "events_per_second", (rate) => count(Math.round(rate * 10) / 10)),
    ),
  ],
};

const notice = (kind, title, text, cure) =>
  el("section", { class: `notice ${kind}` }, el("p", {}, el("strong", {}, `${title}: `), sentence(text)), remedy(cure));

/** Say which server replicates, if it is another one. */
function standby({ roles, server }) {
  const leader = roles.find((each) => each.role === "replication" && each.held)?.server;
  return leader && leader !== server && notice("quiet", "Another server replicates", `${leader} leads. This page comes from ${server}, and everything works here, too.`);
}

function limits({ lag, last_seq: newest, reasons }) {
  const cause = lag?.limited_by;
  if (reasons.length) return reasons.map((reason) => notice("bad", "Stopped", reason, reason === cause?.text && cause.remedy));
  if (!newest) return notice("quiet", "The log is empty", "change a row of the source, for example in `pipeline psql source`");
  if (!lag) return null;
  if (cause.part === "nothing") return notice("good", "On time", cause.text.replace("nothing: ", ""));
  return [cause, ...lag.also].map((each, at) => notice("warn", at ? `Also by ${each.part}` : `Limited by ${each.part}`, each.text, each.remedy));
}

function stages(now) {
  const found = now.lag?.stages ?? [];
  if (!found.length) return quiet("The source does not answer, so the stages are not known.");
  const source = el("li", { class: "good" }, el("b", {}, "Source"), el("span", { class: "big" }, size(now.retained_bytes)), el("span", { class: "quiet" }, "of WAL kept for the slot"));
  return el("ol", { class: "stages" }, source, found.map(stage));
}

function stage(each) {
  const late = each.behind_seconds >= LATE_SECONDS;
  return el(
    "li",
    { class: late ? "warn" : "good" },
    el("b", {}, STAGES[each.stage] ?? each.stage),
    el("span", { class: "big" }, lasted(each.behind_seconds)),
    el("span", { class: "quiet" }, late && "late: ", `${size(each.behind_bytes)} behind`, each.reader && `: ${each.reader}`),
  );
}

/** Yield what needs a look, the worst first: word, class, text, and the screen to open. */
function* findings(now) {
  for (const reason of now.reasons) yield ["Stopped", "bad", reason, "#/server"];
  for (const each of now.slots.filter((slot) => slot.wal_status === "lost")) yield ["Lost", "bad", `slot ${each.name} is lost`, "#/server"];
  if (now.gaps.length) yield ["Missing", "bad", `the log lacks changes or rows: ${many(now.gaps.length, "gap")}`, "#/problems"];
  if (now.dead_letters.parked) yield ["Missing", "bad", `${many(now.dead_letters.parked, "change")} could not be written to the log`, "#/problems"];
  if (now.verification?.differing) yield ["Differs", "bad", `${many(now.verification.differing, "row")} differed from the source at the last comparison`, "#/problems"];
  for (const each of now.followers.filter((one) => one.state === "stopped")) yield ["Stopped", "bad", `follower ${each.name}: ${each.reason}`, "#/followers"];
  if (now.exports?.last_run?.state === "failed") yield ["Failed", "bad", `the last export: ${now.exports.last_run.reason}`, "#/lake"];
  for (const [name, why] of Object.entries(now.failed_schedules)) yield ["Failed", "bad", `schedule ${name}: ${why}`, "#/server"];
  if (now.exports?.problem) yield ["Lake", "warn", now.exports.problem, "#/lake"];
  for (const [name, why] of Object.entries(now.not_captured)) yield ["Not captured", "warn", `${name}: ${why}`, "#/tables"];
  for (const each of now.rewritten) yield ["Rewritten", "warn", `${each.table}: columns ${each.columns.join(", ")}`, "#/tables"];
  for (const each of now.snapshots?.unread ?? []) yield ["Not read", "warn", `${each.table}: ${each.reason ?? each.state}`, "#/tables"];
  for (const each of now.consumers) {
    if (each.dead) yield ["Dead letters", "warn", `consumer ${each.name}: ${many(each.dead, "dead letter")}`, `#/consumers?name=${encodeURIComponent(each.name)}`];
    if (each.oldest_pending_seconds >= LATE_SECONDS) yield ["Consumer", "warn", `${each.name}: ${each.pending === null ? `${many(each.lag, "event")} behind` : `${many(each.pending, "item")} wait`}, the oldest ${lasted(each.oldest_pending_seconds)}`, "#/consumers"];
    if (each.state === "paused") yield ["Paused", "quiet", `consumer ${each.name}`, "#/consumers"];
  }
  for (const each of now.followers.filter((one) => one.state !== "stopped" && one.state !== "following")) yield [each.state, "warn", `follower ${each.name}${each.reason ? `: ${each.reason}` : ""}`, "#/followers"];
  for (const each of now.warnings) yield ["Rights", "warn", each, "#/server"];
  if (now.exports?.off) yield ["Lake", "quiet", `exports are off: ${now.exports.off}`, "#/lake"];
}

function look(now) {
  const found = [...findings(now)];
  if (!found.length) return quiet("Nothing.");
  const rows = found.slice(0, 100).map(([word, kind, text, to]) =>
    el("li", {}, state(word, kind), el("span", {}, sentence(text)), el("a", { href: to, "aria-label": `Open ${to.slice(2).split("?")[0]}: ${word}` }, "open")),
  );
  return [quiet(many(found.length, "item")), el("ul", { class: "look" }, rows)];
}
