// The live view: reads the feed into the store, draws the columns of the runs, and passes the user's
// clicks and keys to the store and to Python.

import { closest, make, part, reducedMotion } from "../../shared/web/dom.js";
import { CandidateCard } from "./candidate_card.js";
import { CardHead, closeOnOutsideClick } from "./card_head.js";
import { cards } from "./cards.js";
import { showPrompts } from "./column_prompt.js";
import { Column, discarded } from "./columns.js";
import { command, stream } from "./feed_stream.js";
import { Forks } from "./forks.js";
import { openWith } from "./hand_over.js";
import { Legend } from "./legend.js";
import { Playback } from "./playback.js";
import { store } from "./store.js";

/** @typedef {import("../../shared/web/dom.js").Component} Component */
/** @typedef {import("./cards.js").Card} Card */
/** @typedef {import("./store.js").Change} Change */
/** @typedef {import("./store.js").Run} Run */
/** @typedef {import("./store.js").Step} Step */

const MOST_ANIMATED = 4; // columns; more of them change without animations
const COLUMN_WIDTH = 272; // px with its gap

class LiveView {
  /** @param {Component} component */
  constructor(component) {
    this.component = component;
    this.element = component.element;
    /** @type {Map<Run, Column>} */
    this.columns = new Map();
    /** @type {Map<number, CardHead>} by the card's key */
    this.heads = new Map();
    /** @type {Map<number, HTMLElement>} columns of cards that have not run, by the card's key */
    this.waiting = new Map();
    /** @type {Set<Column>} columns to update in the next frame */
    this.changed = new Set();
    /** @type {[Column, Step[]][]} discarded drafts to show then */
    this.discarded = [];
    this.frame = 0;
    this.state = store.state; // as last reported to Python
    this.reporting = false;
    this.reported = store.cursor.at;
    this.cursorTimer = 0;
    this.place = part(this.element, "columns");
    this.status = part(this.element, "status");
    this.legend = new Legend(part(this.element, "legend"));
    this.playback = new Playback(this.element, command);
    this.forks = new Forks(part(this.element, "forks"), this.columns, {
      balance: () => this.balance(),
      onEdit: (column, lead, text) => component.trigger("edited", { column: column.run.key, lead, text }),
    });
    this.card = new CandidateCard(
      part(this.element, "candidates"), this.element, (token) => this.columnOf(token),
      ({ column, at }, replacement) => {
        this.forks.expect(column);
        this.card.hide();
        component.trigger("forked", { column: column.run.key, lead: column.lead, at, ...replacement });
      },
    );
    this.#listen();
    this.arrange();
  }

