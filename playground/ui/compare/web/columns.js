// One column: a run's text token by token, its title, and its figures when the run is over.

import { button, make, placeCard, reducedMotion } from "../../shared/web/dom.js";
import { visible } from "../../shared/web/format.js";
import { nameOf, partsOf, sharesOf } from "./characters.js";
import { ColumnPrompt } from "./column_prompt.js";
import { forkBlocked, originText } from "./forks.js";
import { RECEIVERS } from "./hand_over.js";
import { store } from "./store.js";
import { accessibleName, markOf, stripes } from "./token_marks.js";

/** @typedef {import("./characters.js").Share} Share */
/** @typedef {import("./store.js").End} End */
/** @typedef {import("./store.js").Place} Place */
/** @typedef {import("./store.js").Returned} Returned */
/** @typedef {import("./store.js").Run} Run */
/** @typedef {import("./store.js").Step} Step */

const RIGHT_TO_LEFT = /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;
const FIRST_FIGURES = 3; // shown at once; the others on demand
const MOST_ANIMATED = 24; // more new tokens at once appear without an animation

/**
 * Whether a draft is not in the text.
 * @param {Step} step
 */
export const discarded = (step) => step.notes.verdict === "rejected" || step.notes.verdict === "ignored";

/**
 * @param {Place} one
 * @param {Place | undefined} other
 */
const sameToken = (one, other) =>
  other !== undefined && one.run === other.run && one.step === other.step && one.tokenId === other.tokenId;

/**
 * @param {Share} one
 * @param {Share} other
 */
const sameShare = (one, other) => one.text === other.text && one.first === other.first && one.whole === other.whole;

/**
 * One figure below a text; its help appears on hover or focus.
 * @param {[name: string, value: string, help?: string]} figure
 * @param {string} id
 * @param {boolean} first
 */
function figureOf([name, value, help], id, first) {
  const pair = make("div");
  const term = make("dt");
  pair.append(term, make("dd", "", value));
  if (!help) {
    term.textContent = name;
    return pair;
  }
  const tip = make("span", "tip", help);
  tip.id = `live-help-${id}`;
  tip.setAttribute("role", "tooltip");
  const label = button("", name, () => {});
  if (!first) label.tabIndex = -1; // the arrow keys reach the others
  label.setAttribute("aria-describedby", tip.id);
  tip.hidden = true;
  for (const kind of ["pointerenter", "focus"]) {
    label.addEventListener(kind, () => {
      tip.hidden = false;
      placeCard(tip, label.getBoundingClientRect(), 2);
    });
  }
  for (const kind of ["pointerleave", "blur"]) label.addEventListener(kind, () => (tip.hidden = true));
  term.append(label, tip);
  return pair;
}

export class Column {
  /**
   * @param {Run} run
   * @param {{ edit: (column: Column) => void, hide: (column: Column) => void, showFigures: () => void,
   *   send: (column: Column, page: string) => void }} actions
   */
  constructor(run, actions) {
    this.run = run;
    /** @type {Place[]} what is shown, and the elements that show it */
    this.places = [];
    /** @type {Share[]} the characters that each of them shows */
    this.shares = [];
    /** @type {HTMLElement[]} */
    this.tokens = [];
    /** @type {End | null} the end whose figures are shown */
    this.shownEnd = null;
    /** @type {HTMLFormElement | null} */
    this.editor = null;
    /** @type {HTMLElement | undefined} the token that Tab reaches */
    this.tabStop = undefined;
    /** @type {HTMLElement | undefined} */
    this.current = undefined;
    this.root = make("section", "column");
    this.root.tabIndex = -1;
    this.state = make("span", "state");
    const title = make("h3", "", run.name);
    if (run.origin !== null) title.append(make("span", "badge", store.forkName(run)));
    title.append(this.state);
    this.text = make("div", "text");
    this.text.setAttribute("role", "listbox");
    this.text.setAttribute("aria-orientation", "horizontal");
    this.prompt = new ColumnPrompt(run);
    this.text.append(this.prompt.tail);
    this.sequences = make("div", "sequences");
    this.figures = make("dl", "figures");
    this.actions = make("div", "actions");
    this.actions.hidden = true;
    this.editButton = button("edit", "Edit text", () => actions.edit(this));
    this.moreButton = button("more", "All figures", () => actions.showFigures());
    this.actions.append(this.moreButton, this.editButton);
    if (run.origin !== null) this.actions.append(button("away", "Hide", () => actions.hide(this)));
    const origin = run.origin === null ? [] : [make("p", "origin", originText(run))];
    const settings = make("p", "settings", run.settings);
    this.head = make("div", "head");
    this.tools = make("div", "tools");
    /** @type {Map<string, HTMLButtonElement>} by the page that they open */
    this.senders = new Map(
      RECEIVERS.map(({ page, label }) => [page, button("send", label, () => actions.send(this, page))]),
    );
    this.tools.append(...this.senders.values());
    this.head.append(title, this.tools, settings, ...origin);
    this.root.append(this.head, this.prompt.line, this.text, this.sequences, this.figures, this.actions);
    this.root.setAttribute("aria-label", store.title(run));
    this.text.setAttribute("aria-label", `Tokens of ${store.title(run)}, ${run.settings}`);
  }

