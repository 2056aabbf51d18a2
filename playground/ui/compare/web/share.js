// The Share button: copies a link that restores the page. Python encodes the form; the address, the token
// marks and the open tab are known here.

import { part } from "../../shared/web/dom.js";
import { store } from "./store.js";

/** @typedef {import("../../shared/web/dom.js").Component} Component */

const NOTE_TIME = 3000; // ms

/**
 * A link to the open page with a state, the token marks and the last tab with results.
 * @param {string} state
 * @param {boolean} run whether the page runs the comparison when it is opened
 */
function linkTo(state, run) {
  const { background, underline } = store.marks;
  const query = new URLSearchParams({ s: state, look: `${background}.${underline}`, tab: store.resultTab });
  return `${location.origin}${location.pathname}#${query}${run ? "&run" : ""}`;
}

/**
 * Copies a text that is still being made. Browsers allow this only if it starts with a visitor's click.
 * @param {Promise<string>} text
 */
async function copy(text) {
  const blob = text.then((content) => new Blob([content], { type: "text/plain" }));
  await navigator.clipboard.write([new ClipboardItem({ "text/plain": blob })]);
}

class Share {
  /** @param {Component} component */
  constructor({ element, trigger, props }) {
    this.props = props;
    this.trigger = trigger;
    this.element = element;
    /** @type {((link: string) => void) | null} resolves the link that was requested last */
    this.deliver = null;
    this.timer = 0;
    this.run = false;
    this.copyButton = part(element, "copy");
    this.moreButton = part(element, "more");
    this.menu = part(element, "menu");
    this.byHand = part(element, "by-hand");
    this.field = /** @type {HTMLInputElement} */ (part(element, "link"));
    this.note = part(element, "note");
    this.copyButton.addEventListener("click", () => this.#share(false));
    this.moreButton.addEventListener("click", () => this.#openMenu(this.menu.hidden !== false));
    part(element, "plain").addEventListener("click", () => this.#share(false));
    part(element, "running").addEventListener("click", () => this.#share(true));
    element.addEventListener("keydown", (event) => event.key === "Escape" && this.#close(true));
    document.addEventListener("pointerdown", ({ target }) => {
      if (target instanceof Node && !element.contains(target)) this.#close(false);
    });
    element.addEventListener("focusout", ({ relatedTarget }) => {
      if (relatedTarget instanceof Node && !element.contains(relatedTarget)) this.#close(false);
    });
    store.subscribe(({ kind }) => kind === "page" && this.#showPage());
    this.#showPage();
  }

  // Only the compare page can run when it is opened.
  #showPage() {
    this.moreButton.hidden = store.page !== "compare";
    this.#close(false);
  }

  /** @param {boolean} open */
  #openMenu(open) {
    this.#close(false);
    this.menu.hidden = !open;
    this.moreButton.setAttribute("aria-expanded", String(open));
    if (open) part(this.menu, "plain").focus();
  }

  /** @param {boolean} refocus */
  #close(refocus) {
    const open = !this.menu.hidden || !this.byHand.hidden;
    this.menu.hidden = true;
    this.byHand.hidden = true;
    this.moreButton.setAttribute("aria-expanded", "false");
    if (refocus && open) this.copyButton.focus();
  }

  /** @param {boolean} run */
  async #share(run) {
    const inMenu = this.menu.contains(document.activeElement);
    this.#close(false);
    if (inMenu) this.copyButton.focus();
    this.#showNote("");
    this.run = run;
    this.field.value = "";
    /** @type {Promise<string>} */
    const link = new Promise((resolve) => (this.deliver = resolve));
    this.trigger("requested");
    let copied = true;
    try {
      await copy(link);
    } catch {
      copied = false; // no permission, or a page that is not served over HTTPS
    }
    const text = await link;
    this.field.value = text;
    if (copied) return this.#showNote("Link copied");
    this.byHand.hidden = false;
    this.field.select();
  }

  /** @param {string} text */
  #showNote(text) {
    clearTimeout(this.timer);
    this.note.textContent = text;
    if (text) this.timer = setTimeout(() => this.#showNote(""), NOTE_TIME);
  }

  /** Reads the state that Python encoded. */
  read() {
    if (!this.props.value) return;
    this.deliver?.(linkTo(JSON.parse(this.props.value).state, this.run));
    this.deliver = null;
  }
}

/** @param {Component} component */
export function mount(component) {
  const share = new Share(component);
  component.watch("value", () => share.read());
}
