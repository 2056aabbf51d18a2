// One tree as SVG in a box that scrolls. Only what can be seen is in the document: a search of 300
// steps has thousands of nodes. Knows layouts and the pointer. Refuses to know what else the page shows.

const [ROW, TOP, PILL, LETTER, MARGIN] = [30, 30, 24, 7.25, 300];
const GLYPHS = {
  kept: "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
  pruned: "M-4 -4L4 4M4 -4L-4 4",
  drafted: "M0 -5L5 0L0 5L-5 0z",
  finished: "M-4.5 -4.5H4.5V4.5H-4.5z",
  returned: "M0 -6.5L1.8 -2.2L6.4 -1.9L2.8 1L4 5.5L0 3L-4 5.5L-2.8 1L-6.4 -1.9L-1.8 -2.2z",
  origin: "M-4 -5L5 0L-4 5z",
};

class TreeBox {
  // `press(item)` is told of a press, `look(item, element)` of what the pointer or the focus is on.
  constructor(run, { press, look }) {
    Object.assign(this, { run, press, look, zoom: 1, current: "root", layout: null, elements: new Map(), edges: new Map() });
    this.figure = make("figure", "tree");
    const caption = make("figcaption");
    this.summary = make("p", "summary");
    this.heading = make("h3");
    caption.append(this.heading, make("p", "settings", run.settings), this.summary);
    this.box = make("div", "box");
    this.svg = draw("svg");
    this.space = draw("g");
    [this.ruler, this.lines, this.nodes] = ["ruler", "lines", "nodes"].map((name) => draw("g", { class: name }));
    this.ruler.setAttribute("aria-hidden", "true");
    this.lines.setAttribute("aria-hidden", "true");
    this.nodes.setAttribute("role", "tree");
    this.space.append(this.ruler, this.lines, this.nodes);
    this.svg.append(this.space);
    this.box.append(this.svg);
    this.figure.append(caption, this.box);
    this.listen();
  }

  listen() {
    const itemAt = (event) => this.items?.get(event.target.closest?.("[data-key]")?.dataset.key);
    this.box.addEventListener("scroll", () => {
      this.frame ||= requestAnimationFrame(() => ((this.frame = 0), this.paint()));
    }, { passive: true });
    this.svg.addEventListener("click", (event) => {
      const item = itemAt(event);
      if (item && !this.dragged) this.press(item);
    });
    for (const kind of ["pointerover", "focusin"]) {
      this.svg.addEventListener(kind, (event) => {
        const item = itemAt(event);
        if (item && kind === "focusin") this.rove(item.key);
        this.look(item, item && this.elements.get(item.key), this);
      });
    }
    for (const kind of ["pointerleave", "focusout"]) this.svg.addEventListener(kind, () => this.look(undefined));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("pointerdown", (event) => this.drag(event));
  }

  // Drag to pan, for a mouse: fingers scroll by themselves.
  drag(start) {
    this.dragged = false;
    if (start.pointerType !== "mouse" || start.button !== 0) return;
    const [left, top] = [this.box.scrollLeft, this.box.scrollTop];
    const move = (event) => {
      const [x, y] = [event.clientX - start.clientX, event.clientY - start.clientY];
      if (Math.hypot(x, y) > 4) this.dragged = true;
      if (this.dragged) this.box.scrollTo({ left: left - x, top: top - y, behavior: "instant" });
    };
    const stop = () => removeEventListener("pointermove", move);
    addEventListener("pointermove", move);
    addEventListener("pointerup", stop, { once: true });
    addEventListener("pointercancel", stop, { once: true });
  }

  // --- keys: one tab stop, arrows go to parent, child and neighbour ----------------------------------

  key(event) {
    const item = this.items.get(this.current);
    if (!item || event.ctrlKey || event.metaKey || event.altKey) return;
    const next = {
      ArrowLeft: () => item.parent,
      ArrowRight: () => item.children[0],
      ArrowUp: () => this.neighbour(item, -1),
      ArrowDown: () => this.neighbour(item, 1),
      Home: () => this.layout.items[0],
      End: () => this.deepest(item),
    }[event.key];
    if (next) this.focus(next());
    else if (event.key === "Enter" || event.key === " ") this.press(item);
    else return;
    event.preventDefault();
    event.stopPropagation(); // the page has keys of its own
  }

  // The next sibling, else the next node at the same depth.
  neighbour(item, by) {
    const siblings = item.parent?.children ?? [];
    const sibling = siblings[siblings.indexOf(item) + by];
    if (sibling) return sibling;
    const beside = this.layout.items.filter((other) => other.depth === item.depth && (other.row - item.row) * by > 0);
    return beside.sort((one, other) => (one.row - other.row) * by)[0];
  }

