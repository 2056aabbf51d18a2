// What only the browser can do: keep the page's state over a reload, open a link, save a file, notice
// that the server restarted. The functions besides `mount` are called by event listeners in Python.

import { delayClicks } from "./delayed_clicks.js";
import { store } from "./store.js";

/** @typedef {import("../../shared/web/dom.js").Component} Component */

const KEY = "decoding-playground";
const IDLE = 1000; // ms without input after which Python reads the form
const CHECK_INTERVAL = 3000; // ms between two checks for a restarted server
const RESTARTED = "The server restarted. Reload this page to continue: your settings are kept; results are gone.";

/** @returns {Record<string, any>} */
function saved() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) ?? "{}");
  } catch {
    return {}; // storage may be blocked
  }
}

/** @param {Record<string, any>} entries */
function save(entries) {
  try {
    sessionStorage.setItem(KEY, JSON.stringify({ ...saved(), ...entries }));
  } catch {
    // Without storage, a reload starts from the defaults.
  }
}

/**
 * Restores the state of a link or of this tab. A link wins, unless this tab has opened it before.
 * @param {Component["trigger"]} trigger
 */
function restore(trigger) {
  const address = new URLSearchParams(location.hash.slice(1));
  const link = address.get("s");
  const before = saved();
  const opened = link !== null && link !== before.followed;
  if (opened) save({ followed: link, state: link, tab: address.get("tab"), feed: null });
  const marks = opened ? address.get("look")?.split(".") : before.look;
  if (marks?.length === 2) store.setMarks({ background: marks[0], underline: marks[1] });
  const state = opened
    ? { state: link, tab: address.get("tab") }
    : { state: before.state, tab: before.tab, feed: before.feed };
  if (state.tab) store.openTab(state.tab);
  if (state.state || ("feed" in state && state.feed)) trigger("arrived", state);
}

/** @param {{ url: string, name: string }} file */
function download({ url, name }) {
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
}

// A restarted server does not know this page, and Gradio notices only if an event is running.
function checkServer() {
  let checked = 0;
  const check = async () => {
    if (document.hidden || Date.now() - checked < CHECK_INTERVAL) return;
    checked = Date.now();
    try {
      const { app_id: now } = await (await fetch("gradio_api/app_id")).json();
      const { gradio_config: page } = /** @type {any} */ (globalThis);
      if (now !== page.app_id) store.notify({ kind: "status", text: RESTARTED, error: true });
    } catch {
      // The server is unreachable: Gradio says so and reconnects.
    }
  };
  document.addEventListener("visibilitychange", check);
  document.addEventListener("click", check);
}

// Python saves the form when the visitor pauses and no cards are being rendered: events of cards that
// are replaced are lost.
/** @param {Component["trigger"]} trigger */
function watchForm(trigger) {
  let timer = 0;
  const restart = () => {
    clearTimeout(timer);
    timer = setTimeout(() => (store.cardsReady ? trigger("changed") : restart()), IDLE);
  };
  for (const kind of ["input", "change", "click"]) document.addEventListener(kind, restart);
}

/** @param {Component} component */
export function mount({ trigger, props, watch }) {
  const read = () => {
    if (!props.value) return;
    const request = JSON.parse(props.value);
    if (request.keep) save(request.keep);
    if (request.save) download(request.save);
  };
  store.subscribe((change) => {
    if (change.kind === "column") save({ feed: store.feed });
    if (change.kind === "marks") save({ look: [store.marks.background, store.marks.underline] });
    if (change.kind === "tab") save({ tab: store.tab });
    // Triggered here, not by the cards: events of cards that were replaced meanwhile are lost.
    if (change.kind === "cards") trigger("drawn");
  });
  watchForm(trigger);
  checkServer();
  delayClicks();
  watch("value", read);
  read();
  restore(trigger);
  if (store.cardsReady) trigger("drawn"); // the cards were rendered while this script loaded
}

/**
 * A link to this page with a state, the token marks and the open results tab.
 * @param {string} state
 */
export function pageLink(state) {
  const { background, underline } = store.marks;
  const query = new URLSearchParams({ s: state, look: `${background}.${underline}`, tab: store.resultTab });
  return `${location.origin}${location.pathname}#${query}`;
}

/**
 * Counts a request to render the strategy cards and disables the two buttons that start runs: until the
 * cards are rendered, Python does not know their events.
 */
export function requestCards() {
  store.renders.requested += 1;
  const disabled = { __type__: "update", interactive: false };
  return [store.renders.requested, disabled, disabled];
}

/** @param {number} count the request that these cards answer */
export const cardsRendered = (count) => store.cardsRendered(count);

/** @param {string} tab */
export function openTab(tab) {
  store.openTab(tab);
  return [];
}

/** @param {string} background */
export function markBackground(background) {
  store.setMarks({ background });
}
