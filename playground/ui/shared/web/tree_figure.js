// One tree as SVG in a scrolling box. Only what is visible is in the document: a search of 300 steps has
// thousands of nodes.

import { make, svg } from "./dom.js";
import { COLUMN_WIDTH, countOf, newestStep } from "./tree_layout.js";
import { accessibleName, isNumber, tokensOf, truncate, widthOf } from "./tree_text.js";

/** @typedef {import("./tree_layout.js").Item} Item */
/** @typedef {import("./tree_layout.js").Layout} Layout */
/** @typedef {import("./tree_layout.js").TreeRun} TreeRun */

const ROW = 30;
const TOP = 30; // height of the ruler
const PILL = 24; // height of a node
const CHARACTER = 7.25; // width
const MARGIN = 240; // px around the visible part that are drawn
const BATCH = 200; // px to scroll before more is drawn
const FAR = 0.55; // the zoom below which labels are too small to read

/** @type {Record<string, string>} */
export const GLYPHS = {
  kept: "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
  pruned: "M-4 -4L4 4M4 -4L-4 4",
  drafted: "M0 -5L5 0L0 5L-5 0z",
  finished: "M-4.5 -4.5H4.5V4.5H-4.5z",
  returned: "M0 -6.5L1.8 -2.2L6.4 -1.9L2.8 1L4 5.5L0 3L-4 5.5L-2.8 1L-6.4 -1.9L-1.8 -2.2z",
  origin: "M-4 -5L5 0L-4 5z",
};

/**
 * @typedef {object} Position what is selected in a tree
 * @property {number | null} depth the selected depth
 * @property {number | null} step the selected step
 * @property {boolean} growing the run is in progress and shown to its end
 */

export class TreeFigure {
  /**
   * @param {TreeRun} run
   * @param {object} listeners
   * @param {(item: Item) => void} listeners.onPress
   * @param {(item?: Item, anchor?: SVGElement) => void} listeners.onHover for the pointer and the focus
   */
  constructor(run, { onPress, onHover }) {
    this.run = run;
    this.onPress = onPress;
    this.onHover = onHover;
    this.zoom = 1;
    this.current = "root"; // the key of the tab stop
    /** @type {Layout | null} */
    this.layout = null;
    /** @type {Map<string, Item>} */
    this.items = new Map();
    /** @type {number[]} */
    this.positions = [];
    /** @type {[width: number, height: number]} */
    this.size = [0, 0];
    /** @type {Position} */
    this.position = { depth: null, step: null, growing: false };
    /** @type {Map<string, SVGElement>} */
    this.nodes = new Map();
    /** @type {Map<string, SVGElement>} */
    this.edges = new Map();
    /** @type {WeakMap<Item, { label: string, extras: string, width: number }>} */
    this.labels = new WeakMap();
    /** the part of the tree that is drawn */
    this.drawn = { left: 0, top: 0, right: 0, bottom: 0 };
    this.dragged = false;
    this.followed = false;
    this.frame = 0;

    this.figure = make("figure", "tree");
    const caption = make("figcaption");
    this.heading = make("h3");
    this.summary = make("p", "summary");
    caption.append(this.heading, make("p", "settings", run.settings), this.summary);
    this.box = make("div", "box");
    this.svg = svg("svg");
    this.canvas = svg("g");
    this.ruler = svg("g", { class: "ruler", "aria-hidden": "true" });
    this.edgeLayer = svg("g", { class: "lines", "aria-hidden": "true" });
    this.nodeLayer = svg("g", { class: "nodes", role: "tree" });
    this.canvas.append(this.ruler, this.edgeLayer, this.nodeLayer);
    this.svg.append(this.canvas);
    this.box.append(this.svg);
    this.figure.append(caption, this.box);
    this.#listen();
  }

  #listen() {
    const itemAt = (/** @type {Event} */ event) => {
      const node = event.target instanceof Element ? event.target.closest("[data-key]") : null;
      return node instanceof SVGElement ? this.items.get(node.dataset.key ?? "") : undefined;
    };
    this.box.addEventListener("scroll", () => {
      this.frame ||= requestAnimationFrame(() => {
        this.frame = 0;
        this.#paintScrolled();
      });
    }, { passive: true });
    this.svg.addEventListener("click", (event) => {
      const item = itemAt(event);
      if (item && !this.dragged) this.onPress(item);
    });
    for (const kind of ["pointerover", "focusin"]) {
      this.svg.addEventListener(kind, (event) => {
        const item = itemAt(event);
        if (item && kind === "focusin") this.#moveTabStop(item.key);
        this.onHover(item, item && this.nodes.get(item.key));
      });
    }
    for (const kind of ["pointerleave", "focusout"]) this.svg.addEventListener(kind, () => this.onHover());
    this.svg.addEventListener("keydown", (event) => this.#onKey(event));
    this.box.addEventListener("pointerdown", (event) => this.#drag(event));
  }

  /**
   * Pans with the mouse; touch scrolls by itself.
   * @param {PointerEvent} start
   */
  #drag(start) {
    this.dragged = false;
    if (start.pointerType !== "mouse" || start.button !== 0) return;
    const [left, top] = [this.box.scrollLeft, this.box.scrollTop];
    const move = (/** @type {PointerEvent} */ event) => {
      const [x, y] = [event.clientX - start.clientX, event.clientY - start.clientY];
      if (Math.hypot(x, y) > 4) this.dragged = true;
      if (this.dragged) this.box.scrollTo({ left: left - x, top: top - y, behavior: "instant" });
    };
    const stop = () => removeEventListener("pointermove", move);
    addEventListener("pointermove", move);
    addEventListener("pointerup", stop, { once: true });
    addEventListener("pointercancel", stop, { once: true });
  }

