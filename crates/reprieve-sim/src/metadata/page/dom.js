// Writes to the page, always as text, and only where something changed: focus, selection and tooltips survive.

/** An element of HTML with these attributes and children; strings are text. */
export function make(name, attributes = {}, ...children) {
  return dress(document.createElement(name), attributes, children);
}

/** The same for drawings. */
export function draw(name, attributes = {}, ...children) {
  return dress(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function dress(element, attributes, children) {
  set(element, attributes);
  element.append(...children);
  return element;
}

/** Gives an element these attributes; one that is null is taken away. */
export function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null) element.removeAttribute(name);
    else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
  }
}

/** Sets an element's text. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Shows an element, or hides it; focus that was in it goes to `refuge`. */
export function show(element, visible, refuge) {
  if (!visible && element.contains(document.activeElement)) refuge?.focus();
  if (element.hidden === visible) element.hidden = !visible;
}

const kept = new WeakMap();

/**
 * Lets the children of `parent` be one for each item, in this order. `key` tells items apart, and `view` makes the child
 * of a new one: `{ root, update(item) }`. Focus that was in a child that goes goes to `refuge`.
 */
export function keep(parent, items, { key, view, refuge }) {
  const before = kept.get(parent) ?? new Map();
  const now = new Map(items.map((item) => [key(item), before.get(key(item)) ?? view(item)]));
  kept.set(parent, now);
  for (const [name, { root }] of before) {
    if (now.has(name)) continue;
    if (root.contains(document.activeElement)) refuge?.focus();
    root.remove();
  }
  for (const [place, item] of items.entries()) {
    const { root, update } = now.get(key(item));
    update(item);
    if (parent.children[place] !== root) parent.insertBefore(root, parent.children[place] ?? null);
  }
}

/** Lets a `<select>` offer these, `[value, text]` each, and keeps what was chosen if it is still there. */
export function offer(select, options) {
  keep(select, options, {
    key: ([value]) => value,
    view: ([value]) => {
      const root = make("option", { value });
      return { root, update: ([, text]) => setText(root, text) };
    },
  });
}
