/** The token: from the address, from the session's storage, or from a form. */

import { byId, setText } from "./fields.js";

const KEY = "freshline-token";

/** The token of the address or of the session; empty without one. It is removed from the address. */
export function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given !== null) {
    history.replaceState(null, "", location.pathname + location.search);
    storeToken(given);
    return given;
  }
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

/** Keeps the token until the tab is closed. @param {string} token */
function storeToken(token) {
  try {
    sessionStorage.setItem(KEY, token);
  } catch {
    // Without storage, the token is kept until the page is left.
  }
}

/**
 * Asks for a token.
 * @param {string} reason  why
 * @returns {Promise<string>}
 */
export function askForToken(reason) {
  const [section, form, input] = [byId("token"), byId("token-form"), /** @type {HTMLInputElement} */ (byId("token-input"))];
  setText(byId("token-reason"), reason);
  for (const part of pageParts()) part.inert = true;
  section.hidden = false;
  input.value = "";
  input.focus();
  return new Promise((resolve) => {
    const onSubmit = (/** @type {Event} */ event) => {
      event.preventDefault();
      const token = tokenIn(input.value);
      if (token === "") return;
      form.removeEventListener("submit", onSubmit);
      section.hidden = true;
      for (const part of pageParts()) part.inert = false;
      storeToken(token);
      resolve(token);
    };
    form.addEventListener("submit", onSubmit);
  });
}

/** The elements behind the form. */
function pageParts() {
  return /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".bar, .list, .detail, .link")]);
}

/** The token in a text, which may be the address that the gateway printed. @param {string} text */
function tokenIn(text) {
  const trimmed = text.trim();
  const match = /#token=([^&\s]+)/.exec(trimmed);
  if (match === null) return trimmed;
  try {
    return decodeURIComponent(match[1]);
  } catch {
    return match[1];
  }
}
