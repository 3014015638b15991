/** The page: connects to the gateway that served it; search, filter and keys. */

import { Monitor } from "../client/freshline.js";
import { byId } from "./fields.js";
import { Page } from "./page.js";
import { setUpTheme } from "./theme.js";
import { askForToken, takeToken } from "./token.js";

/** For tests, and for the console. */
export const page = new Page();
setUpTheme(byId("theme"));
setUpSearch();
setUpKeys();
run();

/** Connects; again with another token if one is refused. */
async function run() {
  let token = takeToken();
  let reason = "The gateway asks for a token. The address that it printed ends with it.";
  for (;;) {
    if (token === "") token = await askForToken(reason);
    await page.follow(new Monitor(location.origin, { token }));
    token = "";
    reason = "The gateway does not accept this token. The address that it printed when it started ends with the right one.";
  }
}

function setUpSearch() {
  const { table, rows } = page;
  const search = /** @type {HTMLInputElement} */ (byId("search"));
  const stale = /** @type {HTMLInputElement} */ (byId("stale-only"));
  const limit = /** @type {HTMLSelectElement} */ (byId("limit"));
  search.addEventListener("input", () => {
    rows.search(search.value);
    table.grid.scrollTop = 0;
    table.arrange();
  });
  search.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "Enter") return;
    event.preventDefault();
    table.grid.focus();
  });
  stale.addEventListener("change", () => {
    rows.onlyStale = stale.checked;
    table.arrange();
  });
  limit.addEventListener("change", () => {
    rows.limit = Number(limit.value);
    table.arrange();
  });
}

function setUpKeys() {
  const search = /** @type {HTMLInputElement} */ (byId("search"));
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target instanceof HTMLElement && event.target.matches("input, select, textarea");
    if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && byId("token").hidden) {
      event.preventDefault();
      search.focus();
    } else if (event.key === "Escape" && event.target === search) {
      if (search.value === "") page.table.grid.focus();
      search.value = "";
      page.rows.search("");
      page.table.arrange();
      event.preventDefault();
    } else if (event.key === "Escape") {
      page.detail.close();
    }
  });
}
