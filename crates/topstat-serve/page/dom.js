// SPDX-License-Identifier: Apache-2.0 OR MIT
// Elements of the page. Texts become text nodes, never markup.

/** Makes an element: attributes by name, `on…` as listeners; null and false leave an attribute or a child out. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== false && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== false));
  return element;
}

/** Sets a text if it differs, so that selections and screen readers are not disturbed. */
export function text(element, value) {
  if (element.textContent !== value) element.textContent = value;
  return element;
}

/** Makes the children of `parent` these elements, in this order, without moving those that are in place. */
export function place(parent, elements) {
  elements.forEach((element, at) => {
    if (parent.children[at] !== element) parent.insertBefore(element, parent.children[at] ?? null);
  });
  while (parent.children.length > elements.length) parent.lastElementChild.remove();
}

/** Opens a dialog that closes by Escape and by a click beside it. */
export function open(dialog) {
  if (dialog.open) return;
  dialog.showModal();
  dialog.onclick = (event) => event.target === dialog && dialog.close();
}
