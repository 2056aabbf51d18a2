// The strategies of the comparison, one card for each, and the catalog of what the loaded model offers.
// Python reads the cards as JSON; only the browser changes single ones.

/**
 * @typedef {string | number | boolean | null} FieldValue
 *
 * @typedef {object} Field how a setting is shown
 * @property {string} name
 * @property {"choice" | "check" | "slider" | "number" | "text"} kind
 * @property {FieldValue} value the default
 * @property {string} help
 * @property {[label: string, value: string][]} choices
 * @property {number | null} low
 * @property {number | null} high
 * @property {number | null} step
 * @property {string} placeholder
 * @property {string | null} onlyWith the setting that must be on for this one to have an effect
 *
 * @typedef {object} Strategy
 * @property {string} id
 * @property {string} title
 * @property {string} summary
 * @property {boolean} offered whether this model can run it
 * @property {Field[]} fields
 *
 * @typedef {{ strategies: Strategy[], shared: Field[], most: number }} Catalog
 * @typedef {{ key: number, strategy: string, values: Record<string, FieldValue> }} Card
 */

export class Cards {
  constructor() {
    /** @type {Card[]} */
    this.list = [];
    /** @type {Catalog | null} */
    this.catalog = null;
    /** @type {Set<() => void>} */
    this.listeners = new Set();
  }

  /**
   * @param {() => void} listener
   * @returns {() => void} removes the listener
   */
  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  #notify() {
    for (const listener of [...this.listeners]) listener();
  }

  /** @param {Catalog} catalog */
  setCatalog(catalog) {
    this.catalog = catalog;
    this.#notify();
  }

  /**
   * Replaces all cards.
   * @param {{ strategy: string, values: Record<string, FieldValue> }[]} cards
   */
  replace(cards) {
    this.list = cards.map(({ strategy, values }, key) => ({ key, strategy, values: { ...values } }));
    this.#notify();
  }

  /**
   * What Python reads. Values that the strategy does not have stay here, for when it is changed back.
   * @returns {Card[]}
   */
  get known() {
    if (!this.catalog) return this.list;
    return this.list.map((card) => {
      const names = new Set([...this.fields(card), ...this.shared].map(({ name }) => name));
      const values = Object.fromEntries(Object.entries(card.values).filter(([name]) => names.has(name)));
      return { ...card, values };
    });
  }

  /** Whether another card may be added. */
  get full() {
    return this.list.length >= (this.catalog?.most ?? 0);
  }

  get shared() {
    return this.catalog?.shared ?? [];
  }

  /** @param {string} id */
  strategy(id) {
    return this.catalog?.strategies.find((strategy) => strategy.id === id);
  }

  /** @param {Card} card */
  title(card) {
    return this.strategy(card.strategy)?.title ?? card.strategy.replaceAll("_", " ");
  }

  /** @param {Card} card */
  fields(card) {
    return this.strategy(card.strategy)?.fields ?? [];
  }

  /**
   * The settings of a card that differ from the defaults: "temperature 1.5 · top_p 0.9".
   * @param {Card} card
   */
  summary(card) {
    const defaults = new Map([...this.fields(card), ...this.shared].map(({ name, value }) => [name, value]));
    const listed = Object.entries(card.values).filter(([name, value]) =>
      value !== null && value !== "" && (!this.catalog || (defaults.has(name) && defaults.get(name) !== value)));
    return listed.map(([name, value]) => `${name} ${value}`).join(" · ") || "default settings";
  }

  add() {
    if (this.full) return;
    const strategy = this.list.at(-1)?.strategy ?? this.catalog?.strategies[0].id ?? "greedy";
    this.#insert(this.list.length, { strategy, values: {} });
  }

  /** @param {number} key */
  duplicate(key) {
    const at = this.#at(key);
    if (!this.full && at >= 0) this.#insert(at + 1, this.list[at]);
  }

  /** @param {number} key */
  remove(key) {
    if (this.list.length < 2) return;
    this.list = this.list.filter((card) => card.key !== key);
    this.#notify();
  }

  /**
   * @param {number} key
   * @param {number} places to the right
   */
  move(key, places) {
    const at = this.#at(key);
    if (!this.list[at + places]) return;
    const cards = [...this.list];
    cards.splice(at + places, 0, ...cards.splice(at, 1));
    this.list = cards;
    this.#notify();
  }

  /**
   * Changes the strategy; settings that both have are kept.
   * @param {number} key
   * @param {string} strategy
   */
  setStrategy(key, strategy) {
    this.#change(key, (card) => ({ ...card, strategy }));
  }

  /**
   * Changes a setting; undefined shows the default again.
   * @param {number} key
   * @param {string} name
   * @param {FieldValue | undefined} value
   */
  set(key, name, value) {
    this.#change(key, (card) => {
      const { [name]: _, ...values } = card.values;
      return { ...card, values: value === undefined ? values : { ...values, [name]: value } };
    });
  }

  /**
   * @param {number} key
   * @param {(card: Card) => Card} change
   */
  #change(key, change) {
    this.list = this.list.map((card) => (card.key === key ? change(card) : card));
    this.#notify();
  }

  /** @param {number} key */
  #at(key) {
    return this.list.findIndex((card) => card.key === key);
  }

  /**
   * @param {number} at
   * @param {{ strategy: string, values: Record<string, FieldValue> }} card
   */
  #insert(at, { strategy, values }) {
    const key = Math.max(-1, ...this.list.map((card) => card.key)) + 1;
    this.list = this.list.toSpliced(at, 0, { key, strategy, values: { ...values } });
    this.#notify();
  }
}

export const cards = new Cards();

/** Adds a strategy, for a button of the page. */
export function addStrategy() {
  cards.add();
  return [];
}
