// Trees side by side at one scale, with their toolbar, legend and tooltip. The page and the HTML report
// share it.

import { button, closest, make, part, placeCard, svg } from "./dom.js";
import { visible } from "./format.js";
import { GLYPHS, TreeFigure } from "./tree_figure.js";
import { depthPositions, layOut, newestStep } from "./tree_layout.js";
import { pathText, tokensOf, tooltipLines } from "./tree_text.js";

/** @typedef {import("./tree_figure.js").Position} Position */
/** @typedef {import("./tree_layout.js").Item} Item */
/** @typedef {import("./tree_layout.js").Layout} Layout */
/** @typedef {import("./tree_layout.js").TreeRun} TreeRun */

/**
 * @typedef {object} Tree what to draw of a run
 * @property {TreeRun} run
 * @property {string} title
 * @property {number} version changes whenever the run does
 * @property {(number | null)[]} leads the last steps of the sequences to mark, best first
 * @property {boolean} final whether these sequences decide the order of the branches
 * @property {number} limit the depth up to which steps are shown
 * @property {Position} position
 */

/**
 * @typedef {object} Entry a figure on the page
 * @property {TreeFigure} figure
 * @property {Set<string>} expanded the collapsed paths that the user expanded
 * @property {string} state what its layout was made from
 * @property {Layout | null} layout
 */

const [SMALLEST, LARGEST] = [0.2, 2.5]; // zoom
const GROUP_COLOURS = 4;

/** @type {Record<string, string>} */
const LEGEND = {
  kept: "kept", pruned: "pruned or rejected", drafted: "drafted", finished: "finished hypothesis", returned: "ends a returned sequence",
};

export class TreePanel {
  /**
   * @param {HTMLElement} element holds the elements of tree_panel.html
   * @param {(run: TreeRun, item: Item) => void} onSelect called when a node is clicked
   */
  constructor(element, onSelect) {
    this.element = element;
    this.onSelect = onSelect;
    this.options = { collapsing: true, pruned: true };
    this.zoom = 1;
    this.fitted = false; // the zoom follows the size of the trees
    /** @type {Tree[]} */
    this.trees = [];
    /** @type {Map<TreeRun, Entry>} */
    this.entries = new Map();
    /** @type {{ key: string, figure: TreeFigure } | null} the node that the tooltip is about */
    this.hovered = null;
    this.timer = 0;
    this.tools = part(element, "tools");
    this.forest = part(element, "forest");
    this.legend = part(element, "legend");
    this.tooltip = part(element, "card");
    this.#buildTools();
    this.#listen();
  }

  /** @param {Tree[]} trees */
  show(trees) {
    this.trees = trees;
    this.tools.hidden = this.legend.hidden = !trees.length;
    if (!trees.length) return;
    const entries = trees.map(({ run }) => this.#entryOf(run));
    const figures = entries.map((entry) => entry.figure.figure);
    const shown = [...this.forest.children];
    if (shown.length !== figures.length || shown.some((figure, at) => figure !== figures[at])) {
      this.forest.replaceChildren(...figures);
    }
    const layouts = trees.map((tree, at) => this.#layoutOf(tree, entries[at]));
    const positions = depthPositions(layouts);
    const update = () => trees.forEach(({ title, position }, at) => {
      entries[at].figure.update(title, layouts[at], positions, this.zoom, position);
    });
    update();
    const fit = this.fitted ? this.#fittingZoom() : this.zoom;
    if (Math.abs(fit - this.zoom) > 0.001) {
      this.zoom = fit;
      update();
    }
    this.#drawLegend(layouts);
    this.#refreshTools();
    this.#refreshTooltip();
  }

  /**
   * Shows elements instead of trees.
   * @param {...HTMLElement} content
   */
  showEmpty(...content) {
    this.show([]);
    this.forest.replaceChildren(...content);
  }

  /** Forgets all trees. */
  clear() {
    this.trees = [];
    this.entries.clear();
    this.#hideTooltip();
  }

  /** @param {TreeRun} run */
  #entryOf(run) {
    let entry = this.entries.get(run);
    if (!entry) {
      const figure = new TreeFigure(run, {
        onPress: (item) => this.#press(run, item),
        onHover: (item, anchor) => this.#hover(figure, item, anchor),
      });
      entry = { figure, expanded: new Set(), state: "", layout: null };
      this.entries.set(run, entry);
    }
    return entry;
  }

  /**
   * The layout of a tree; kept while nothing changes, because often one tree grows and others are done.
   * @param {Tree} tree
   * @param {Entry} entry
   */
  #layoutOf({ run, version, leads, final, limit }, entry) {
    const { collapsing, pruned } = this.options;
    const state = [version, limit, collapsing, pruned, entry.expanded.size].join();
    if (entry.layout && entry.state === state) return entry.layout;
    entry.state = state;
    entry.layout = layOut(run, { leads, final, limit, collapsing, pruned, expanded: entry.expanded });
    return entry.layout;
  }

