// Sends requests to the API below the console's own address.
import { parse } from "./text.js";

const BASE = new URL("../v1/", document.baseURI);
const ANSWER_SECONDS = 15;
const KEPT = `pipeline session ${BASE.pathname}`;

/** Return the session that this browser has: its value, and whether it may change something. */
export function session() {
  try {
    return JSON.parse(localStorage.getItem(KEPT));
  } catch {
    return null;
  }
}

/** True if this browser may change something: its token allows that, or the server needs none. */
export const mayChange = () => session()?.may_change ?? true;

/** Get a session for this token, and keep it. */
export async function logIn(token) {
  localStorage.setItem(KEPT, JSON.stringify(await call("console/session", { method: "POST", body: { token } })));
}

export const logOut = () => localStorage.removeItem(KEPT);

/** An answer that is no success: its sentence and its status. */
export class Refused extends Error {
  constructor(sentence, status) {
    super(sentence);
    this.status = status;
  }
}

/** Send a request and return its parsed answer. Throws Refused, or TypeError if no server answers. */
export async function call(path, { method = "GET", body, wait = 0, signal } = {}) {
  const patience = AbortSignal.timeout((ANSWER_SECONDS + wait) * 1000);
  const value = session()?.session;
  const answer = await fetch(new URL(path, BASE), {
    method,
    body: body === undefined ? undefined : JSON.stringify(body),
    headers: { ...(body !== undefined && { "Content-Type": "application/json" }), ...(value && { "Pipeline-Session": value }) },
    signal: signal ? AbortSignal.any([signal, patience]) : patience,
    credentials: "same-origin",
    redirect: "error",
  });
  const text = await answer.text();
  if (answer.ok) return parse(text, /^(events|consumers\/)/.test(path));
  let sentence = `the server answered ${answer.status}`;
  try {
    sentence = JSON.parse(text).title ?? sentence;
  } catch {
    // a proxy may answer with a page
  }
  throw new Refused(sentence, answer.status);
}

/** Return what to say of a request that failed. */
export const explain = (error) => (error.status ? error.message : "the server does not answer.");

/** Return a path with these parameters, without the empty ones. A key may be the empty text. */
export function withQuery(path, parameters) {
  const given = Object.entries(parameters).filter(([name, value]) => (value ?? "") !== "" || (name === "key" && value === ""));
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}
