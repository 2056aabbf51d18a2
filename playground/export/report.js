// Shows a card with the candidates of the token that is hovered or focused, and draws the figures.
// All texts come from the JSON in the page and are only ever inserted as text.

import { closest, make } from "../ui/shared/web/dom.js";

/** @typedef {number | null} Value null where it was not captured */
/** @typedef {[token: string, raw: Value, final: Value, chosen: boolean]} Candidate */
/** @typedef {{ token: string, event: string, seen: false }} UncapturedStep */

/**
 * @typedef {object} CapturedStep
 * @property {string} token
 * @property {string} event
 * @property {true} seen
 * @property {Value} rank
 * @property {Value} raw
 * @property {Value} final
 * @property {Value[]} entropy before and after the processors
 * @property {number} kept
 * @property {Candidate[]} candidates
 */

/** @type {{ react(plot: HTMLElement, data: object[], layout: object, config: object): void }} */
const Plotly = /** @type {any} */ (globalThis).Plotly;

/** @param {string} id */
function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the report has no element #${id}`);
  return found;
}

/** @type {(CapturedStep | UncapturedStep)[][]} */
const runs = JSON.parse(byId("runs").textContent ?? "");
/** @type {Record<string, { data: object[], layout: { meta?: { min_width?: number } } }>} */
const figures = JSON.parse(byId("figures").textContent ?? "");
const card = byId("card");

const NOT_CAPTURED = "not captured";

/** @param {Value} p */
const percent = (p) => {
  if (p === null) return NOT_CAPTURED;
  return p && p < 0.001 ? p.toExponential(1) : (100 * p).toFixed(1) + "%";
};
/** @param {Value} p */
const used = (p) => (p === 0 ? "cut" : percent(p));
/** @param {Value} entropy */
const nats = (entropy) => (entropy === null ? NOT_CAPTURED : entropy.toFixed(2));

/**
 * @param {"td" | "th"} cell
 * @param {string[]} texts
 */
function row(cell, texts, chosen = false) {
  const made = make("tr");
  made.classList.toggle("chosen", chosen);
  made.append(...texts.map((text) => make(cell, "", text)));
  return made;
}

/** @param {CapturedStep | UncapturedStep} step */
function fill(step) {
  const name = make("p");
  if (!step.seen) {
    name.append(make("strong", "", step.token), ` ${step.event}`);
    card.replaceChildren(name, make("p", "", `${NOT_CAPTURED}: the distribution was not recorded`));
    return;
  }
  const rank = step.rank === null ? `rank ${NOT_CAPTURED}` : `rank ${step.rank} under the model`;
  name.append(make("strong", "", step.token), ` ${step.event}, ${rank}`);
  const [before, after] = step.entropy.map(nats);
  const table = make("table");
  table.append(
    make("caption", "", "most probable candidates"),
    row("th", ["token", "model", "as used"]),
    ...step.candidates.map(([text, raw, final, chosen]) =>
      row("td", [(chosen ? "▸ " : "") + text, percent(raw), used(final)], chosen)),
  );
  card.replaceChildren(
    name,
    make("p", "", `model ${percent(step.raw)}, as used ${used(step.final)}`),
    make("p", "", `entropy ${before} nats, as used ${after}`),
    make("p", "", `${step.kept.toLocaleString("en")} tokens left after processing`),
    table,
  );
}

/** @param {HTMLElement} token */
function place(token) {
  // The last line, if a line break divides the token.
  const around = [...token.getClientRects()].at(-1) ?? token.getBoundingClientRect();
  const room = document.documentElement.clientWidth - card.offsetWidth - 8;
  const below = around.bottom + card.offsetHeight <= window.innerHeight || around.top < card.offsetHeight;
  card.style.left = `${window.scrollX + Math.max(8, Math.min(around.left, room))}px`;
  card.style.top = `${window.scrollY + (below ? around.bottom : around.top - card.offsetHeight)}px`;
}

/** @type {HTMLElement | null} */
let shown = null;

/** @param {HTMLElement | null} token */
function show(token) {
  if (token === shown) return;
  shown?.removeAttribute("aria-describedby");
  shown = token;
  card.hidden = !token;
  if (!token) return;
  const run = Number(token.parentElement?.dataset.run);
  fill(runs[run][Number(token.dataset.step)]);
  place(token);
  token.setAttribute("aria-describedby", "card");
}

/** @param {Event} event */
const tokenAt = (event) => closest(event, ".token");

document.addEventListener("mouseover", (event) => {
  const token = tokenAt(event);
  if (token) show(token);
  else if (shown !== document.activeElement && !closest(event, "#card")) show(null);
});
document.addEventListener("focusin", (event) => show(tokenAt(event)));
document.addEventListener("focusout", () => show(null));
document.addEventListener("click", (event) => tokenAt(event)?.focus());

// One tab stop per text; arrows, Home and End move within it.
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") show(null);
  const token = tokenAt(event);
  if (!token) return;
  const tokens = [...(token.parentElement?.children ?? [])].filter((node) => node instanceof HTMLElement);
  const at = tokens.indexOf(token);
  const last = tokens.length - 1;
  /** @type {Record<string, number>} */
  const moves = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: last };
  const target = moves[event.key];
  if (target === undefined) return;
  const next = tokens[Math.max(0, Math.min(last, target))];
  token.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
  event.preventDefault();
});

function draw() {
  const ink = getComputedStyle(document.body).color;
  const touch = matchMedia("(pointer: coarse)").matches;
  const config = {
    responsive: true,
    displaylogo: false,
    displayModeBar: touch ? false : "hover",
    showSendToCloud: false,
    plotlyServerURL: "",
    typesetMath: false,
  };
  for (const [id, { data, layout }] of Object.entries(figures)) {
    const plot = byId(id);
    plot.style.minWidth = `${layout.meta?.min_width ?? 0}px`;
    // On a touch screen dragging scrolls the page.
    const own = { ...layout, font: { color: ink }, ...(touch && { dragmode: false }) };
    Plotly.react(plot, data, own, config);
  }
}

draw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