  /**
   * @param {TreeRun} run
   * @param {Item} item
   */
  #press(run, item) {
    if (item.nodes.length > 1) {
      this.entries.get(run)?.expanded.add(item.key);
      this.show(this.trees);
    } else if (item.kind !== "origin") {
      this.onSelect(run, item);
    }
  }

  // --- tooltip --------------------------------------------------------------------------------------

  /**
   * @param {TreeFigure} figure
   * @param {Item} [item]
   * @param {SVGElement} [anchor]
   */
  #hover(figure, item, anchor) {
    clearTimeout(this.timer);
    if (!item || !anchor || item.kind === "origin") {
      this.timer = setTimeout(() => this.#hideTooltip(), 150);
      return;
    }
    this.hovered = { key: item.key, figure };
    this.#showTooltip(item, anchor, figure);
  }

  #hideTooltip() {
    this.hovered = null;
    this.tooltip.hidden = true;
  }

  // After a redraw the tooltip shows the same node with its newest numbers.
  #refreshTooltip() {
    if (!this.hovered) return;
    const { key, figure } = this.hovered;
    const [item, anchor] = [figure.items.get(key), figure.nodes.get(key)];
    if (item && anchor && figure.figure.isConnected) this.#showTooltip(item, anchor, figure);
    else this.#hideTooltip();
  }

  /**
   * @param {Item} item
   * @param {SVGElement} anchor
   * @param {TreeFigure} figure
   */
  #showTooltip(item, anchor, { run }) {
    const folded = item.nodes.length > 1;
    const title = make("p", "title", folded ? tokensOf(item) : visible(newestStep(item.node).token));
    const list = make("dl");
    const lines = tooltipLines(item, run);
    if (folded) lines.unshift(["collapsed", `${item.nodes.length} tokens; click to expand. Last token:`]);
    for (const [name, value] of lines) list.append(make("dt", "", name), make("dd", "", value));
    const path = pathText(item.nodes[item.nodes.length - 1]).slice(-160);
    this.tooltip.replaceChildren(title, list, make("p", "path", "…" + path));
    this.tooltip.hidden = false;
    anchor.setAttribute("aria-describedby", this.tooltip.id);
    placeCard(this.tooltip, anchor.getBoundingClientRect(), 8);
  }

  // --- toolbar --------------------------------------------------------------------------------------

  #buildTools() {
    /** @type {["collapsing" | "pruned", string, string][]} */
    const options = [
      ["collapsing", "collapse paths", "Draw a path without branches as one node."],
      ["pruned", "pruned", "Show pruned candidates and beams whose continuations were all pruned."],
    ];
    this.switches = options.map(([option, text, help]) => {
      const node = button("", text, () => {
        this.options[option] = !this.options[option];
        if (option === "collapsing") for (const { expanded } of this.entries.values()) expanded.clear();
        this.show(this.trees);
      });
      node.title = help;
      part(this.element, "switches").append(node);
      return { node, option };
    });
    const zoom = (/** @type {string} */ text, /** @type {string} */ label, /** @type {() => void} */ act) => {
      const node = button("", text, act);
      node.setAttribute("aria-label", label);
      part(this.element, "zoom").append(node);
      return node;
    };
    zoom("−", "Zoom out", () => this.#zoomTo(this.zoom / 1.25));
    this.zoomReset = zoom("100 %", "Original size", () => this.#zoomTo(1));
    zoom("+", "Zoom in", () => this.#zoomTo(this.zoom * 1.25));
    this.fitButton = zoom("fit", "Fit the trees into their boxes", () => this.#fit());
  }

  #refreshTools() {
    for (const { node, option } of this.switches ?? []) node.setAttribute("aria-pressed", String(this.options[option]));
    this.fitButton?.setAttribute("aria-pressed", String(this.fitted));
    if (this.zoomReset) this.zoomReset.textContent = `${Math.round(this.zoom * 100)} %`;
  }

  /**
   * Zooms all trees. The given point of a box stays where it is.
   * @param {number} zoom
   * @param {Element | null} box
   */
  #zoomTo(zoom, box = null, x = 0, y = 0) {
    this.fitted = false;
    const next = Math.max(SMALLEST, Math.min(LARGEST, zoom));
    const by = next / this.zoom;
    this.zoom = next;
    const scrolls = [...this.entries.values()].map(({ figure: { box: each } }) => {
      const [dx, dy] = each === box ? [x, y] : [0, 0];
      return { each, left: (each.scrollLeft + dx) * by - dx, top: (each.scrollTop + dy) * by - dy };
    });
    this.show(this.trees);
    for (const { each, left, top } of scrolls) each.scrollTo({ left, top, behavior: "instant" });
  }

  /** Fits the trees into their boxes, now and after every change, until the visitor zooms. */
  #fit() {
    this.fitted = true;
    this.show(this.trees);
  }

  #fittingZoom() {
    const fits = this.trees.map(({ run }) => {
      const { box, size: [width, height] } = this.#entryOf(run).figure;
      const room = parseFloat(getComputedStyle(box).maxHeight) || box.clientHeight;
      return Math.min(box.clientWidth / width, room / height);
    });
    return Math.max(SMALLEST, Math.min(1, ...fits));
  }

  #listen() {
    // A scroll moves the nodes away from the pointer, but a focused node keeps its tooltip.
    addEventListener("scroll", () => {
      if (!this.hovered) return;
      const { key, figure } = this.hovered;
      if (figure.nodes.get(key) === document.activeElement) this.#refreshTooltip();
      else this.#hideTooltip();
    }, { passive: true, capture: true });
    this.element.addEventListener("keydown", (event) => event.key === "Escape" && this.#hideTooltip());
    this.element.addEventListener("wheel", (event) => {
      const box = closest(event, ".box");
      if (!box || !event.ctrlKey) return;
      event.preventDefault();
      const frame = box.getBoundingClientRect();
      this.#zoomTo(this.zoom * Math.exp(-event.deltaY / 300), box, event.clientX - frame.left, event.clientY - frame.top);
    }, { passive: false });
    this.#pinch();
    new ResizeObserver(() => {
      if (this.fitted) this.show(this.trees);
      for (const { figure } of this.entries.values()) if (figure.figure.isConnected) figure.paint();
    }).observe(this.element);
  }

  // Two fingers zoom the trees instead of the page.
  #pinch() {
    /** @type {{ spread: number, zoom: number } | null} */
    let start = null;
    const spread = (/** @type {TouchList} */ touches) =>
      Math.hypot(touches[0].clientX - touches[1].clientX, touches[0].clientY - touches[1].clientY);
    this.element.addEventListener("touchstart", (event) => {
      const pinching = event.touches.length === 2 && closest(event, ".box");
      start = pinching ? { spread: spread(event.touches), zoom: this.zoom } : null;
    }, { passive: true });
    this.element.addEventListener("touchmove", (event) => {
      const box = closest(event, ".box");
      if (!start || !box || event.touches.length !== 2) return;
      event.preventDefault();
      const frame = box.getBoundingClientRect();
      const [one, other] = event.touches;
      const [x, y] = [(one.clientX + other.clientX) / 2 - frame.left, (one.clientY + other.clientY) / 2 - frame.top];
      this.#zoomTo((start.zoom * spread(event.touches)) / start.spread, box, x, y);
    }, { passive: false });
  }

  // --- legend ---------------------------------------------------------------------------------------

  /**
   * Explains the marks that are on the page.
   * @param {Layout[]} layouts
   */
  #drawLegend(layouts) {
    const items = layouts.flatMap((layout) => layout.items);
    const groups = Math.max(0, ...items.map((item) => (item.group ?? -1) + 1));
    const banks = items.some((item) => newestStep(item.node)?.notes.bank);
    const kinds = Object.entries(LEGEND).filter(([kind]) => items.some((item) => item.nodes.some((node) => node.kind === kind)));
    const entries = [
      ...kinds,
      ...Array.from({ length: groups }, (_, group) => [`swatch group-${group % GROUP_COLOURS}`, `group ${group + 1}`]),
      ...(banks ? [["", "◆ bank: constraint tokens so far"], ["forced", "considered for a constraint"]] : []),
      ["", "thicker edge: more probable"],
    ];
    const state = JSON.stringify(entries);
    if (this.legend.dataset.state === state) return;
    this.legend.dataset.state = state;
    this.legend.replaceChildren(...entries.map(([name, text]) => {
      const entry = make("span");
      if (name) entry.append(sample(name));
      entry.append(text);
      return entry;
    }));
  }
}

/** @param {string} name */
function sample(name) {
  const picture = svg("svg", { width: 18, height: 16, viewBox: "-9 -8 18 16", "aria-hidden": "true" });
  const group = svg("g", { class: name });
  const glyph = GLYPHS[name];
  group.append(glyph ? svg("path", { class: "glyph", d: glyph }) : svg("rect", { x: -8, y: -6, width: 16, height: 12, rx: 3 }));
  picture.append(group);
  return picture;
}