  #listen() {
    document.addEventListener("change", (event) => closest(event, "#prompt") && this.#showPrompts());
    this.element.addEventListener("click", (event) => {
      const token = closest(event, ".token");
      if (token) this.pin(token);
    });
    this.element.addEventListener("keydown", (event) => {
      this.#onTokenKey(event);
      this.#onFigureKey(event);
    });
    new ResizeObserver(() => this.balance()).observe(this.place);
    closeOnOutsideClick(() => this.heads.values());
    const forget = cards.subscribe(() => (this.element.isConnected ? this.arrange() : forget()));
    const leave = store.subscribe((change) => (this.element.isConnected ? this.#onChange(change) : leave()));
  }

  // --- columns --------------------------------------------------------------------------------------

  /** @param {HTMLElement} token */
  columnOf(token) {
    return [...this.columns.values()].find((column) => column.text === token.parentNode);
  }

  /**
   * Puts the columns in order: runs without a card, such as opened traces, then for every card its run and
   * the forks of it.
   */
  arrange() {
    const runs = store.columns;
    for (const run of this.columns.keys()) if (!runs.includes(run)) this.columns.delete(run);
    const columns = new Map(runs.map((run) => [run, this.#column(run)]));
    const roots = runs.filter((run) => run.origin === null);
    const rootOf = this.#match(roots);
    /** @type {HTMLElement[]} */
    const order = [];
    const add = (/** @type {Run} */ root) => {
      const from = runs.indexOf(root);
      const next = runs.findIndex((run, at) => at > from && run.origin === null);
      const group = runs.slice(from, next < 0 ? undefined : next);
      order.push(...group.map((run) => /** @type {Column} */ (columns.get(run)).root));
    };
    const matched = new Set(rootOf.values());
    for (const root of roots) if (!matched.has(root)) add(root);
    for (const card of cards.list) {
      const root = rootOf.get(card);
      if (root) add(root);
      else order.push(this.#waitingColumn(card));
    }
    this.#attachHeads(rootOf);
    const focused = document.activeElement;
    for (const old of [...this.place.children]) if (!order.includes(/** @type {HTMLElement} */ (old))) old.remove();
    order.forEach((root, index) => {
      root.dataset.index = String(index);
      if (this.place.children[index] !== root) this.place.insertBefore(root, this.place.children[index] ?? null);
    });
    // An element that is moved loses the focus.
    if (focused instanceof HTMLElement && this.place.contains(focused)) focused.focus({ preventScroll: true });
    this.forks.draw();
    this.balance();
    this.#showPrompts();
    this.updateSoon(columns.values());
  }

  /** @param {Run} run */
  #column(run) {
    const column = this.columns.get(run) ?? new Column(run, {
      edit: (one) => this.forks.edit(one),
      hide: (one) => this.forks.hide(one.run, true),
      showFigures: () => this.#showFigures(),
      send: (one, page) => this.#send(one.run, page),
    });
    this.columns.set(run, column);
    return column;
  }

  /**
   * Opens another page with a column.
   * @param {Run} run
   * @param {string} page
   */
  #send(run, page) {
    this.component.trigger("sent", { page, column: run.key });
    setTimeout(() => openWith(run, page)); // the page receives the column before it is opened
  }

  /** Shows all figures of every column, or the first ones. */
  #showFigures() {
    const all = this.place.classList.toggle("all-figures");
    for (const { moreButton } of this.columns.values()) moreButton.textContent = all ? "Fewer figures" : "All figures";
  }

  /**
   * The run of each card: the one that it asked for, or, after a reload, the next one of its strategy.
   * @param {Run[]} roots
   * @returns {Map<Card, Run>}
   */
  #match(roots) {
    const free = new Set(roots.filter((run) => run.card));
    const found = new Map();
    for (const fits of [
      (/** @type {Card} */ card, /** @type {Run} */ run) => run.card?.key === card.key,
      (/** @type {Card} */ card, /** @type {Run} */ run) => run.card?.strategy === card.strategy,
    ]) {
      for (const card of cards.list) {
        const run = found.has(card) ? undefined : [...free].find((one) => fits(card, one));
        if (!run) continue;
        found.set(card, run);
        free.delete(run);
      }
    }
    return found;
  }

  /**
   * The column of a card that has not run.
   * @param {Card} card
   */
  #waitingColumn(card) {
    let root = this.waiting.get(card.key);
    if (!root) {
      root = make("section", "column");
      root.dataset.state = "new";
      const head = make("div", "head");
      head.append(make("h3"), make("div", "tools"), make("p", "settings"));
      root.append(head, make("p", "empty", "Press Run to generate this column."));
      this.waiting.set(card.key, root);
    }
    // The head stays: an open editor inside it would lose the focus.
    root.setAttribute("aria-label", cards.title(card));
    part(root, "head").querySelector("h3")?.replaceChildren(cards.title(card));
    part(root, "settings").textContent = cards.summary(card);
    return root;
  }

  /**
   * Puts the heads of the cards into their columns.
   * @param {Map<Card, Run>} rootOf
   */
  #attachHeads(rootOf) {
    const keys = new Set(cards.list.map(({ key }) => key));
    for (const map of [this.heads, this.waiting]) for (const key of map.keys()) if (!keys.has(key)) map.delete(key);
    for (const column of this.columns.values()) column.head.querySelector(".next")?.remove();
    for (const card of cards.list) {
      const head = this.heads.get(card.key) ?? new CardHead(card);
      this.heads.set(card.key, head);
      const run = rootOf.get(card);
      const place = run ? this.columns.get(run)?.head : this.waiting.get(card.key)?.querySelector(".head");
      head.update(card, run?.card ?? null);
      const tools = place?.querySelector(".tools");
      if (head.root.parentNode !== tools) tools?.append(head.root);
      place?.append(head.next);
    }
  }

