// The part of a column's head that belongs to its card: a button that opens the settings, and what the
// next run will change.

import { button, make, placeCard } from "../../shared/web/dom.js";
import { CardEditor } from "./card_editor.js";
import { cards } from "./cards.js";

/** @typedef {import("./cards.js").Card} Card */

export class CardHead {
  /** @param {Card} card */
  constructor(card) {
    this.key = card.key;
    /** @type {CardEditor | null} */
    this.editor = null;
    this.root = make("div", "card-head");
    this.root.dataset.key = String(card.key);
    this.open = button("card-open", "Settings", () => this.toggle());
    this.open.id = `card-${card.key}-open`;
    this.open.setAttribute("aria-expanded", "false");
    this.next = make("p", "next");
    this.root.append(this.open);
  }

  toggle(open = this.editor === null) {
    const focused = this.editor?.root.contains(document.activeElement);
    this.editor?.root.remove();
    this.editor = open ? new CardEditor(this.key, () => this.toggle(false)) : null;
    this.open.setAttribute("aria-expanded", String(open));
    if (this.editor) {
      this.root.append(this.editor.root);
      placeCard(this.editor.root, this.open.getBoundingClientRect(), 4);
      this.editor.root.querySelector("select")?.focus({ preventScroll: true });
    } else if (focused) {
      this.open.focus({ preventScroll: true });
    }
  }

  /**
   * @param {Card} card
   * @param {Card | null} ran the card as it was when the column's run started
   */
  update(card, ran) {
    const at = cards.list.indexOf(card) + 1;
    this.open.setAttribute("aria-label", `Settings of column ${at}, ${cards.title(card)}`);
    this.next.textContent = `Next run: ${cards.title(card)} · ${cards.summary(card)}`;
    this.next.hidden = ran === null || same(card, ran);
    if (this.editor && this.editor.catalog !== cards.catalog) this.editor.draw(); // another model was loaded
  }
}

/**
 * @param {Card} one
 * @param {Card} other
 */
function same(one, other) {
  // A typed number is a string.
  const values = (/** @type {Card} */ card) =>
    Object.entries(card.values).map(([name, value]) => `${name} ${value}`).sort().join("\n");
  return one.strategy === other.strategy && values(one) === values(other);
}

// A click outside closes an editor, as it closes a menu.
/** @param {() => Iterable<CardHead>} heads */
export function closeOnOutsideClick(heads) {
  document.addEventListener("pointerdown", (event) => {
    for (const head of heads()) {
      if (head.editor && event.target instanceof Node && !head.root.contains(event.target)) head.toggle(false);
    }
  });
}
