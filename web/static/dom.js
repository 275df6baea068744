// Elements, made without markup.
import { inert, parts } from './inert.js';

const svgSpace = 'http://www.w3.org/2000/svg';

// el makes an element. Attributes that are null or false are left out; a function is a listener.
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

// svg makes an element of a drawing.
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(svgSpace, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') node.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.flat().filter((c) => c !== null && c !== undefined));
  return node;
}

// foreign shows a client's text: inert, and with a direction of its own.
export function foreign(s, tag = 'bdi') {
  const node = el(tag, { class: 'foreign' });
  put(node, s);
  return node;
}

// put replaces what a node shows by a client's text, when it differs.
export function put(node, s) {
  const text = String(s ?? '');
  if (node.foreignText === text) return;
  node.foreignText = text;
  node.replaceChildren(...parts(text).map((p) => p.text ?? el('span', { class: 'code' }, p.code)));
  node.title = inert(text);
}

// say replaces what a node shows by a text of the page's own, when it differs.
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// arrange makes nodes the children of a parent, in order. Those that are in their place aren't touched: what is clicked,
// selected or focused in them stays.
export function arrange(parent, nodes) {
  const kept = new Set(nodes);
  for (const old of [...parent.children]) if (!kept.has(old)) old.remove();
  nodes.forEach((node, i) => {
    if (parent.children[i] !== node) parent.insertBefore(node, parent.children[i] ?? null);
  });
}

// mark sets or removes an attribute, when it differs.
export function mark(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}
