// The open page, the open tab of the dock, and the address that shows them.

import { store } from "./store.js";

const COMPARE = "compare"; // the page with the columns and the dock

// The paths of the other pages.
/** @type {Record<string, string>} */
const PATHS = { speculative: "race", watermark: "watermark" };

// The tabs of the pages and of the dock, as Gradio draws them.
const PAGES = "#pages > * > [role=tablist]";
const DOCK = "#tabs > * > [role=tablist]";

// The address shows the tabs that are open, from the moment on when they are: keep what was opened.
const opened = new URL(location.href);

/** The fields after # of the address that was opened. */
export const fields = new URLSearchParams(opened.hash.slice(1));

/** The page that this address names, or the tab of the compare page. */
export function addressed() {
  const path = opened.pathname.split("/").at(-1);
  return Object.keys(PATHS).find((name) => PATHS[name] === path) ?? fields.get("tab");
}

/**
 * Clicks a tab; a name that does not exist changes nothing.
 * @param {string} tabs a selector
 * @param {string} name
 */
function clickTab(tabs, name) {
  const found = /** @type {HTMLElement | null} */ (document.querySelector(`${tabs} [data-tab-id="${CSS.escape(name)}"]`));
  found?.click();
  return found;
}

/**
 * Opens a page, or a tab of the dock on the compare page.
 * @param {string} name
 * @returns the tab of the page
 */
export function showTab(name) {
  const page = clickTab(PAGES, name in PATHS ? name : COMPARE);
  if (!(name in PATHS)) clickTab(DOCK, name);
  return page;
}

/**
 * Opens a tab as soon as Gradio has drawn the tabs, whose script may be the last one to load. From then on store
 * and address follow the open tabs.
 * @param {string | null | undefined} name
 */
export function restoreTab(name) {
  const drawn = new MutationObserver(() => start());
  const start = () => {
    const lists = [PAGES, DOCK].map((tabs) => document.querySelector(tabs));
    if (lists.some((list) => !list?.querySelector("[aria-selected=true]"))) return false;
    drawn.disconnect();
    const selected = new MutationObserver(readTabs);
    for (const list of lists) if (list) selected.observe(list, { subtree: true, attributeFilter: ["aria-selected"] });
    if (name) showTab(name);
    setTimeout(readTabs); // after Gradio has opened the tab
    return true;
  };
  if (!start()) drawn.observe(document.body, { childList: true, subtree: true });
}

function readTabs() {
  const page = openIn(PAGES);
  const tab = openIn(DOCK);
  if (page && page !== store.page) store.openPage(page);
  if (tab && tab !== store.tab) store.openTab(tab);
  showAddress();
}

/** @param {string} tabs a selector */
const openIn = (tabs) => document.querySelector(`${tabs} [aria-selected=true]`)?.getAttribute("data-tab-id");

/** Shows the address of the open page, without loading it. */
function showAddress() {
  const url = new URL(PATHS[store.page] ?? "./", document.baseURI);
  url.search = location.search;
  if (store.page === COMPARE && store.tab !== "step") url.hash = `tab=${store.tab}`;
  history.replaceState(history.state, "", url);
}
