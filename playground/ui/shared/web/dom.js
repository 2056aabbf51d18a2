// Creates elements. Text from users and models only ever becomes textContent.

/**
 * What Gradio hands to the script of a gr.HTML component.
 * @typedef {object} Component
 * @property {HTMLElement} element the component's own element, filled from its template
 * @property {(event: string, data?: object) => void} trigger fires an event that Python listens to
 * @property {{ value: string }} props
 * @property {(prop: string, callback: () => void) => void} watch
 */

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {string} [className]
 * @param {string} [text]
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

/**
 * @param {string} className
 * @param {string | undefined} text
 * @param {() => void} onClick
 */
export function button(className, text, onClick) {
  const node = make("button", className, text);
  node.type = "button";
  node.addEventListener("click", onClick);
  return node;
}

/**
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, string | number>} [attributes]
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function svg(tag, attributes = {}) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  return node;
}

/**
 * The first element with a class; templates are constant, so it is there.
 * @param {ParentNode} parent
 * @param {string} className
 */
export function part(parent, className) {
  const found = parent.querySelector(`.${className}`);
  if (!(found instanceof HTMLElement)) throw new Error(`the template has no element .${className}`);
  return found;
}

/**
 * The nearest ancestor of an event's target that matches a selector.
 * @param {Event} event
 * @param {string} selector
 */
export function closest(event, selector) {
  const found = event.target instanceof Element ? event.target.closest(selector) : null;
  return found instanceof HTMLElement ? found : null;
}

/** Whether the visitor prefers reduced motion. */
export const reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

const INTERVAL = 200; // ms between two drawings

/**
 * Gives a function that requests a drawing: at most one every 200 ms, and only while the view is
 * visible. What was requested while the view was hidden is drawn when it is shown.
 * @param {HTMLElement} element
 * @param {() => void} draw
 */
export function drawWhenVisible(element, draw) {
  let last = 0;
  let timer = 0;
  let visible = false;
  const now = () => {
    timer = 0;
    if (!visible && !element.offsetParent) return;
    last = performance.now();
    draw();
  };
  const request = () => {
    timer ||= setTimeout(now, Math.max(0, last + INTERVAL - performance.now()));
  };
  new IntersectionObserver((entries) => {
    const shown = entries.at(-1)?.isIntersecting ?? false;
    if (shown && !visible) request();
    visible = shown;
  }).observe(element);
  return request;
}

const MARGIN = 8; // px between a floating card and the window's edges
const LEAST_HEIGHT = 80; // px of a floating card that scrolls

/**
 * Positions a floating card below an anchor if it fits there, else on the side with more room, and never
 * outside the window or below its scroll bars. A card that is too tall for either side scrolls.
 * @param {HTMLElement} card
 * @param {DOMRect} anchor
 * @param {number} gap
 */
export function placeCard(card, anchor, gap) {
  card.style.maxHeight = "";
  const size = card.getBoundingClientRect();
  const { clientWidth: width, clientHeight: height } = document.documentElement;
  const below = height - MARGIN - anchor.bottom - gap;
  const above = anchor.top - gap - MARGIN;
  const under = size.height <= below || below >= above;
  const tall = Math.min(size.height, Math.max(under ? below : above, LEAST_HEIGHT));
  const top = under ? anchor.bottom + gap : anchor.top - gap - tall;
  if (tall < size.height) card.style.maxHeight = `${tall}px`;
  card.style.left = `${Math.max(MARGIN, Math.min(anchor.left, width - size.width - MARGIN))}px`;
  card.style.top = `${Math.max(MARGIN, Math.min(top, height - tall - MARGIN))}px`;
}