  #showPrompts() {
    showPrompts(store.columns.flatMap((run) => this.columns.get(run) ?? []));
  }

  /** Fits as many columns into a row as there is room for, about the same number in every row. */
  balance() {
    const count = [...this.place.children].filter((column) => !(/** @type {HTMLElement} */ (column).hidden)).length;
    const room = Math.max(1, Math.floor((this.place.clientWidth + 12) / COLUMN_WIDTH));
    const rows = Math.max(Math.ceil(count / room), 1);
    this.place.style.setProperty("--in-a-row", String(Math.max(1, Math.ceil(count / rows))));
  }

  /** @param {Iterable<Column | undefined>} columns */
  updateSoon(columns) {
    for (const column of columns) if (column) this.changed.add(column);
    this.frame ||= requestAnimationFrame(() => this.update());
  }

  update() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const animated = this.changed.size < MOST_ANIMATED;
    for (const column of this.changed) column.update(animated);
    this.changed.clear();
    for (const [column, steps] of this.discarded.splice(0)) column.strikeDrafts(steps);
    const columns = [...this.columns.values()];
    for (const column of columns) column.highlight(store.cursor.at);
    this.#refreshLegend(columns);
    this.playback.refresh();
  }

  #refreshLegend(columns = [...this.columns.values()]) {
    this.legend.refresh(columns.some(({ places }) => places.some((place) => place.raw === null && !place.given)));
  }

  // --- clicks and keys on tokens --------------------------------------------------------------------

  /** @param {HTMLElement} token */
  pin(token) {
    const column = this.columnOf(token);
    if (!column) return;
    column.moveTabStop(token, true);
    this.card.show(token, true);
    store.select(column.tokens.indexOf(token), { column: column.run.key });
  }

  /**
   * The token that a key moves to: in the same text, or at the same position of the next column.
   * @param {string} key
   * @param {Column} column
   * @param {number} at
   */
  #target(key, column, at) {
    const { tokens } = column;
    const columns = store.columns
      .map((run) => this.columns.get(run))
      .filter((other) => other && !other.root.hidden && other.tokens.length);
    const beside = (/** @type {number} */ by) => {
      const there = columns[columns.indexOf(column) + by]?.tokens ?? [];
      return there[at] ?? there.at(-1);
    };
    /** @type {Record<string, () => HTMLElement | undefined>} */
    const moves = {
      ArrowRight: () => tokens[at + 1], ArrowLeft: () => tokens[at - 1], Home: () => tokens[0], End: () => tokens.at(-1),
      ArrowDown: () => beside(1), ArrowUp: () => beside(-1),
    };
    return moves[key];
  }

  /** @param {KeyboardEvent} event */
  #onTokenKey(event) {
    const token = closest(event, ".token");
    if (!token) return;
    if (event.key === "Enter") {
      event.preventDefault();
      this.pin(token);
      this.card.focus();
    } else if (event.key === "Escape") {
      if (this.card.hidden) store.select(null);
      this.card.hide();
    } else {
      this.#move(event, token);
    }
  }

  /**
   * @param {KeyboardEvent} event
   * @param {HTMLElement} token
   */
  #move(event, token) {
    const column = this.columnOf(token);
    if (!column || event.ctrlKey || event.altKey || event.metaKey) return;
    const at = column.tokens.indexOf(token);
    const target = this.#target(event.key, column, at);
    if (!target) return;
    event.preventDefault();
    let next = target();
    if (!next && event.key === "ArrowRight" && store.cursor.replay) {
      this.playback.act("step"); // the text continues after what the replay shows
      this.update();
      next = column.tokens[at + 1];
    }
    const there = next && this.columnOf(next);
    if (!next || !there) return;
    there.moveTabStop(next, true);
    next.scrollIntoView({ block: "nearest" });
    store.select(there.tokens.indexOf(next), { column: there.run.key, replay: store.cursor.replay });
  }

  /**
   * The figures of a column are one tab stop; the arrow keys move within them.
   * @param {KeyboardEvent} event
   */
  #onFigureKey(event) {
    const figures = closest(event, ".figures");
    /** @type {Record<string, number>} */
    const moves = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    const by = moves[event.key];
    if (!figures || !by) return;
    event.preventDefault();
    const labels = [...figures.querySelectorAll("button")];
    const at = labels.findIndex((label) => label === event.target);
    labels[(at + by + labels.length) % labels.length].focus();
  }

  // --- changes of the store -------------------------------------------------------------------------

  /** @param {Change} change */
  #onChange(change) {
    if (change.kind === "reset") {
      this.forks.hidden.clear();
      this.card.hide();
      this.playback.replay(false);
      this.element.scrollIntoView({ block: "nearest", behavior: reducedMotion() ? "auto" : "smooth" });
    } else if (change.kind === "column") {
      this.arrange();
    } else if (change.kind === "steps") {
      const column = this.columns.get(change.run);
      this.updateSoon([column]);
      if (column && change.steps.some(discarded)) this.discarded.push([column, change.steps]);
    } else if (change.kind === "cursor") {
      this.#onCursor();
    } else if (change.kind === "marks") {
      for (const column of this.columns.values()) column.repaint();
      this.#refreshLegend();
    } else if (change.kind === "state") {
      this.updateSoon(this.columns.values());
      if (!this.reporting) queueMicrotask(() => this.#reportState()); // one update may change it several times
      this.reporting = true;
    } else if (change.kind === "show") {
      this.forks.hide(change.run, false);
      this.columns.get(change.run)?.reveal(change.page);
    } else if (change.kind === "status") {
      this.status.textContent = change.text;
      this.status.classList.toggle("error", change.error);
    }
  }

  #onCursor() {
    this.updateSoon(this.columns.values());
    if (store.cursor.replay) for (const column of this.columns.values()) this.#strikeAgain(column);
    clearTimeout(this.cursorTimer);
    this.cursorTimer = setTimeout(() => {
      if (store.cursor.at === this.reported) return;
      this.reported = store.cursor.at;
      this.component.trigger("pinned", { at: this.reported, ...store.view });
    }, 250);
  }

  /**
   * Shows a discarded draft again when the replay reaches the token that replaced it.
   * @param {Column} column
   */
  #strikeAgain(column) {
    const place = store.selected(column.run);
    if (place?.run !== column.run || place.notes.verdict !== "resampled") return;
    const { round } = place.notes;
    this.discarded.push([column, [...column.run.steps.values()].filter((step) => step.notes.round === round)]);
  }

  #reportState() {
    this.reporting = false;
    this.update();
    this.card.refresh();
    const { trigger } = this.component;
    if (store.state === "over") {
      this.element.dataset.over = `${store.feed}:${store.read}`;
      trigger("over", store.view);
    } else if (this.state === "over") {
      this.playback.replay(false);
      if (store.cursor.replay) store.select(null);
      trigger("started");
    }
    this.state = store.state;
  }

  /** Reads what Python sent: the feed of runs that have started, or why they have not. */
  read() {
    const { value } = this.component.props;
    if (!value) return;
    const { feed, error } = JSON.parse(value);
    if (error) store.setStatus({ text: error, error: true });
    else stream.open(feed);
  }
}

/** @param {Component} component */
export function mount(component) {
  const view = new LiveView(component);
  component.watch("value", () => view.read());
  view.read(); // values that arrived while this script loaded
}