  deepest(item) {
    while (item.children.length) item = item.children[0];
    return item;
  }

  focus(item) {
    if (!item) return;
    this.rove(item.key);
    this.reveal(item);
    this.elements.get(item.key)?.focus({ preventScroll: true });
  }

  rove(key) {
    this.elements.get(this.current)?.setAttribute("tabindex", "-1");
    this.current = key;
    this.elements.get(key)?.setAttribute("tabindex", "0");
  }

  reveal(item) {
    const [x, y] = [this.left(item) * this.zoom, this.middle(item) * this.zoom];
    const { scrollLeft, scrollTop, clientWidth, clientHeight } = this.box;
    const within = (at, from, size, room) => (at < from + 20 ? at - 40 : at + room > from + size ? at + room - size : from);
    this.box.scrollTo({
      left: within(x, scrollLeft, clientWidth, this.pill(item) * this.zoom + 40),
      top: within(y - PILL, scrollTop, clientHeight, 2 * PILL),
      behavior: "instant",
    });
    this.paint();
  }

  // --- places ---------------------------------------------------------------------------------------------

  left(item) {
    return this.places[item.depth + 1] + 8;
  }

  middle(item) {
    return TOP + item.row * ROW + ROW / 2;
  }

  room(item) {
    return this.places[item.last + 2] - this.places[item.depth + 1] - 30;
  }

  extras(item) {
    const { notes } = leadStep(item.nodes.at(-1)) ?? { notes: {} };
    const count = countOf(item.node);
    // Said where it changes: on a path that does not part it would be said over and over.
    const forks = count > 1 && item.parent && (item.depth === 0 || count !== countOf(item.parent.node));
    return (forks ? ` ×${count}` : "") + (isNumber(notes.bank) && notes.bank ? ` ◆${notes.bank}` : "");
  }

  label(item) {
    const whole = item.kind === "origin" ? "prompt" : spelled(item);
    const room = Math.floor((this.room(item) - 24) / LETTER) - widthOf(this.extras(item));
    return shortened(whole, Math.max(3, room));
  }

  pill(item) {
    return Math.min(this.room(item), 26 + (widthOf(this.label(item)) + widthOf(this.extras(item))) * LETTER);
  }

  // --- drawing ----------------------------------------------------------------------------------------------

  // Takes a new layout; `marked` is the depth that is pinned, `pinned` the step
  // there that is meant.
  update(layout, places, zoom, { marked, pinned, replay }) {
    const following = !this.run.end && !replay && this.box.scrollLeft + this.box.clientWidth >= this.box.scrollWidth - 8;
    Object.assign(this, { layout, places, zoom, marked, pinned });
    this.items = new Map(layout.items.map((item) => [String(item.key), item]));
    for (const item of layout.items) item.key = String(item.key);
    if (!this.items.has(this.current)) this.current = "root";
    const [width, height] = [places[layout.depths] + 24, TOP + layout.rows * ROW + 8];
    this.size = [width, height];
    this.svg.setAttribute("width", width * zoom);
    this.svg.setAttribute("height", height * zoom);
    this.space.setAttribute("transform", `scale(${zoom})`);
    this.svg.classList.toggle("far", zoom < 0.55);
    this.heading.textContent = store.title(this.run);
    this.nodes.setAttribute("aria-label", `Tree of ${store.title(this.run)}`);
    const told = Object.entries(layout.counts).filter(([, count]) => count);
    this.summary.textContent = told.map(([kind, count]) => `${count} ${kind}`).join(" · ");
    if (following) this.box.scrollLeft = this.box.scrollWidth;
    else if (this.followed && this.run.end) this.box.scrollLeft = 0; // a finished tree is read from its root
    this.followed = following;
    this.paint();
  }

  // Draws what lies in the box or near it.
  paint() {
    if (!this.layout) return;
    const { scrollLeft, scrollTop, clientWidth, clientHeight } = this.box;
    const [left, top] = [scrollLeft / this.zoom - MARGIN, scrollTop / this.zoom - MARGIN];
    const [right, bottom] = [left + clientWidth / this.zoom + 2 * MARGIN, top + clientHeight / this.zoom + 2 * MARGIN];
    const [nodes, edges] = [new Set(), new Set()];
    for (const item of this.layout.items) {
      const [x, y] = [this.left(item), this.middle(item)];
      const inside = x < right && x + this.room(item) > left;
      if ((inside && y > top && y < bottom) || item.key === this.current) nodes.add(item.key);
      const from = item.parent;
      if (from && x > left && this.left(from) < right && y > top && this.middle(from) < bottom) edges.add(item.key);
    }
    this.keep(this.elements, this.nodes, nodes, (item, known) => this.node(item, known));
    this.keep(this.edges, this.lines, edges, (item, known) => this.edge(item, known));
    this.measure(left, right);
  }

