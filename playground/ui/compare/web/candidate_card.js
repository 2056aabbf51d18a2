// The candidate card: the alternatives to the token under the pointer or the focus, and continuing with
// one of them in a new column.

import { button, closest, make, placeCard } from "../../shared/web/dom.js";
import { counted, nats, percent, visible } from "../../shared/web/format.js";
import { partsOf } from "./characters.js";
import { forkBlocked } from "./forks.js";
import { listedMass } from "./step_distribution.js";
import { store } from "./store.js";
import { markOf } from "./token_marks.js";

/** @typedef {import("./columns.js").Column} Column */
/** @typedef {import("./store.js").Distribution} Distribution */
/** @typedef {import("./store.js").Place} Place */
/** @typedef {{ column: Column, at: number, place: Place }} Here */
/** @typedef {{ id: number, token: string, raw: number | null, final: number | null }} Candidate */
/** @typedef {{ token: number } | { text: string }} Replacement */

/**
 * @param {string} name
 * @param {number | null} probability
 */
function bar(name, probability) {
  const track = make("span", "bar " + name);
  const fill = make("i");
  fill.style.width = `${(probability ?? 0) * 100}%`;
  track.append(fill);
  return track;
}

/**
 * @param {Here} here
 * @returns {string[]}
 */
function factsOf({ place, column }) {
  const { distribution, notes } = place;
  if (!distribution) {
    return [
      place.given
        ? "Given by you: the model's probabilities at this position were not captured."
        : "Not captured: the custom strategy did not expose what this token was chosen from.",
    ];
  }
  const processed = distribution.processors.length > 0;
  const mass = listedMass(distribution);
  return [
    ...(place.given ? ["given by you; these were the model's candidates at this position"] : []),
    ...(place.rank === null ? [] : [`rank ${place.rank} in the model's own order`]),
    ...(place.raw === null && !place.given ? ["the model's own probability was not captured"] : []),
    `entropy ${nats(distribution.entropy, processed)}`,
    `${counted(distribution.kept, "token")} could have been chosen`,
    ...(mass === null ? [] : [`listed: ${percent(mass)} of the model's probability`]),
    ...(processed ? [`processors: ${distribution.processors.join(" → ")}`] : []),
    ...(typeof notes.green === "boolean" ? [markOf(place, "green")?.text ?? ""] : []),
    ...(notes.verdict === undefined ? [] : [markOf(place, "draft")?.text ?? notes.verdict]),
    ...replacedDraft(place, column),
  ];
}

/**
 * The draft that a resampled token replaced.
 * @param {Place} place
 * @param {Column} column
 */
function replacedDraft(place, column) {
  if (place.notes.verdict !== "resampled" || place.run !== column.run || place.step === null) return [];
  const { steps } = place.run;
  const parent = steps.get(place.step)?.parent;
  const lost = [...steps.values()].find((step) => step.parent === parent && step.notes.verdict === "rejected");
  return lost ? [`the draft had ${visible(lost.token)} here`] : [];
}

export class CandidateCard {
  /**
   * @param {HTMLElement} node
   * @param {HTMLElement} view the element that holds the columns
   * @param {(token: HTMLElement) => Column | undefined} columnOf
   * @param {(here: Here, replacement: Replacement) => void} onFork
   */
  constructor(node, view, columnOf, onFork) {
    this.node = node;
    this.view = view;
    this.columnOf = columnOf;
    this.onFork = onFork;
    /** @type {HTMLElement | null} the token that the card is about */
    this.token = null;
    this.pinned = false;
    this.timer = 0;
    node.tabIndex = -1;
    this.#listen();
  }

  get hidden() {
    return this.node.hidden;
  }

