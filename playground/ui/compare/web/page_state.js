// What only the browser can do: keep the page's state over a reload, open a link, save a file, notice
// that the server restarted.

import { cards } from "./cards.js";
import { store } from "./store.js";
import { addressed, fields, restoreTab } from "./tabs.js";

/** @typedef {import("../../shared/web/dom.js").Component} Component */

const KEY = "decoding-playground";
const SAVE_TIME = 60_000; // ms in which the browser asks where to save a file
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
  const link = fields.get("s");
  const before = saved();
  const opened = link !== null && link !== before.followed;
  if (opened) save({ followed: link, state: link, tab: addressed(), feed: null });
  const marks = opened ? fields.get("look")?.split(".") : before.look;
  if (marks?.length === 2) store.setMarks({ background: marks[0], underline: marks[1] });
  const state = opened
    ? { state: link, tab: addressed() }
    : { state: before.state, tab: addressed() ?? before.tab, feed: before.feed };
  restoreTab(state.tab);
  if (state.state || ("feed" in state && state.feed)) trigger("arrived", state);
  if (fields.has("run") && (opened || !before.feed)) runWhenReady(); // again if the run was lost in a reload
}

// A link may ask for a run: once the model is loaded and the form is filled.
function runWhenReady() {
  const timer = setInterval(() => {
    const run = document.querySelector("#run");
    if (!(run instanceof HTMLButtonElement) || run.disabled || !cards.catalog) return;
    clearInterval(timer);
    run.click();
  }, 200);
}

/** @param {Record<string, string>} files texts by name */
function download(files) {
  for (const [name, text] of Object.entries(files)) {
    const anchor = document.createElement("a");
    anchor.href = URL.createObjectURL(new Blob([text]));
    anchor.download = name;
    anchor.click();
    setTimeout(() => URL.revokeObjectURL(anchor.href), SAVE_TIME);
  }
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

// Python saves the form when the visitor pauses. A script's clicks on tabs do not count: the form may not
// be restored yet.
/** @param {Component["trigger"]} trigger */
function watchForm(trigger) {
  let timer = 0;
  const restart = (/** @type {Event} */ { isTrusted }) => {
    if (!isTrusted) return;
    clearTimeout(timer);
    timer = setTimeout(() => trigger("changed"), IDLE);
  };
  for (const kind of ["input", "change", "click"]) document.addEventListener(kind, restart);
}

// Ctrl+Enter runs, wherever the focus is on the page with the columns.
function listenForRun() {
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    const run = document.querySelector("#run");
    if (run instanceof HTMLButtonElement && run.checkVisibility() && !run.disabled) run.click();
  });
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
    if (change.kind === "tab" || change.kind === "page") save({ tab: store.page === "compare" ? store.tab : store.page });
  });
  watchForm(trigger);
  checkServer();
  listenForRun();
  watch("value", read);
  read();
  restore(trigger);
}
