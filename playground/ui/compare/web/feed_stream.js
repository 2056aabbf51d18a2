// The connection to the server's runs: one stream of the feed's lines while runs are in progress, and
// commands. A stream that breaks off continues after the last line that was read.

import { store } from "./store.js";

const RETRY = 1000; // ms until a stream that a proxy refused is opened again
const HIDE_DELAY = 1000; // ms; a page that is being closed is hidden too, but never gets there
const LOST = "The connection to the server was lost. Reconnecting …";
const GONE = "The server no longer has these runs: it was restarted, or has stored newer ones since. The text so far stays on this page.";

/** @param {string} path below the address of the feed */
function address(path) {
  return new URL(`runs/${store.feed}/${path}`, document.baseURI);
}

/** @param {string} command pause, play, step, stop, hide or leave */
export function command(command) {
  // Unlike a fetch, a beacon is also sent by a page that is being closed.
  if (store.feed) navigator.sendBeacon(address(command));
}

export function stopRuns() {
  command("stop");
  return [];
}

class FeedStream {
  constructor() {
    /** @type {EventSource | null} */
    this.source = null;
    this.retry = 0;
    this.hiding = 0;
    // A hidden tab holds no connection: all tabs share six of them.
    document.addEventListener("visibilitychange", () => {
      clearTimeout(this.hiding);
      if (document.hidden) this.hiding = setTimeout(() => this.#hide(), HIDE_DELAY);
      else if (!this.source && store.state !== "over") this.#connect();
    });
    addEventListener("pagehide", () => {
      if (store.state !== "over") command("leave");
    });
  }

  #hide() {
    if (!this.source) return;
    command("hide");
    this.#close();
  }

  /** @param {string} feed */
  open(feed) {
    store.openFeed(feed);
    this.#connect();
  }

  #connect() {
    this.#close();
    const source = new EventSource(address(`lines?from=${store.read}`));
    this.source = source;
    source.addEventListener("open", () => store.setStatus(store.status));
    source.addEventListener("message", ({ data, lastEventId }) => {
      const lines = data.split("\n");
      store.receive(Number(lastEventId) - lines.length, lines);
    });
    source.addEventListener("end", ({ data }) => {
      this.#close();
      if (data === "gone" && store.state !== "over") store.abandon(GONE);
    });
    source.addEventListener("error", () => this.#onError(source));
  }

  // The browser reconnects by itself, unless the answer was an error, for example of a proxy.
  /** @param {EventSource} source */
  #onError(source) {
    store.notify({ kind: "status", text: LOST, error: true });
    if (source.readyState === EventSource.CLOSED) this.retry = setTimeout(() => this.#connect(), RETRY);
  }

  #close() {
    clearTimeout(this.retry);
    this.source?.close();
    this.source = null;
  }
}

export const stream = new FeedStream();
