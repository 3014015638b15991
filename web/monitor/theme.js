/** Light or dark theme, from the system or as chosen; and the colours for canvases, to which CSS does not apply. */

const KEY = "freshline-theme";
const THEMES = ["auto", "light", "dark"];
const NAMES = /** @type {const} */ (["accent", "warn", "muted", "line", "text"]);

/** @typedef {Record<(typeof NAMES)[number], string>} Colours */

const probe = document.createElement("span");
probe.hidden = true;

/** @type {Colours | null} */
let colours = null;

/** The colours of the theme in use. @returns {Colours} */
export function themeColours() {
  if (colours !== null) return colours;
  if (!probe.isConnected) document.body.append(probe);
  const read = (/** @type {string} */ name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  colours = /** @type {Colours} */ (Object.fromEntries(NAMES.map((name) => [name, read(name)])));
  return colours;
}

/**
 * Applies the chosen theme, and lets a button change it.
 * @param {HTMLElement} button
 */
export function setUpTheme(button) {
  const apply = (/** @type {string} */ theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    colours = null;
  };
  let theme = readTheme();
  apply(theme);
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    apply(theme);
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // Without storage, the choice is kept until the page is left.
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (colours = null));
}

function readTheme() {
  try {
    const theme = localStorage.getItem(KEY) ?? "auto";
    return THEMES.includes(theme) ? theme : "auto";
  } catch {
    return "auto";
  }
}
