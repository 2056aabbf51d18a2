// Delays clicks on buttons that read the strategy cards until the cards are rendered: before that,
// Python does not know their events and a click would be lost.

import { store } from "./store.js";

const BUTTONS = "#run, #step, #add, #make-link";
const LONGEST_DELAY = 20_000; // ms; a later click would surprise the visitor

export function delayClicks() {
  let timer = 0;

  /** @param {HTMLButtonElement} button */
  const clickWhenReady = (button, until = Date.now() + LONGEST_DELAY) => {
    clearTimeout(timer);
    if (store.cardsReady && !button.disabled) button.click();
    else if (Date.now() < until) timer = setTimeout(clickWhenReady, 30, button, until);
  };

  /**
   * @param {Event} event
   * @param {Element | null | undefined} button
   */
  const delay = (event, button) => {
    if (!(button instanceof HTMLButtonElement) || store.cardsReady) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    clickWhenReady(button);
  };

  /** @param {Event} event */
  const target = (event) => (event.target instanceof Element ? event.target : undefined);
  document.addEventListener("click", (event) => delay(event, target(event)?.closest(BUTTONS)), true);
  document.addEventListener("keydown", (event) => {
    const runs = event.key === "Enter" && event.shiftKey && target(event)?.closest("#prompt");
    if (runs) delay(event, document.querySelector("#run"));
  }, true);
}
