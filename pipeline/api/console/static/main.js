// Shows the screen that the address names, and asks for its values every 2 s while the page is visible.
import { call, logIn, logOut, session } from "./api.js";
import { el, patch } from "./dom.js";
import { events } from "./events.js";
import { overview, verdict } from "./overview.js";
import { panel, state } from "./parts.js";
import { lists } from "./screens.js";
import { lasted } from "./text.js";

const SCREENS = { overview, events, ...lists };
const EVERY_MS = 2000;
const content = document.getElementById("content");

/** What is shown: the address, the answers by path, and when they were last read. */
let page = begin();

function begin() {
  const [name, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const id = name in SCREENS ? name : "overview";
  const parameters = Object.fromEntries(new URLSearchParams(query));
  return { id, refusal: null, screen: SCREENS[id], parameters, answers: {}, loaded: undefined, at: 0, error: null, paused: false, leave: new AbortController() };
}

function draw() {
  const { screen, answers, error } = page;
  const status = answers.status;
  const [word, kind] = status ? verdict(status) : ["", "quiet"];
  const age = page.at ? (Date.now() - page.at) / 1000 : 0;
  const late = error && page.at ? ` (${lasted(age)} ago)` : "";
  patch(document.getElementById("verdict"), [state(word + late, error ? "warn" : kind)]);
  patch(document.getElementById("about"), status?.database ? [document.createTextNode(`source ${status.database}, slot ${status.slot}`)] : []);
  document.title = `${error ? "No answer" : word || "…"} – WAL Pipeline`;
  const links = Object.entries(SCREENS).map(([id, each]) => el("a", { href: `#/${id}`, "aria-current": id === page.id ? "page" : null }, each.title));
  patch(document.getElementById("screens"), links);
  patch(document.getElementById("leave"), session() ? [el("button", { type: "button", onclick: leaveNow }, "Log out")] : []);
  const shown = error?.status === 401 ? [login()] : [away(error, age), body()];
  patch(content, [el("h1", {}, screen.title), ...shown.flat(Infinity)]);
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
      page.refusal = error.status ? error.message : "the server does not answer.";
      draw();
    }
  };
  return el(
    "section",
    { id: "login" },
    el("h2", {}, "Log in"),
    el("p", {}, "Type PIPELINE_API_TOKEN, or PIPELINE_READ_TOKEN to look only. The session lasts 12 hours."),
    el("form", { class: "filters", onsubmit: send }, el("label", {}, "Token", el("input", { name: "token", id: "token", type: "password", required: true, autocomplete: "current-password" })), el("button", {}, "Log in")),
    page.refusal && el("p", { role: "alert" }, state("Not logged in", "bad"), `: ${page.refusal}`),
  );
}

function away(error, age) {
  if (!error) return null;
  const shown = page.at ? `The values below are ${lasted(age)} old. ` : "";
  return el("section", { class: "notice bad", role: "alert" }, el("p", {}, el("strong", {}, "No new values: "), error.message), el("p", {}, `${shown}The page tries again every 2 seconds.`));
}

function body() {
  const { screen, parameters, answers, loaded } = page;
  if (!page.at) return page.error ? null : panel(null, el("p", { class: "quiet" }, "Loading…"));
  return [screen.show(parameters, answers, loaded, { paused: page.paused, toggle })].flat(Infinity).filter(Boolean);
}

function toggle() {
  page.paused = !page.paused;
  draw();
}

async function read(now) {
  const { screen, parameters, leave } = now;
  const paths = screen.reads(parameters);
  try {
    const isNew = screen.load && (!screen.isLive || !now.at);
    const [loaded, ...found] = await Promise.all([isNew ? screen.load(parameters, leave.signal) : now.loaded, ...paths.map((path) => call(path, { signal: leave.signal }))]);
    paths.forEach((path, at) => (now.answers[path] = found[at]));
    if (isNew) now.loaded = loaded;
    now.at = Date.now();
    now.error = null;
  } catch (error) {
    now.error = error.status ? error : new Error("the server does not answer.");
  }
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
    if (now !== page || now.paused || !now.at || now.error) continue;
    try {
      await screen.follow(parameters, now.loaded, leave.signal);
      if (now.paused) continue;
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
  draw();
  poll(page);
  if (page.screen.isLive?.(page.parameters)) follow(page);
}

addEventListener("hashchange", () => {
  open();
  content.focus();
});
open();