  #listen() {
    const { node, view } = this;
    const tokenAt = (/** @type {Event} */ event) => closest(event, ".token");
    // After a click that opens this page, a token may lie below the pointer, which has not moved.
    /** @type {PointerEvent | null} */
    let pressed = null;
    const isPressed = (/** @type {PointerEvent} */ { clientX, clientY }) =>
      pressed?.clientX === clientX && pressed.clientY === clientY;
    document.addEventListener("pointerdown", (event) => (pressed = event));
    document.addEventListener("pointermove", (event) => (pressed = isPressed(event) ? pressed : null));
    view.addEventListener("pointerover", (event) => {
      const token = tokenAt(event);
      if (isPressed(event)) return;
      if (event.target instanceof Node && node.contains(event.target)) clearTimeout(this.timer);
      else if (this.pinned) return;
      else if (token) this.show(token);
      else this.#hideSoon();
    });
    view.addEventListener("pointerleave", () => this.#hideSoon());
    view.addEventListener("focusin", (event) => {
      const token = tokenAt(event);
      if (token) this.show(token);
    });
    // Moving on with the keyboard leaves no card behind that covers the focus.
    view.addEventListener("focusout", ({ relatedTarget: next }) => {
      const stays = next instanceof Element && (node.contains(next) || next.closest(".token"));
      if ((next || !this.pinned) && !stays) this.hide();
    });
    node.addEventListener("keydown", (event) => this.#moveFocus(event));
    document.addEventListener("pointerdown", (event) => {
      const inside = event.target instanceof Node && node.contains(event.target);
      if (this.pinned && !inside && !tokenAt(event)) this.hide();
    });
    const leave = store.subscribe(({ kind }) => {
      if (!view.isConnected) leave();
      else if (kind === "replay" && store.replaying) this.hide();
    });
    const onScroll = (/** @type {Event} */ { target }) => {
      if (target !== node) this.#position();
    };
    addEventListener("scroll", onScroll, { passive: true, capture: true });
    addEventListener("resize", () => this.#position());
  }

  /**
   * A replay moves the tokens below the pointer and the focus: only a click opens the card then.
   * @param {HTMLElement} token
   */
  show(token, pinned = this.pinned) {
    clearTimeout(this.timer);
    if (store.replaying && !pinned) return;
    if (token === this.token && !this.node.hidden) {
      this.pinned = pinned;
      return;
    }
    this.token?.removeAttribute("aria-describedby");
    this.token = token;
    this.pinned = pinned;
    this.#fill();
    this.node.hidden = false;
    token.setAttribute("aria-describedby", this.node.id);
    this.#position();
  }

  hide() {
    clearTimeout(this.timer);
    this.pinned = false;
    this.node.hidden = true;
  }

  // After the pointer has left, the card returns to the token with the keyboard focus, if there is one.
  #hideSoon() {
    if (this.pinned) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      if (this.node.contains(document.activeElement)) return;
      const focused = this.view.querySelector(".token:focus-visible");
      if (focused instanceof HTMLElement) this.show(focused);
      else this.hide();
    }, 250);
  }

  /** Updates the buttons after runs began or ended, unless the user is typing in the card. */
  refresh() {
    if (this.node.hidden || this.node.contains(document.activeElement)) return;
    if (this.token?.isConnected) this.#fill();
    else this.hide();
  }

  /** Moves the focus into the card. */
  focus() {
    const first = this.node.querySelector(".chosen .fork:enabled, .fork:enabled, input:enabled");
    (first instanceof HTMLElement ? first : this.node).focus();
  }

  #position() {
    if (this.node.hidden || !this.token) return;
    if (!this.token.isConnected) return this.hide();
    const shown = this.columnOf(this.token)?.shownBy(this.token) ?? this.token;
    const ink = shown.lastElementChild ?? shown;
    const anchor = ink.getClientRects()[0] ?? shown.getBoundingClientRect();
    placeCard(this.node, anchor, 6);
    // A token that was scrolled away takes its card with it, so that it does not cover another view.
    const away = anchor.bottom < 0 || anchor.top > innerHeight;
    this.node.classList.toggle("away", away && !this.node.contains(document.activeElement));
  }

  /** @param {KeyboardEvent} event */
  #moveFocus(event) {
    const rows = [...this.node.querySelectorAll("button.fork")].filter((row) => row instanceof HTMLElement);
    const at = rows.findIndex((row) => row === document.activeElement);
    /** @type {Record<string, number>} */
    const moves = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 };
    const move = moves[event.key];
    if (event.key === "Escape") this.token?.focus();
    else if (at < 0 || move === undefined) return;
    else rows[Math.max(0, Math.min(move, rows.length - 1))].focus();
    event.preventDefault();
  }

  #fill() {
    const { token } = this;
    const column = token ? this.columnOf(token) : undefined;
    if (!token || !column) return;
    const at = column.tokens.indexOf(token);
    const here = { column, at, place: column.places[at] };
    const title = make("p", "where");
    title.append(make("b", "", visible(here.place.token)), ` token ${at + 1} of ${store.title(column.run)}`);
    const { distribution } = here.place;
    const rows = distribution ? [this.#table(here, distribution)] : [];
    this.node.replaceChildren(title, ...this.#parts(here), ...rows, this.#input(here), make("p", "facts", factsOf(here).join("\n")));
  }

  /**
   * The tokens of a character that is split over several of them; a click shows the candidates of one.
   * @param {Here} here
   */
  #parts({ column, at }) {
    const parts = partsOf(column.shares, at);
    if (!parts.length) return [];
    const line = make("p", "parts");
    line.append(make("b", "", column.shares[column.shares[at].whole].text.trim()), ` is ${parts.length} tokens:`);
    for (const part of parts) {
      const { token, raw } = column.places[part];
      const node = button("", visible(token), () => {
        store.select(part, { column: column.run.key, replay: store.cursor.replay });
        this.show(column.tokens[part], true);
      });
      node.title = percent(raw);
      node.setAttribute("aria-pressed", String(part === at));
      line.append(node);
    }
    return [line];
  }

  /**
   * @param {Here} here
   * @param {Distribution} distribution
   */
  #table(here, distribution) {
    const { place } = here;
    const processed = distribution.processors.length > 0;
    const grid = make("table");
    const head = make("tr");
    head.append(make("th", "", "continue with"), make("th"), make("th", "number", "model"));
    if (processed) head.append(make("th", "number", "as used"));
    grid.append(head);
    /** @type {Candidate[]} */
    const rows = distribution.candidates.map(([id, token, raw, final]) => ({ id, token, raw, final }));
    if (!rows.some((candidate) => candidate.id === place.tokenId)) {
      rows.push({ id: place.tokenId, token: place.token, raw: place.raw, final: place.final ?? (place.given ? null : 0) });
    }
    for (const candidate of rows) grid.append(this.#row(candidate, here, processed));
    return grid;
  }

  /**
   * @param {Candidate} candidate
   * @param {Here} here
   * @param {boolean} processed
   */
  #row(candidate, here, processed) {
    const chosen = candidate.id === here.place.tokenId;
    const cut = processed && candidate.final === 0;
    const line = make("tr", chosen ? "chosen" : "");
    line.classList.toggle("cut", cut);
    const name = make("th", "", chosen ? "▸ " : "");
    name.append(this.#forkButton(candidate, here));
    const bars = make("td", "bars");
    bars.append(bar("raw", candidate.raw), ...(processed ? [bar("final", candidate.final)] : []));
    line.append(name, bars, make("td", "number", percent(candidate.raw)));
    if (processed) line.append(make("td", "number", cut ? "cut" : percent(candidate.final)));
    return line;
  }

  /**
   * @param {Candidate} candidate
   * @param {Here} here
   */
  #forkButton({ id, token }, here) {
    const node = button("fork", visible(token), () => this.#fork(here, { token: id }));
    node.tabIndex = -1; // the arrow keys move through the rows
    node.disabled = forkBlocked() !== "";
    node.title = forkBlocked() || "Continue with this token in a new column";
    node.setAttribute("aria-label", `Continue with ${visible(token)}`);
    return node;
  }

  /**
   * A field for a text in the place of the token.
   * @param {Here} here
   */
  #input(here) {
    const form = make("form", "typing");
    const label = make("label", "", "or type");
    const field = make("input");
    field.id = "live-typing";
    label.htmlFor = field.id;
    field.autocomplete = "off";
    field.placeholder = "your own text, with its leading space";
    const go = make("button", "", "Continue");
    go.type = "submit";
    go.title = forkBlocked() || "Continue with your text in a new column";
    field.disabled = go.disabled = forkBlocked() !== "";
    form.append(label, field, go);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (field.value) this.#fork(here, { text: field.value });
    });
    return form;
  }

  /**
   * @param {Here} here
   * @param {Replacement} replacement
   */
  #fork(here, replacement) {
    if (forkBlocked()) return;
    this.onFork(here, replacement);
  }
}
