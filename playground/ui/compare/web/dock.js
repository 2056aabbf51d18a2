// The dock below the columns: its upper edge resizes it, and it can be folded to its tabs. It starts
// folded, and unfolds when a tab or a token is chosen.

import { closest, part } from "../../shared/web/dom.js";
import { store } from "./store.js";

/** @typedef {import("../../shared/web/dom.js").Component} Component */

const KEY = "decoding-playground-dock";
const LEAST = 120; // px
const DEFAULT_SHARE = 0.42; // of the window's height
const STEP = 32; // px for a key

/** @returns {number | null} the height that was chosen last */
function savedHeight() {
  try {
    return Number(localStorage.getItem(KEY)) || null;
  } catch {
    return null; // storage may be blocked
  }
}

class Dock {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.root = /** @type {HTMLElement} */ (element.closest("#dock"));
    this.edge = part(element, "edge");
    this.button = part(element, "fold");
    const height = savedHeight();
    this.resize(height ?? DEFAULT_SHARE * innerHeight);
    // A link or a reload may have opened a tab before.
    this.fold(store.tab === "step");
    this.button.addEventListener("click", () => this.fold(!this.folded));
    this.edge.addEventListener("pointerdown", (event) => this.#drag(event));
    this.edge.addEventListener("keydown", (event) => this.#onKey(event));
    this.root.addEventListener("click", (event) => {
      // A script opens tabs too, but only a visitor's events are trusted.
      if (event.isTrusted && closest(event, "[role=tab]")) this.fold(false);
    });
    store.subscribe((change) => {
      if (change.kind === "tab" && store.tab !== "step") this.fold(false);
      if (change.kind !== "cursor" || store.cursor.at === null || !this.folded) return;
      this.fold(false);
      document.querySelector("#live .token:focus")?.scrollIntoView({ block: "nearest" });
    });
  }

  get folded() {
    return this.root.classList.contains("folded");
  }

  /** @param {boolean} folded */
  fold(folded) {
    this.root.classList.toggle("folded", folded);
    this.button.textContent = folded ? "Show" : "Hide";
    this.button.setAttribute("aria-expanded", String(!folded));
    this.button.setAttribute("aria-label", `${folded ? "Show" : "Hide"} the views of the results`);
    // Tokens that are scrolled into view are not behind the dock.
    document.documentElement.style.scrollPaddingBottom = `${this.root.offsetHeight + 8}px`;
  }

  /** @param {number} height */
  resize(height) {
    const most = Math.max(LEAST, innerHeight - 160);
    const now = Math.round(Math.max(LEAST, Math.min(height, most)));
    this.root.style.setProperty("--dock-height", `${now}px`);
    this.edge.setAttribute("aria-valuenow", String(now));
    return now;
  }

  /** @param {number} height */
  #save(height) {
    try {
      localStorage.setItem(KEY, String(this.resize(height)));
    } catch {
      // Without storage, the next visit starts with the default.
    }
  }

  /** @param {PointerEvent} event */
  #drag(event) {
    event.preventDefault();
    this.fold(false);
    this.edge.setPointerCapture(event.pointerId);
    const bottom = this.root.getBoundingClientRect().bottom;
    const move = (/** @type {PointerEvent} */ { clientY }) => this.resize(bottom - clientY);
    this.edge.addEventListener("pointermove", move);
    this.edge.addEventListener("pointerup", ({ clientY }) => {
      this.edge.removeEventListener("pointermove", move);
      this.#save(bottom - clientY);
    }, { once: true });
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    const by = { ArrowUp: STEP, ArrowDown: -STEP }[event.key];
    if (!by) return;
    event.preventDefault();
    this.fold(false);
    this.#save(this.root.getBoundingClientRect().height + by);
  }
}

/** @param {Component} component */
export function mount({ element }) {
  new Dock(element);
}
