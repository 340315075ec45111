// Asks before an action, sends it once, and shows in the dialog why the server refuses it.
import { Refused } from "./api.js";
import { el, patch, quiet, show } from "./dom.js";
import { command, sentence, state } from "./parts.js";

let acted = () => {};

/** Call this after each action, also if the server knows the session no longer. */
export const afterActions = (then) => (acted = then);

/** Open a dialog. `typed` must be typed first; `command(values)` does the same as `send(values)`; `done` says what was done. */
export function ask({ title, text, typed, fields = [], button, command: same, send, done }) {
  let isSent = false;
  const shown = el("div", {});
  const refusal = el("div", { role: "alert" });
  const cancel = el("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
  const act = el("button", { autofocus: typed === undefined && !fields.length, class: typed === undefined ? "act" : "act bad" }, button);
  const form = el(
    "form",
    { onsubmit: submit, oninput: showCommand },
    [text].flat().map((each) => each && el("p", {}, each)),
    fields.map(field),
    typed !== undefined && field({ name: "typed", label: `Type ${typed} to continue` }),
    quiet("In a terminal, this command does the same:"),
    shown,
    refusal,
    el("p", { class: "filters" }, cancel, act),
  );
  const dialog = el("dialog", { "aria-labelledby": "question" }, el("h2", { id: "question" }, title), form);
  dialog.oncancel = (event) => {
    if (isSent) event.preventDefault(); // a handler that returns false would do the same
  };
  dialog.onclose = () => {
    dialog.remove();
    if (document.activeElement === document.body) document.getElementById("content").focus();
  };
  const say = (...words) => patch(refusal, [el("p", {}, state("Not done", "bad"), ": ", words)]);
  const values = () => Object.fromEntries(new FormData(form));

  function showCommand() {
    patch(shown, [command(same(values()))]);
  }

  function wait(now) {
    isSent = now;
    for (const each of [cancel, act]) each.disabled = now;
  }

  async function submit(event) {
    event.preventDefault();
    const given = values();
    if (isSent) return;
    if (typed !== undefined && given.typed !== typed) return say(`you typed "${given.typed}", not "${typed}".`);
    wait(true);
    patch(refusal, []);
    try {
      await send(given);
      show("done", el("span", {}, state("Done", "good"), `: ${typeof done === "function" ? done(given) : done}`));
    } catch (error) {
      wait(false);
      act.focus();
      if (error.status !== 401) return say(error instanceof Refused ? sentence(error.message) : "the server does not answer. Look at the page before you try again: the server may have done it.");
    }
    dialog.close();
    acted();
  }

  show("done");
  document.body.append(dialog);
  showCommand();
  dialog.showModal();
}

/** Return a field of a form: text by default, a choice with `options`, or a checkbox. */
function field({ label, options, type = "text", name, value, as, ...more }) {
  const id = `ask-${name}`;
  const input = options
    ? el("select", { name, id }, options.map((each) => el("option", { selected: each === value }, each)))
    : el("input", { name, id, type, value, autocomplete: "off", ...more });
  return el("label", { class: type === "checkbox" && "check" }, type === "checkbox" ? [input, label] : [label, input]);
}