  /** @param {boolean} animated */
  update(animated) {
    const state = store.state === "paused" && !this.run.end ? "paused" : this.run.state;
    if (this.root.dataset.state !== state) {
      this.state.textContent = state;
      this.root.dataset.state = state;
    }
    this.#show(store.shown(this.run), animated);
    if (this.run.end && this.shownEnd !== this.run.end) this.#finish(this.run.end);
    this.#pressSequence();
    this.refreshActions();
  }

  refreshActions() {
    const blocked = forkBlocked();
    this.actions.hidden = !this.run.end || this.editor !== null;
    this.editButton.disabled = blocked !== "";
    this.editButton.title = blocked || "Change the text and continue from there in a new column";
    for (const { page, about } of RECEIVERS) {
      const sender = this.senders.get(page);
      if (!sender) continue;
      sender.hidden = !this.run.end?.sequences.length;
      sender.title = `${about} ${store.title(this.run)}`;
      sender.setAttribute("aria-label", sender.title);
    }
  }

  /**
   * Keeps the tokens that the text shares with the one before and replaces the rest.
   * @param {Place[]} places
   * @param {boolean} animated
   */
  #show(places, animated) {
    let same = 0;
    while (same < places.length && sameToken(places[same], this.places[same])) same++;
    const before = { places: this.places, shares: this.shares };
    this.places = places;
    this.shares = sharesOf(places);
    for (let at = 0; at < same; at++) {
      // A character may be complete now, or not any more. A step that was sent again has new notes.
      if (!sameShare(this.shares[at], before.shares[at])) this.#write(at);
      else if (places[at].notes === before.places[at].notes) continue;
      this.#paint(at);
      if (this.shares[at].whole < same) this.#paint(this.shares[at].whole);
    }
    const removed = this.tokens.splice(same);
    const focused = document.activeElement instanceof HTMLElement && removed.includes(document.activeElement);
    if (removed.length) this.#remove(removed, same < places.length);
    const added = places.slice(same).map((place, i) => this.#token(place, same + i));
    this.tokens.push(...added);
    added.forEach((_, i) => {
      this.#write(same + i);
      this.#paint(same + i);
    });
    const batch = document.createDocumentFragment();
    batch.append(...added);
    this.text.insertBefore(batch, this.text.querySelector("del.revised"));
    if (animated && added.length && added.length < MOST_ANIMATED && !reducedMotion()) {
      const own = added.filter((_, i) => same + i >= this.run.before.length);
      for (const token of own) token.animate([{ opacity: 0 }, { opacity: 1 }], { duration: 150 });
    }
    const near = this.tokens[Math.min(same, this.tokens.length - 1)];
    if (focused || !this.tabStop?.isConnected) this.moveTabStop(near, focused);
  }

