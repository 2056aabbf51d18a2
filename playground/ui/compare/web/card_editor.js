// The form for one card: its strategy and settings, built from the catalog. Every change takes effect at
// once, for the next run.

import { button, make } from "../../shared/web/dom.js";
import { cards } from "./cards.js";

/** @typedef {import("./cards.js").Card} Card */
/** @typedef {import("./cards.js").Field} Field */
/** @typedef {import("./cards.js").FieldValue} FieldValue */

const FIRST = 4; // fields that are visible at once; the others are folded

/**
 * @param {string} id
 * @param {string} label
 * @param {[label: string, value: string][]} options
 * @param {string} value
 * @param {(value: string) => void} onChange
 */
function select(id, label, options, value, onChange) {
  const node = make("select");
  node.id = id;
  node.setAttribute("aria-label", label);
  for (const [text, each] of options) node.append(new Option(text, each, false, each === value));
  node.addEventListener("change", () => onChange(node.value));
  return node;
}

export class CardEditor {
  /**
   * @param {number} key the card's
   * @param {() => void} onClose
   */
  constructor(key, onClose) {
    this.key = key;
    this.onClose = onClose;
    this.root = make("div", "card-editor");
    this.root.id = `card-${key}-editor`;
    this.root.setAttribute("role", "dialog");
    this.root.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      onClose();
    });
    this.draw();
  }

  get card() {
    return cards.list.find((card) => card.key === this.key);
  }

  /** Draws all fields: when the form is opened, and when its strategy, the cards' order or the catalog changes. */
  draw() {
    const { card } = this;
    this.catalog = cards.catalog;
    if (!card) return;
    this.root.setAttribute("aria-label", `Settings of column ${cards.list.indexOf(card) + 1}`);
    const focused = this.root.contains(document.activeElement) ? document.activeElement?.id : undefined;
    this.root.replaceChildren(this.#head(card), ...this.#summary(card), ...this.#fields(card), this.#footer(card));
    if (focused) document.getElementById(focused)?.focus();
  }

  /** @param {Card} card */
  #head(card) {
    const listed = (cards.catalog?.strategies ?? []).filter(({ id, offered }) => offered || id === card.strategy);
    /** @type {[string, string][]} */
    const options = listed.map(({ id, title }) => [title, id]);
    const head = make("div", "card-strategy");
    head.append(
      select(`card-${this.key}-strategy`, "Strategy", options, card.strategy, (id) => {
        cards.setStrategy(this.key, id);
        this.draw();
      }),
      button("close", "Close", this.onClose),
    );
    return head;
  }

  /** @param {Card} card */
  #summary(card) {
    const text = cards.strategy(card.strategy)?.summary;
    return text ? [make("p", "help", text)] : [];
  }

  /** @param {Card} card */
  #fields(card) {
    const own = cards.fields(card);
    const always = own.filter(({ onlyWith }) => !onlyWith);
    const conditional = own.filter(({ onlyWith }) => onlyWith && this.#isOn(card, own, onlyWith));
    const overridden = cards.shared.filter(({ name }) => card.values[name] !== undefined);
    /** @type {HTMLElement[]} */
    const parts = always.slice(0, FIRST).map((field) => this.#field(card, field));
    const more = [...always.slice(FIRST), ...conditional];
    if (more.length) {
      const folded = make("details");
      folded.open = this.unfolded ?? more.some(({ name }) => card.values[name] !== undefined);
      folded.addEventListener("toggle", () => (this.unfolded = folded.open));
      folded.append(make("summary", "", `${more.length} more`), ...more.map((field) => this.#field(card, field)));
      parts.push(folded);
    }
    return [...parts, ...overridden.map((field) => this.#field(card, field)), this.#addSetting(card)];
  }

  /**
   * @param {Card} card
   * @param {Field[]} fields
   * @param {string} name
   */
  #isOn(card, fields, name) {
    return Boolean(card.values[name] ?? fields.find((field) => field.name === name)?.value);
  }

  /**
   * @param {Card} card
   * @param {Field} field
   */
  #field(card, field) {
    const id = `card-${this.key}-${field.name}`;
    const value = card.values[field.name] ?? field.value;
    const row = make("div", `field ${field.kind}`);
    const label = make("label", "", field.name);
    label.htmlFor = id;
    const help = make("p", "help", field.help);
    help.id = `${id}-help`;
    const inputs = this.#inputs(field, id, value);
    for (const input of inputs) input.setAttribute("aria-describedby", help.id);
    row.append(label, ...inputs, help);
    return row;
  }

  /**
   * @param {Field} field
   * @param {string} id
   * @param {FieldValue} value
   * @returns {(HTMLInputElement | HTMLSelectElement)[]}
   */
  #inputs(field, id, value) {
    /** @param {FieldValue} entered */
    const set = (entered) => this.#set(field, entered);
    if (field.kind === "choice") return [select(id, field.name, field.choices, String(value ?? ""), set)];
    const input = make("input");
    input.id = id;
    if (field.kind === "check") {
      input.type = "checkbox";
      input.checked = Boolean(value);
      input.addEventListener("change", () => set(input.checked));
      return [input];
    }
    if (field.kind === "slider") return this.#slider(field, input, value);
    input.type = "text";
    input.value = value === null ? "" : String(value);
    input.placeholder = field.placeholder;
    input.autocomplete = "off";
    input.addEventListener("input", () => set(input.value));
    return [input];
  }

  /**
   * A number with a slider beside it. What is typed is kept as it is: Python says if it is not allowed.
   * @param {Field} field
   * @param {HTMLInputElement} number
   * @param {FieldValue} value
   */
  #slider(field, number, value) {
    const range = make("input");
    for (const input of [number, range]) {
      input.min = String(field.low);
      input.max = String(field.high);
      input.step = String(field.step);
    }
    number.type = "number";
    number.step = "any";
    range.type = "range";
    range.setAttribute("aria-label", `${field.name}, slider`);
    number.value = range.value = String(value ?? "");
    number.addEventListener("input", () => {
      range.value = number.value;
      this.#set(field, number.value === "" ? null : Number(number.value));
    });
    range.addEventListener("input", () => {
      number.value = range.value;
      this.#set(field, Number(range.value));
    });
    return [range, number];
  }

  /**
   * @param {Field} field
   * @param {FieldValue} entered
   */
  #set(field, entered) {
    const shared = cards.shared.some(({ name }) => name === field.name);
    const empty = entered === null || entered === "";
    // An overridden shared setting stays in the form until it is emptied.
    cards.set(this.key, field.name, empty || (!shared && entered === field.value) ? undefined : entered);
    const redraw = cards.fields(this.card ?? { key: 0, strategy: "", values: {} })
      .some(({ onlyWith }) => onlyWith === field.name);
    if (redraw) this.draw();
  }

  /** @param {Card} card */
  #addSetting(card) {
    const own = new Set(cards.fields(card).map(({ name }) => name));
    const free = cards.shared.filter(({ name }) => !own.has(name) && card.values[name] === undefined);
    /** @type {[string, string][]} */
    const options = [["Override a shared setting …", ""], ...free.map(({ name }) => /** @type {[string, string]} */ ([name, name]))];
    return select(`card-${this.key}-override`, "Override a shared setting for this column", options, "", (name) => {
      const field = free.find((one) => one.name === name);
      if (!field) return;
      cards.set(this.key, name, field.value ?? "");
      this.draw();
      document.getElementById(`card-${this.key}-${name}`)?.focus();
    });
  }

  /**
   * Removes the card; the focus moves to the next one.
   * @param {number} at
   */
  #remove(at) {
    const next = cards.list[at + 1] ?? cards.list[at - 1];
    cards.remove(this.key);
    document.getElementById(`card-${next.key}-open`)?.focus();
  }

  /** @param {Card} card */
  #footer(card) {
    const at = cards.list.indexOf(card);
    const footer = make("div", "card-actions");
    /** @type {[name: string, label: string, enabled: boolean, act: () => void][]} */
    const actions = [
      ["left", "Move left", at > 0, () => cards.move(this.key, -1)],
      ["right", "Move right", at < cards.list.length - 1, () => cards.move(this.key, 1)],
      ["duplicate", "Duplicate", !cards.full, () => cards.duplicate(this.key)],
      ["remove", "Remove", cards.list.length > 1, () => this.#remove(at)],
    ];
    for (const [name, label, enabled, act] of actions) {
      const one = button("", label, () => {
        act();
        this.draw();
      });
      one.id = `card-${this.key}-${name}`;
      one.disabled = !enabled;
      footer.append(one);
    }
    return footer;
  }
}