  // --- keyboard: one tab stop, arrows move to parent, child and neighbour ---------------------------

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    const item = this.items.get(this.current);
    if (!item || event.ctrlKey || event.metaKey || event.altKey) return;
    /** @type {Record<string, () => Item | null | undefined>} */
    const moves = {
      ArrowLeft: () => item.parent,
      ArrowRight: () => item.children[0],
      ArrowUp: () => this.#neighbour(item, -1),
      ArrowDown: () => this.#neighbour(item, 1),
      Home: () => this.layout?.items[0],
      End: () => deepest(item),
    };
    const move = moves[event.key];
    if (move) this.#focus(move());
    else if (event.key === "Enter" || event.key === " ") this.onPress(item);
    else return;
    event.preventDefault();
    event.stopPropagation(); // the page has its own shortcuts
  }

  /**
   * The next sibling, else the next node at the same depth.
   * @param {Item} item
   * @param {number} by
   */
  #neighbour(item, by) {
    const siblings = item.parent?.children ?? [];
    const sibling = siblings[siblings.indexOf(item) + by];
    if (sibling) return sibling;
    const items = this.layout?.items ?? [];
    const beside = items.filter((other) => other.depth === item.depth && (other.row - item.row) * by > 0);
    return beside.sort((one, other) => (one.row - other.row) * by)[0];
  }

  /** @param {Item | null | undefined} item */
  #focus(item) {
    if (!item) return;
    this.#moveTabStop(item.key);
    this.#scrollTo(item);
    this.nodes.get(item.key)?.focus({ preventScroll: true });
  }

  /** @param {string} key */
  #moveTabStop(key) {
    this.nodes.get(this.current)?.setAttribute("tabindex", "-1");
    this.current = key;
    this.nodes.get(key)?.setAttribute("tabindex", "0");
  }

  /** @param {Item} [item] */
  #scrollTo(item) {
    if (!item) return;
    const [x, y] = [this.#left(item) * this.zoom, this.#middle(item) * this.zoom];
    const { scrollLeft, scrollTop, clientWidth, clientHeight } = this.box;
    /** @type {(at: number, from: number, size: number, room: number) => number} */
    const within = (at, from, size, room) => (at < from + 20 ? at - 40 : at + room > from + size ? at + room - size : from);
    this.box.scrollTo({
      left: within(x, scrollLeft, clientWidth, this.#width(item) * this.zoom + 40),
      top: within(y - PILL, scrollTop, clientHeight, 2 * PILL),
      behavior: "instant",
    });
    this.#paintScrolled();
  }

  // --- geometry -------------------------------------------------------------------------------------

  /** @param {Item} item */
  #left(item) {
    return this.positions[item.depth + 1] + 8;
  }

  /** @param {Item} item */
  #middle(item) {
    return TOP + item.row * ROW + ROW / 2;
  }

  /** @param {Item} item */
  #room(item) {
    return this.positions[item.last + 2] - this.positions[item.depth + 1] - 30;
  }

  /**
   * The number of texts where it changes, and the bank of a constrained search.
   * @param {Item} item
   */
  #extras(item) {
    const bank = newestStep(item.nodes[item.nodes.length - 1])?.notes.bank;
    const count = countOf(item.node);
    const changes = count > 1 && item.parent && (item.depth === 0 || count !== countOf(item.parent.node));
    return (changes ? ` ×${count}` : "") + (isNumber(bank) && bank ? ` ◆${bank}` : "");
  }

  /**
   * A node's label and the width of its box.
   * @param {Item} item
   */
  #label(item) {
    const known = this.labels.get(item);
    if (known) return known;
    const extras = this.#extras(item);
    const whole = item.kind === "origin" ? "prompt" : tokensOf(item);
    const room = Math.floor((this.#room(item) - 24) / CHARACTER) - widthOf(extras);
    const label = truncate(whole, Math.max(3, room));
    const width = Math.min(this.#room(item), 26 + (widthOf(label) + widthOf(extras)) * CHARACTER);
    this.labels.set(item, { label, extras, width });
    return { label, extras, width };
  }

  /** @param {Item} item */
  #width(item) {
    return this.#label(item).width;
  }

  // --- drawing --------------------------------------------------------------------------------------

  /**
   * @param {string} title
   * @param {Layout} layout
   * @param {number[]} positions the x positions of the depths
   * @param {number} zoom
   * @param {Position} position
   */
  update(title, layout, positions, zoom, position) {
    const atEnd = this.box.scrollLeft + this.box.clientWidth >= this.box.scrollWidth - 8;
    const following = position.growing && atEnd;
    const moved = position.step !== null && position.step !== this.position.step;
    this.layout = layout;
    this.positions = positions;
    this.zoom = zoom;
    this.position = position;
    this.labels = new WeakMap();
    this.items = new Map(layout.items.map((item) => [item.key, item]));
    if (!this.items.has(this.current)) this.current = "root";
    const [width, height] = [positions[layout.depths] + 24, TOP + layout.rows * ROW + 8];
    this.size = [width, height];
    this.svg.setAttribute("width", String(width * zoom));
    this.svg.setAttribute("height", String(height * zoom));
    this.canvas.setAttribute("transform", `scale(${zoom})`);
    this.svg.classList.toggle("far", zoom < FAR);
    this.heading.textContent = title;
    this.nodeLayer.setAttribute("aria-label", `Tree of ${title}`);
    const counts = Object.entries(layout.counts).filter(([, count]) => count);
    this.summary.textContent = counts.map(([kind, count]) => `${count} ${kind}`).join(" · ");
    // The last update of a run does not grow: who followed it to its end stays there.
    if (following || (this.followed && this.run.end && !moved)) this.box.scrollLeft = this.box.scrollWidth;
    this.followed = following;
    if (moved) this.#scrollTo(this.#itemOf(position.step));
    this.paint();
  }

  /**
   * The item that shows a step, if it is drawn.
   * @param {number | null} step
   */
  #itemOf(step) {
    return this.layout?.items.find((item) => item.nodes.some((node) => node.steps.some(({ id }) => id === step)));
  }

  /** The visible part of the tree, with a margin in pixels. */
  #window(margin = 0) {
    const { scrollLeft, scrollTop, clientWidth, clientHeight } = this.box;
    const [left, top] = [(scrollLeft - margin) / this.zoom, (scrollTop - margin) / this.zoom];
    return {
      left, top, right: left + (clientWidth + 2 * margin) / this.zoom, bottom: top + (clientHeight + 2 * margin) / this.zoom,
    };
  }

  // Draws a little at a time, before it is visible.
  #paintScrolled() {
    const [now, { left, top, right, bottom }] = [this.#window(MARGIN - BATCH), this.drawn];
    if (now.left < left || now.top < top || now.right > right || now.bottom > bottom) this.paint(false);
  }

  /**
   * Draws what lies in the box or near it.
   * @param {boolean} changed whether what is drawn already has to be drawn again
   */
  paint(changed = true) {
    if (!this.layout) return;
    this.drawn = this.#window(MARGIN);
    const { left, top, right, bottom } = this.drawn;
    /** @type {Set<string>} */
    const nodes = new Set();
    /** @type {Set<string>} */
    const edges = new Set();
    for (const item of this.layout.items) {
      const [x, y] = [this.#left(item), this.#middle(item)];
      const inside = x < right && x + this.#room(item) > left;
      if ((inside && y > top && y < bottom) || item.key === this.current) nodes.add(item.key);
      const from = item.parent;
      if (from && x > left && this.#left(from) < right && y > top && this.#middle(from) < bottom) edges.add(item.key);
    }
    this.#sync(this.nodes, this.nodeLayer, nodes, changed, (item, known) => this.#node(item, known));
    this.#sync(this.edges, this.edgeLayer, edges, changed, (item, known) => this.#edge(item, known));
    this.#drawRuler(left, right);
  }

  /**
   * Removes what is no longer visible and draws what is.
   * @param {Map<string, SVGElement>} known
   * @param {SVGElement} layer
   * @param {Set<string>} visible
   * @param {boolean} changed
   * @param {(item: Item, known: SVGElement | undefined) => SVGElement} drawItem
   */
  #sync(known, layer, visible, changed, drawItem) {
    for (const [key, element] of known) {
      if (visible.has(key)) continue;
      element.remove();
      known.delete(key);
    }
    const added = document.createDocumentFragment();
    for (const key of visible) {
      const item = this.items.get(key);
      const before = known.get(key);
      if (!item || (before && !changed)) continue;
      const element = drawItem(item, before);
      if (!before) added.append(element);
      known.set(key, element);
    }
    layer.append(added);
  }

  /**
   * The width of an edge is the model's probability of the token it leads to.
   * @param {Item} item
   * @param {SVGElement} [known]
   */
  #edge(item, known = svg("path")) {
    const from = item.parent;
    if (!from) return known;
    const [x, y] = [this.#left(item), this.#middle(item)];
    const [start, height] = [this.#left(from) + this.#width(from), this.#middle(from)];
    const bend = Math.max(start, x - 26);
    const path = y === height ? `M${start} ${height}H${x}` : `M${start} ${height}H${bend}C${x - 8} ${height} ${x - 18} ${y} ${x} ${y}`;
    known.setAttribute("d", path);
    const { raw } = newestStep(item.node);
    known.setAttribute("stroke-width", (1 + 5 * (raw ?? 0)).toFixed(2));
    known.setAttribute("class", classesOf(item) + (raw === null ? " unseen" : ""));
    return known;
  }

  /**
   * @param {Item} item
   * @param {SVGElement} [known]
   */
  #node(item, known) {
    const element = known ?? svg("g", { role: "treeitem" });
    if (!known) {
      element.append(svg("rect", { y: -PILL / 2, height: PILL }));
      element.dataset.key = item.key;
    }
    if (this.zoom < FAR) while (element.children.length > 1) element.lastChild?.remove();
    else if (element.children.length === 1) {
      element.append(svg("path", { class: "glyph", transform: "translate(12 0)" }), svg("text", { x: 22, y: 4 }));
    }
    const [rect, glyph, text] = element.children;
    const { step: selected } = this.position;
    const pinned = selected !== null && item.nodes.some((node) => node.steps.some((step) => step.id === selected));
    const forced = newestStep(item.nodes[item.nodes.length - 1])?.notes.forced;
    const folded = item.nodes.length > 1;
    element.setAttribute("class", classesOf(item) + (folded ? " folded" : "") + (pinned ? " pinned" : "") + (forced ? " forced" : ""));
    element.setAttribute("transform", `translate(${this.#left(item)} ${this.#middle(item)})`);
    element.setAttribute("tabindex", item.key === this.current ? "0" : "-1");
    element.setAttribute("aria-level", String(item.depth + 2));
    element.setAttribute("aria-selected", String(pinned));
    element.setAttribute("aria-label", accessibleName(item));
    rect.setAttribute("width", String(this.#width(item)));
    rect.setAttribute("rx", String(item.kind === "kept" || item.kind === "origin" ? PILL / 2 : 3));
    glyph?.setAttribute("d", GLYPHS[item.kind]);
    if (text instanceof SVGElement) this.#write(text, item);
    return element;
  }

  /**
   * Writes a label with its visible white space in a weaker colour.
   * @param {SVGElement} text
   * @param {Item} item
   */
  #write(text, item) {
    const { label, extras } = this.#label(item);
    if (text.dataset.words === label + extras) return;
    text.dataset.words = label + extras;
    text.replaceChildren();
    const pieces = label.split(/([␣⏎⇥]+)/).map((piece, at) => [at % 2 ? "space" : "", piece]);
    for (const [name, piece] of [...pieces, ["extra", extras]]) {
      if (!piece) continue;
      const span = svg("tspan", name ? { class: name } : {});
      span.textContent = piece;
      text.append(span);
    }
  }

  /**
   * Numbers the depths and marks the selected one.
   * @param {number} left
   * @param {number} right
   */
  #drawRuler(left, right) {
    this.ruler.replaceChildren();
    const depths = (this.layout?.depths ?? 0) - 1;
    for (let depth = 0; depth < depths; depth++) {
      const x = this.positions[depth + 1] + 8;
      if (x < left || x > right || this.positions[depth + 2] - this.positions[depth + 1] < COLUMN_WIDTH) continue;
      const number = svg("text", { x: x + 4, y: 16 });
      number.textContent = String(this.run.before.length + depth + 1);
      this.ruler.append(number);
    }
    const selected = this.position.depth;
    if (selected === null || selected < 0 || selected >= depths) return;
    const x = this.positions[selected + 1] + 2;
    this.ruler.append(svg("line", { x1: x, x2: x, y1: 0, y2: this.size[1] }));
  }
}

/** @param {Item} item */
function deepest(item) {
  let end = item;
  while (end.children.length) end = end.children[0];
  return end;
}

/**
 * Classes that edges and nodes share.
 * @param {Item} item
 */
function classesOf(item) {
  const { through, dropped } = item.node;
  const on = through.includes(0) ? " on best" : through.length ? " on" : "";
  const group = item.group === null ? "" : ` group-${item.group % 4}`;
  return item.kind + on + group + (dropped ? " dropped" : "");
}
