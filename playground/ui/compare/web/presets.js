// The examples: a chip for each, and the sentence of the one that was chosen. The sentence holds for the
// example's own prompt and settings, and goes when the visitor changes them.

import { button, closest, part } from "../../shared/web/dom.js";
import { store } from "./store.js";
import { showTab } from "./tabs.js";

/** @typedef {import("../../shared/web/dom.js").Component} Component */

/**
 * @typedef {object} Spot where the effect shows: a column's text, one of its tokens, a figure of every
 *   column or, if nothing is given, the open view
 * @property {number | null} column
 * @property {number | null} token
 * @property {string} figure
 *
 * @typedef {object} Preset
 * @property {string} title
 * @property {string} point
 * @property {string} colour
 * @property {string} tab the view that shows the effect
 * @property {Spot} spot
 * @property {string} reason why it does not work with the loaded model; empty if it does
 */

const FORM = "#bar, #shared, .card-editor";

/**
 * The elements of a spot.
 * @param {Spot} spot
 */
function elementsOf({ column, token, figure }) {
  if (figure) {
    const pairs = [...document.querySelectorAll("#live .figures div")];
    const named = pairs.filter((pair) => pair.querySelector("dt button")?.textContent === figure);
    const more = document.querySelector("#live .more");
    if (named[0]?.checkVisibility() === false && more instanceof HTMLElement) more.click();
    return named;
  }
  if (column === null) return [...document.querySelectorAll("#tabs > .tabitem:not([style*='none'])")];
  const text = `#live .column[data-index="${column}"] .text`;
  const found = token === null ? document.querySelector(text) : document.querySelectorAll(`${text} .token`)[token];
  return found ? [found] : [];
}

class Presets {
  /** @param {Component} component */
  constructor(component) {
    this.component = component;
    this.chips = part(component.element, "chips");
    this.point = part(component.element, "point");
    /** @type {Preset[]} */
    this.list = [];
    /** @type {number | null} */
    this.chosen = null;
    component.watch("value", () => this.#draw());
    this.#draw();
    for (const kind of ["input", "change"]) {
      document.addEventListener(kind, (event) => {
        // Python fills the form too, but only a visitor's events are trusted.
        if (event.isTrusted && closest(event, FORM)) this.#choose(null);
      });
    }
    store.subscribe((change) => {
      if (change.kind === "reset") this.#ring([]);
      if (change.kind === "state" && store.state === "over") requestAnimationFrame(() => this.#showSpot());
    });
  }

  #draw() {
    this.list = JSON.parse(this.component.props.value || "[]");
    const chips = this.list.map(({ title, point, reason }, index) => {
      const chip = button("chip", title, () => this.#onClick(index));
      chip.title = reason ? `Not with this model: ${reason}` : point;
      chip.setAttribute("aria-pressed", String(index === this.chosen));
      if (reason) chip.setAttribute("aria-disabled", "true");
      return chip;
    });
    this.chips.replaceChildren(part(this.chips, "title"), ...chips);
  }

  /** @param {number} index */
  #onClick(index) {
    const { colour, tab, reason } = this.list[index];
    if (reason) {
      store.setStatus({ text: `This example does not work with this model: ${reason}`, error: true });
      return;
    }
    this.#choose(index);
    store.setMarks({ background: colour });
    showTab(tab);
    this.component.trigger("chosen", { index });
  }

  /** @param {number | null} index */
  #choose(index) {
    if (index === this.chosen) return;
    this.chosen = index;
    this.#ring([]);
    [...this.chips.querySelectorAll(".chip")].forEach((chip, at) => chip.setAttribute("aria-pressed", String(at === index)));
    this.point.hidden = index === null;
    this.point.textContent = index === null ? "" : this.list[index].point;
  }

  // Once the runs are over, the spot that the sentence speaks of is outlined.
  #showSpot() {
    if (this.chosen === null) return;
    const { spot } = this.list[this.chosen];
    this.#ring(elementsOf(spot));
  }

  /** @param {Element[]} elements */
  #ring(elements) {
    for (const old of document.querySelectorAll(".spot")) old.classList.remove("spot");
    for (const element of elements) element.classList.add("spot");
    elements[0]?.scrollIntoView({ block: "nearest" });
  }
}

/** @param {Component} component */
export function mount(component) {
  new Presets(component);
}