  /**
   * @param {HTMLElement[]} removed
   * @param {boolean} revised other tokens take their place
   */
  #remove(removed, revised) {
    const text = removed.map((token) => token.textContent).join("");
    removed.forEach((token) => token.remove());
    if (revised) this.#fadeOut(text, "revised", null);
  }

  /**
   * Shows struck-out text for a moment.
   * @param {string} text
   * @param {string} kind
   * @param {Node | null} before
   */
  #fadeOut(text, kind, before) {
    this.text.querySelectorAll("del." + kind).forEach((old) => old.remove());
    if (reducedMotion() || !text.trim()) return;
    const struck = make("del", kind, text.replaceAll("\n", "⏎"));
    struck.setAttribute("aria-hidden", "true");
    this.text.insertBefore(struck, before);
    const fading = struck.animate([{ opacity: 1 }, { opacity: 0.8, offset: 0.5 }, { opacity: 0 }], { duration: 1100 });
    fading.onfinish = () => struck.remove();
  }

  /**
   * Shows discarded drafts for a moment, before the token that replaced them.
   * @param {Step[]} steps
   */
  strikeDrafts(steps) {
    const drafts = steps.filter(discarded);
    if (!drafts.length) return;
    const [{ parent }] = drafts;
    const isParent = (/** @type {Place} */ place) => place.run === this.run && place.step === parent;
    const at = parent === null ? this.run.before.length : 1 + this.places.findLastIndex(isParent);
    if (at === 0 && parent !== null) return; // not in the text that is shown
    this.#fadeOut(drafts.map((step) => step.text).join(""), "rejected", this.tokens[at] ?? null);
  }

  /**
   * @param {Place} place
   * @param {number} at
   */
  #token(place, at) {
    const token = make("span", "token");
    token.tabIndex = -1;
    token.setAttribute("role", "option");
    token.setAttribute("aria-selected", "false");
    token.classList.toggle("inherited", at < this.run.before.length);
    token.classList.toggle("given", place.given);
    return token;
  }

  /**
   * Writes the characters that a token shows.
   * @param {number} at
   */
  #write(at) {
    const { text, whole } = this.shares[at];
    // A leading space may hang at the end of a line, so it has no marks.
    const gap = text.match(/^\s+(?=\S)/)?.[0] ?? "";
    const ink = make("span", "ink", text.slice(gap.length));
    if (!text && whole === at) ink.dataset.mark = visible(this.places[at].token); // an end token, or an incomplete character
    else if (text.includes("\n")) ink.dataset.mark = "⏎";
    this.tokens[at].replaceChildren(gap, ink);
    this.tokens[at].classList.toggle("part", whole !== at);
  }

  /** @param {number} at */
  #paint(at) {
    const [token, place] = [this.tokens[at], this.places[at]];
    const { text, whole } = this.shares[at];
    const tint = markOf(place, store.marks.background)?.tint;
    const line = markOf(place, store.marks.underline)?.line ?? "none";
    if (tint) token.style.setProperty("--tint", tint);
    else token.style.removeProperty("--tint");
    const parts = whole === at ? partsOf(this.shares, at) : [];
    token.classList.toggle("split", parts.length > 0);
    const tints = parts.map((part) => markOf(this.places[part], store.marks.background)?.tint);
    if (parts.length) token.style.setProperty("--stripes", stripes(tints, RIGHT_TO_LEFT.test(text)));
    else token.style.removeProperty("--stripes");
    if (token.lastChild instanceof HTMLElement) token.lastChild.dataset.line = line;
    token.classList.toggle("unseen", place.raw === null && !place.given);
    token.setAttribute("aria-label", accessibleName(place, store.marks, nameOf(this.places, this.shares, at)));
  }

  repaint() {
    this.tokens.forEach((_, at) => this.#paint(at));
  }

  /**
   * The element that shows a token's characters.
   * @param {HTMLElement} token
   */
  shownBy(token) {
    const whole = this.shares[this.tokens.indexOf(token)]?.whole;
    return whole === undefined ? token : this.tokens[whole];
  }

  /**
   * Highlights the token at the cursor.
   * @param {number | null} at
   */
  highlight(at) {
    const now = at === null ? undefined : this.tokens[at];
    if (this.current === now) return;
    this.text.querySelector(".around")?.classList.remove("around");
    this.current?.removeAttribute("aria-current");
    now?.setAttribute("aria-current", "true");
    if (now?.classList.contains("part")) this.shownBy(now).classList.add("around");
    this.current = now;
  }

  /**
   * A column has one tab stop; the arrow keys move it.
   * @param {HTMLElement | undefined} target
   */
  moveTabStop(target, focus = false) {
    if (!target) return;
    if (this.tabStop) this.tabStop.tabIndex = -1;
    this.tabStop = target;
    target.tabIndex = 0;
    if (focus) target.focus({ preventScroll: true });
  }

  /** The last of the run's own steps in the text that is shown. */
  get lead() {
    return this.places.findLast((_, at) => at >= this.run.before.length)?.step ?? null;
  }

  /**
   * Scrolls to the column and focuses the button that opened a page with it.
   * @param {string} page
   */
  reveal(page) {
    // After a switch of pages, the column has no size at first.
    new ResizeObserver((_, observer) => {
      if (!this.root.checkVisibility()) return;
      observer.disconnect();
      this.head.scrollIntoView({ block: "nearest" });
      this.senders.get(page)?.focus({ preventScroll: true });
    }).observe(this.root);
  }

  /** @param {End} end */
  #finish(end) {
    this.shownEnd = end;
    this.root.querySelector(".failure")?.remove();
    if (end.error !== null) this.text.after(make("p", "failure", end.error));
    /** @type {End["figures"]} */
    const figures = [...end.figures, ["ended", end.stop, "The rule that ended this run."]];
    this.figures.replaceChildren(...figures.map((figure, at) => figureOf(figure, `${this.run.key}-${at}`, at === 0)));
    this.moreButton.hidden = figures.length <= FIRST_FIGURES;
    this.#listSequences(end.sequences);
  }

  /**
   * Buttons for the returned sequences, best first.
   * @param {Returned[]} sequences
   */
  #listSequences(sequences) {
    const scored = sequences.some((sequence) => sequence.score !== null);
    if (!scored && sequences.length < 2) return;
    const buttons = sequences.map((sequence, place) => {
      const label = `${place + 1}. ${sequence.score ?? ""}`.trim();
      const choice = button("", label, () => store.choose(this.run, place));
      choice.title = `${sequence.tokens} tokens, ${sequence.stop}`;
      return choice;
    });
    this.sequences.replaceChildren(make("span", "label", scored ? "by score" : "returned"), ...buttons);
  }

  #pressSequence() {
    const shown = this.run.choice ?? 0; // not the first one with this text: two may be equal
    this.sequences.querySelectorAll("button").forEach((choice, at) => {
      choice.setAttribute("aria-pressed", String(at === shown));
    });
  }
}
