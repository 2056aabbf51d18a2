// Forks: the origin of each column, the tree of columns, hiding forks, and editing a text.

import { button, make, reducedMotion } from "../../shared/web/dom.js";
import { visible } from "../../shared/web/format.js";
import { store } from "./store.js";

/** @typedef {import("./columns.js").Column} Column */
/** @typedef {import("./store.js").Run} Run */

/** Why a column cannot be forked now; empty if it can. */
export const forkBlocked = () =>
  store.state === "over" ? "" : "The runs are still in progress. Press Stop first, then continue from here.";

/**
 * Where a fork left its origin: "at token 9: ‘␣cats’ instead of ‘␣dog’".
 * @param {Run} run
 */
function departureText(run) {
  const { at, instead } = run.left ?? { at: 0, instead: null };
  const given = visible(run.before.slice(at).map((place) => place.token).join(""));
  if (!given) return `after token ${at}`;
  const short = given.length > 40 ? given.slice(0, 39) + "…" : given;
  const before = instead ? ` instead of ‘${visible(instead.token)}’` : "";
  return `at token ${at + 1}: ‘${short}’${instead?.tokenId === run.before[at]?.tokenId ? " again" : before}`;
}

/** @param {Run} run */
export function originText(run) {
  const origin = run.origin === null ? undefined : store.runs.get(run.origin);
  return `forked from ${origin ? store.title(origin) : "another column"} ${departureText(run)}`;
}

/** @returns {ScrollBehavior} */
const scrolling = () => (reducedMotion() ? "auto" : "smooth");

export class Forks {
  /**
   * @param {HTMLElement} nav
   * @param {Map<Run, Column>} columns
   * @param {{ balance: () => void, onEdit: (column: Column, lead: number | null, text: string) => void }} view
   */
  constructor(nav, columns, view) {
    this.nav = nav;
    this.columns = columns;
    this.view = view;
    /** @type {Set<Run>} runs whose column is hidden */
    this.hidden = new Set();
    this.expected = Infinity; // number of forks after which the newest one gets the focus
  }

  /**
   * @param {Run} run
   * @param {boolean} hidden
   */
  hide(run, hidden) {
    if (hidden) this.hidden.add(run);
    else this.hidden.delete(run);
    this.draw();
    this.view.balance();
  }

  /** @param {Run} run */
  #visit(run) {
    this.hide(run, false);
    const root = this.columns.get(run)?.root;
    if (!root) return;
    root.focus({ preventScroll: true });
    root.scrollIntoView({ block: "nearest", inline: "nearest", behavior: scrolling() });
    const ring = getComputedStyle(root).getPropertyValue("--color-accent");
    root.animate([{ boxShadow: `0 0 0 3px ${ring}` }, { boxShadow: "0 0 0 3px transparent" }], { duration: 1500 });
  }

  /**
   * Keeps the focus at a column that is being forked until the fork appears.
   * @param {Column} column
   */
  expect(column) {
    column.root.focus({ preventScroll: true });
    this.expected = store.forks.length;
  }

  #focusNewest() {
    const { forks } = store;
    if (forks.length <= this.expected) return;
    this.expected = Infinity;
    if (!document.activeElement?.matches("#live .column")) return;
    const root = this.columns.get(forks[forks.length - 1])?.root;
    root?.focus({ preventScroll: true });
    root?.scrollIntoView({ block: "nearest", behavior: scrolling() });
  }

  /** Draws the tree of columns as nested lists, if there is a fork. */
  draw() {
    for (const [run, column] of this.columns) column.root.hidden = this.hidden.has(run);
    this.#focusNewest();
    this.nav.hidden = !store.forks.length;
    if (store.forks.length) this.nav.replaceChildren(make("b", "", "Forks"), this.#branch(null));
  }

  /** @param {number | null} origin */
  #branch(origin) {
    const list = make("ul");
    const runs = [...store.runs.values()];
    for (const run of runs.filter((one) => one.origin === origin)) {
      const item = make("li");
      const line = make("span", "line");
      const fork = origin !== null;
      const label = fork ? `${store.forkName(run)}, ${departureText(run)}` : store.title(run);
      const go = button("go", label, () => this.#visit(run));
      go.title = "Go to this column";
      line.append(go);
      if (fork) {
        const hidden = this.hidden.has(run);
        const toggle = button("fold", hidden ? "show" : "hide", () => this.hide(run, !hidden));
        toggle.setAttribute("aria-label", `${hidden ? "Show" : "Hide"} ${store.title(run)}`);
        line.append(toggle);
        item.classList.toggle("folded", hidden);
      }
      item.append(line);
      if (runs.some((one) => one.origin === run.key)) item.append(this.#branch(run.key));
      list.append(item);
    }
    return list;
  }

  /** @param {Column} column */
  edit(column) {
    const form = make("form", "editor");
    const field = make("textarea");
    field.value = column.places.map((place) => place.text).join("");
    field.rows = Math.max(6, Math.ceil(field.value.length / 30) + 1);
    field.setAttribute("aria-label", `The text of ${store.title(column.run)}, after the prompt`);
    const { lead } = column; // of the text that is edited
    const go = make("button", "primary", "Continue from here");
    go.type = "submit";
    form.append(field, go, button("", "Cancel", () => this.#endEdit(column)));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (forkBlocked()) return;
      this.#endEdit(column);
      this.expect(column);
      this.view.onEdit(column, lead, field.value);
    });
    form.addEventListener("keydown", (event) => event.key === "Escape" && this.#endEdit(column));
    column.editor = form;
    column.text.hidden = true;
    column.text.before(form);
    column.refreshActions();
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
  }

  /** @param {Column} column */
  #endEdit(column) {
    column.editor?.remove();
    column.editor = null;
    column.text.hidden = false;
    column.refreshActions();
    column.editButton.focus();
  }
}
