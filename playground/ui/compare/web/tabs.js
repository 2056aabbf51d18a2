// The open page, the open tab of the dock, and the address that shows them.

import { store } from "./store.js";

// The paths of the pages; the compare page has none.
/** @type {Record<string, string>} */
const PATHS = { speculative: "race", watermark: "watermark" };

// Gradio reports the tabs that are open at first, and then the address shows those: keep what was opened.
const opened = new URL(location.href);

/** The fields after # of the address that was opened. */
export const fields = new URLSearchParams(opened.hash.slice(1));

/** The page that this address names, or the tab of the compare page. */
export function addressed() {
  const path = opened.pathname.split("/").at(-1);
  return Object.keys(PATHS).find((name) => PATHS[name] === path) ?? fields.get("tab");
}

/**
 * Clicks a tab. Its id in Python is the first word of its title.
 * @param {string} tabs a selector
 * @param {string} name
 */
function clickTab(tabs, name) {
  const all = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(`${tabs} [role=tab]`));
  const found = [...all].find((tab) => tab.textContent?.trim().toLowerCase().split(" ")[0] === name);
  found?.click();
  return found;
}

/**
 * Opens a page, or a tab of the dock on the compare page; a name that does not exist changes nothing.
 * @param {string} name
 * @returns the tab of the page
 */
export function showTab(name) {
  const page = clickTab("#pages", name in PATHS ? name : "compare");
  if (!(name in PATHS)) clickTab("#tabs", name);
  return page;
}

/** Shows the address of the open page, without loading it. */
function showAddress() {
  const url = new URL(PATHS[store.page] ?? "./", document.baseURI);
  url.search = location.search;
  if (store.page === "compare" && store.tab !== "step") url.hash = `tab=${store.tab}`;
  history.replaceState(history.state, "", url);
}

// Event listeners in Python call the functions below.

/** @param {string} tab a tab of the dock */
export function openTab(tab) {
  store.openTab(tab);
  showAddress();
  return [];
}

/** @param {string} page */
export function openPage(page) {
  store.openPage(page);
  showAddress();
  return [];
}