  keep(known, group, wanted, make) {
    for (const [key, element] of known) {
      if (!wanted.has(key)) {
        element.remove();
        known.delete(key);
      }
    }
    for (const key of wanted) {
      const element = make(this.items.get(key), known.get(key));
      if (!known.has(key)) group.append(element);
      known.set(key, element);
    }
  }

  // The edge's width is the model's probability of the token it leads to.
  edge(item, known = draw("path")) {
    const from = item.parent;
    const [x, y] = [this.left(item), this.middle(item)];
    const [start, height] = [this.left(from) + this.pill(from), this.middle(from)];
    const bend = Math.max(start, x - 26);
    const path = y === height ? `M${start} ${height}H${x}` : `M${start} ${height}H${bend}C${x - 8} ${height} ${x - 18} ${y} ${x} ${y}`;
    known.setAttribute("d", path);
    const raw = leadStep(item.node).raw;
    known.setAttribute("stroke-width", (1 + 5 * (raw ?? 0)).toFixed(2));
    known.setAttribute("class", this.classes(item) + (raw === null ? " unseen" : ""));
    return known;
  }

  // Classes that edges and nodes share.
  classes(item) {
    const { through } = item.node;
    const on = through.includes(0) ? " on best" : through.length ? " on" : "";
    const group = item.group === null ? "" : ` group-${item.group % 4}`;
    return item.kind + on + group + (item.node.dropped ? " dropped" : "");
  }

  node(item, known) {
    const element = known ?? draw("g", { role: "treeitem" });
    if (!known) {
      element.append(draw("rect", { y: -PILL / 2, height: PILL }), draw("path", { class: "glyph", transform: "translate(12 0)" }), draw("text", { x: 22, y: 4 }));
      element.dataset.key = item.key;
    }
    const [rect, glyph, text] = element.children;
    const pinned = this.pinned !== null && item.nodes.some((node) => node.steps.some((step) => step.id === this.pinned));
    const forced = leadStep(item.nodes.at(-1))?.notes.forced;
    element.setAttribute("class", this.classes(item) + (item.nodes.length > 1 ? " folded" : "") + (pinned ? " pinned" : "") + (forced ? " forced" : ""));
    element.setAttribute("transform", `translate(${this.left(item)} ${this.middle(item)})`);
    element.setAttribute("tabindex", item.key === this.current ? "0" : "-1");
    element.setAttribute("aria-level", String(item.depth + 2));
    element.setAttribute("aria-selected", String(pinned));
    element.setAttribute("aria-label", spokenName(item, this.run));
    rect.setAttribute("width", this.pill(item));
    rect.setAttribute("rx", item.kind === "kept" || item.kind === "origin" ? PILL / 2 : 3);
    glyph.setAttribute("d", GLYPHS[item.kind]);
    this.write(text, item);
    return element;
  }

  // White space is there to be seen, but quietly.
  write(text, item) {
    const [words, extras] = [this.label(item), this.extras(item)];
    if (text.dataset.words === words + extras) return;
    text.dataset.words = words + extras;
    text.replaceChildren();
    for (const [name, piece] of [...words.split(/([␣⏎⇥]+)/).map((piece, at) => [at % 2 ? "space" : "", piece]), ["extra", extras]]) {
      if (!piece) continue;
      const span = draw("tspan", name ? { class: name } : {});
      span.textContent = piece;
      text.append(span);
    }
  }

  // Depths along the top, and a line where the cursor is.
  measure(left, right) {
    this.ruler.replaceChildren();
    const before = this.run.before.length;
    for (let depth = 0; depth < this.layout.depths - 1; depth++) {
      const x = this.places[depth + 1] + 8;
      if (x < left || x > right || this.places[depth + 2] - this.places[depth + 1] < COLUMN) continue;
      const number = draw("text", { x: x + 4, y: 16 });
      number.textContent = before + depth + 1;
      this.ruler.append(number);
    }
    if (this.marked === null || this.marked < 0 || this.marked >= this.layout.depths - 1) return;
    const x = this.places[this.marked + 1] + 2;
    this.ruler.append(draw("line", { x1: x, x2: x, y1: 0, y2: this.size[1] }));
  }
}
