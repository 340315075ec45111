// Builds elements and text nodes, and patches the page so that focus and selection stay.
const SVG = "http://www.w3.org/2000/svg";
const HANDLERS = ["onclick", "oninput", "onchange", "onsubmit"];

/** Return a new element. Functions are handlers; `false`, `null` and `undefined` leave an attribute or a child out. */
export function el(name, attributes = {}, ...children) {
  const made = /^(svg|path|line|text)$/.test(name) ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (typeof value === "function") made[key] = value;
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === false || child === null || child === undefined) continue;
    made.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return made;
}

/** Return a paragraph that says less than the others. */
export const quiet = (...children) => el("p", { class: "quiet" }, children);

/** Make the children of `parent` equal to these nodes, and change only what differs. An element with an id stays its own. */
export function patch(parent, wanted) {
  wanted = wanted.filter((node) => node);
  const ids = new Set(wanted.map((node) => node.id));
  wanted.forEach((node, index) => {
    let now = parent.childNodes[index];
    while (now?.id && !ids.has(now.id)) {
      now.remove();
      now = parent.childNodes[index];
    }
    if (!now) parent.append(node);
    else if (!isAlike(now, node)) now.id || node.id ? now.before(node) : now.replaceWith(node);
    else if (now.nodeType === Node.TEXT_NODE) now.data === node.data || (now.data = node.data);
    else update(now, node);
  });
  while (parent.childNodes.length > wanted.length) parent.lastChild.remove();
}

/** Make these nodes the children of the element with this id. */
export const show = (id, ...nodes) => patch(document.getElementById(id), nodes);

function isAlike(now, node) {
  return now.nodeName === node.nodeName && (now.nodeType === Node.TEXT_NODE || now.id === node.id);
}

function update(now, node) {
  for (const { name } of [...now.attributes]) if (!node.hasAttribute(name) && name !== "open") now.removeAttribute(name);
  for (const { name, value } of node.attributes) if (now.getAttribute(name) !== value) now.setAttribute(name, value);
  if (now.type === "checkbox") now.checked = node.checked;
  for (const handler of HANDLERS) now[handler] = node[handler];
  patch(now, [...node.childNodes]);
}
