// Shows the screen that the address names, and asks for its values every 2 s while the page is visible.
import { call, explain, logIn, logOut, session } from "./api.js";
import { afterActions } from "./dialog.js";
import { el, patch, quiet, show } from "./dom.js";
import { events } from "./events.js";
import { overview, verdict } from "./overview.js";
import { panel, sentence, state } from "./parts.js";
import { consumers, followers } from "./readers.js";
import { lists } from "./screens.js";
import { lasted } from "./text.js";

const SCREENS = { overview, events, tables: lists.tables, consumers, followers, ...lists };
const [EVERY_MS, LATE_MS] = [2000, 6000];
const content = document.getElementById("content");

/** What is shown: the address, the answers by path, and when the status was last read. */
let page = begin();

function begin() {
  const [name, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const id = name in SCREENS ? name : "overview";
  const parameters = Object.fromEntries(new URLSearchParams(query));
  const begun = { id, screen: SCREENS[id], parameters, answers: {}, loaded: undefined, at: 0, turn: 0, troubles: [], error: null, refusal: null };
  return { ...begun, paused: false, chosen: new Set(), leave: new AbortController() };
}

function draw() {
  const { screen, answers, error, at } = page;
  const status = answers.status;
  const [word, kind] = status ? verdict(status) : ["", "quiet"];
  const isOld = at > 0 && (error || Date.now() - at > LATE_MS);
  const age = lasted((Date.now() - at) / 1000);
  show("verdict", state(isOld ? `${word} (${age} ago)` : word, isOld ? "warn" : kind));
  show("about", status?.database && el("span", {}, `source ${status.database}, slot ${status.slot}`));
  document.title = `${error || isOld ? "No answer" : word || "…"} – WAL Pipeline`;
  show("screens", ...Object.entries(SCREENS).map(([id, each]) => el("a", { href: `#/${id}`, "aria-current": id === page.id && "page" }, each.title)));
  show("leave", session() && el("button", { type: "button", onclick: leaveNow }, "Log out"));
  const hadFocus = content.contains(document.activeElement);
  const shown = error?.status === 401 ? [login()] : [el("div", {}, away(error, isOld && age)), body()];
  patch(content, [el("h1", {}, screen.title), ...shown.flat(Infinity)]);
  if (hadFocus && document.activeElement === document.body) content.focus({ preventScroll: true });
}

function leaveNow() {
  logOut();
  open();
}

/** Return the form for the token. The screen stays the same, so its address works through the login. */
function login() {
  const send = async (event) => {
    event.preventDefault();
    try {
      await logIn(new FormData(event.currentTarget).get("token"));
      open();
    } catch (error) {
      page.refusal = explain(error);
      draw();
    }
  };
  return el(
    "section",
    { id: "login" },
    el("h2", {}, "Log in"),
    quiet("Type PIPELINE_API_TOKEN, or PIPELINE_READ_TOKEN to look only. The session lasts 12 hours."),
    el("form", { class: "filters", onsubmit: send }, el("label", {}, "Token", el("input", { name: "token", id: "token", type: "password", required: true, autocomplete: "current-password" })), el("button", {}, "Log in")),
    page.refusal && el("p", { role: "alert" }, state("Not logged in", "bad"), `: ${page.refusal}`),
  );
}

/** Return what the page lacks: all new values, or those of a part. `age`: of the last values, if they are old. */
function away(error, age) {
  const found = error ? [explain(error)] : age ? ["the server has not answered yet."] : page.troubles;
  if (!found.length) return null;
  const shown = page.at && (error || age) ? `The values below are ${age} old. ` : "";
  return el(
    "section",
    { class: "notice bad", role: "alert" },
    found.map((each) => el("p", {}, el("strong", {}, "No new values: "), sentence(each))),
    el("p", {}, `${shown}The page tries again every 2 seconds.`),
  );
}

function body() {
  const { screen, parameters, answers, loaded } = page;
  if (screen.reads.some((path) => !(path in answers) && path !== screen.mayLack)) return page.error || page.troubles.length ? null : panel(null, quiet("Loading…"));
  return [screen.show(parameters, answers, loaded, { paused: page.paused, toggle, chosen: page.chosen, choose })].flat(Infinity).filter(Boolean);
}

function toggle() {
  page.paused = !page.paused;
  draw();
}

/** Mark a row as chosen, or no longer. */
function choose(key, isChosen) {
  page.chosen[isChosen ? "add" : "delete"](key);
  draw();
}

/** Read what the screen shows. `again`: also what seldom changes. */
async function read(now, again) {
  const { screen, parameters, leave } = now;
  const turn = (now.turn += 1);
  const isNew = screen.load && (again || !now.loaded || now.loaded instanceof Error || screen.isOld?.(now));
  const asked = screen.reads.map((path) => call(path, { signal: leave.signal }));
  if (isNew) asked.push(screen.load(parameters, leave.signal));
  const found = await Promise.allSettled(asked);
  if (turn !== now.turn) return;
  if (isNew) now.loaded = ((each) => each.value ?? each.reason)(found.pop());
  const failed = found.filter((each) => each.reason).map((each) => each.reason);
  screen.reads.forEach((path, at) => found[at].reason || (now.answers[path] = found[at].value));
  now.error = found[0].reason ?? failed.find((error) => error.status === 401) ?? null;
  now.troubles = [...new Set(failed.map(explain))];
  if (!found[0].reason) now.at = Date.now();
}

/** Resolve after this time, and not before the page is visible. */
async function rest(milliseconds) {
  await new Promise((resolve) => setTimeout(resolve, milliseconds));
  if (document.hidden) await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
}

async function poll(now) {
  while (now === page) {
    await read(now);
    if (now !== page) return;
    draw();
    if (now.error?.status === 401) return;
    await rest(EVERY_MS);
  }
}

/** Read the newest events again as soon as new ones arrive, at most every 2 s. */
async function follow(now) {
  const { screen, parameters, leave } = now;
  while (now === page) {
    await rest(EVERY_MS);
    if (now !== page || now.paused || !now.at || now.error || now.loaded instanceof Error) continue;
    try {
      await screen.follow(parameters, now.loaded, leave.signal);
      if (now.paused || document.hidden) continue;
      now.loaded = await screen.load(parameters, leave.signal);
      if (now === page) draw();
    } catch {
      // the poll of the status says that the server is away
    }
  }
}

function open() {
  page.leave.abort();
  page = begin();
  show("done");
  patch(content, []); // so that forms of another address begin anew
  draw();
  poll(page);
  if (page.screen.isLive?.(page.parameters)) follow(page);
}

afterActions(async () => {
  const now = page;
  now.chosen.clear();
  await read(now, true);
  if (now === page) draw();
});
addEventListener("hashchange", () => {
  open();
  content.focus();
});
setInterval(() => page.at && !document.hidden && Date.now() - page.at > LATE_MS && draw(), 1000);
open();
