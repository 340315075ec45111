// Draws an hour as a line with gaps, and says the same in a sentence.
import { el, quiet } from "./dom.js";

const [WIDTH, HEIGHT, LEFT] = [560, 110, 62];
const GAP_SECONDS = 60;

/** Return a panel with the line of one value of these samples. `show`: the value as text. */
export function chart(title, samples, name, show) {
  const all = samples.map((each) => ({ at: Date.parse(each.at) / 1000, epoch: each.epoch, value: each[name] }));
  const points = all.filter((each) => each.value !== null);
  const head = el("h2", {}, title);
  if (points.length < 2) return el("section", {}, head, quiet("No samples of the last hour."));
  const [first, last] = [points[0].at, points[points.length - 1].at];
  const most = Math.max(...points.map((each) => each.value));
  const x = (at) => LEFT + ((at - first) / (last - first || 1)) * (WIDTH - LEFT - 4);
  const y = (value) => HEIGHT - 20 - (most ? value / most : 0) * (HEIGHT - 32);
  const when = Date.now() / 1000 - last < GAP_SECONDS ? "now" : `at ${clock(last)}`;
  const words = `Last hour: ${when} ${show(points[points.length - 1].value)}, at most ${show(most)}.`;
  return el(
    "section",
    {},
    head,
    el(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}. ${words}` },
      [0, most].map((value) => [
        el("line", { x1: LEFT, x2: WIDTH, y1: y(value), y2: y(value), class: "grid" }),
        (value || !most) && el("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, show(value)),
      ]),
      el("text", { x: LEFT, y: HEIGHT - 3 }, clock(first)),
      el("text", { x: WIDTH, y: HEIGHT - 3, "text-anchor": "end" }, clock(last)),
      el("path", { d: line(all, x, y), class: "line" }),
    ),
    quiet(words),
  );
}

const clock = (seconds) => `${new Date(seconds * 1000).toISOString().slice(11, 16)} UTC`;

/** Return the path. It begins again after a gap or a sample without a value, and at an epoch. */
function line(samples, x, y) {
  return samples
    .map((each, at) => {
      if (each.value === null) return "";
      const before = samples[at - 1];
      const isJoined = before && before.value !== null && before.epoch === each.epoch && each.at - before.at < GAP_SECONDS;
      return `${isJoined ? "L" : "M"}${x(each.at).toFixed(1)} ${y(each.value).toFixed(1)}`;
    })
    .join("");
}
