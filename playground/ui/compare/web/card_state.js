// Keeps the cards in the value of a hidden component, where Python reads and replaces them.

import { cards } from "./cards.js";

/** @typedef {import("../../shared/web/dom.js").Component} Component */

/** @param {Component} component */
export function mount({ props, watch }) {
  let written = "";
  const read = () => {
    if (!props.value || props.value === written) return;
    cards.replace(JSON.parse(props.value));
  };
  cards.subscribe(() => {
    written = JSON.stringify(cards.known);
    if (written !== props.value) props.value = written;
  });
  watch("value", read);
  read();
}
