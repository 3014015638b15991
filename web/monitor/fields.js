/** Lists of names and values. */

/**
 * Shows names and values in a `dl`; only changed texts are written.
 * @param {HTMLElement} list
 * @param {[string, string, string?, string?][]} fields  name, value, an explanation, and a class
 */
export function showFields(list, fields) {
  while (list.children.length > fields.length) list.lastElementChild?.remove();
  fields.forEach(([name, value, note = "", className = ""], index) => {
    const group = list.children[index] ?? list.appendChild(makeGroup());
    const [term, description] = group.children;
    setText(/** @type {HTMLElement} */ (term), name);
    setText(/** @type {HTMLElement} */ (description), value);
    const extra = /** @type {HTMLElement} */ (group.children[2]);
    setText(extra, note);
    if (extra.hidden !== (note === "")) extra.hidden = note === "";
    if (group.className !== className) group.className = className;
  });
}

function makeGroup() {
  const group = document.createElement("div");
  const note = document.createElement("dd");
  note.className = "note";
  group.append(document.createElement("dt"), document.createElement("dd"), note);
  return group;
}

/**
 * Sets the text of an element, if it has changed.
 * @param {HTMLElement} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * The element with an id.
 * @template {HTMLElement} [T=HTMLElement]
 * @param {string} id
 * @returns {T}
 */
export function byId(id) {
  return /** @type {T} */ (document.getElementById(id));
}
