// Reads the catalog of strategies from a hidden component, which Python fills when a model is loaded.

import { cards } from "./cards.js";

/** @typedef {import("../../shared/web/dom.js").Component} Component */

/** @param {Component} component */
export function mount({ props, watch }) {
  const read = () => {
    if (props.value) cards.setCatalog(JSON.parse(props.value));
  };
  watch("value", read);
  read();
}
