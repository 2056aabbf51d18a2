// The trees of the columns that branched, side by side and at one scale, growing while the runs go on.
// Puts layouts (tree_layout.js) into boxes (tree_draw.js). Knows the store's cursor.
// Gradio runs this as the body of function(element, trigger, props, server, upload, watch).

const part = (name) => element.querySelector("." + name);
const state = { folding: true, pruned: true, zoom: 1, opened: new Map() };
const boxes = new Map(); // the box of each column that has a tree
const heard = new Map(); // how often each column has changed
const [LEAST, MOST] = [0.2, 2.5];

// --- what to draw ---------------------------------------------------------------------------------

const openedIn = (run) => state.opened.get(run.key) ?? state.opened.set(run.key, new Set()).get(run.key);

// The last steps of the texts to mark: what was returned, or what led when the cursor was here.
function leadsOf(run, depth) {
  const { replay } = store.cursor;
  if (!replay && run.end?.sequences.length) return run.end.sequences.map((sequence) => sequence.lead);
  const lead = replay ? run.leads[depth] : run.lead;
  return lead === undefined || lead === null ? [] : [lead];
}

// A tree that has not changed is not laid out again: often one grows while the others are over.
function layoutOf(run, box) {
  const { at, replay } = store.cursor;
  const depth = replay ? at - run.before.length : Infinity;
  const { folding, pruned } = state;
  const opened = openedIn(run);
  const asked = [heard.get(run.key), depth, folding, pruned, opened.size].join();
  if (box.asked === asked) return box.layout;
  box.asked = asked;
  const settled = replay || run.end !== null;
  return layOut(run, { leads: leadsOf(run, depth), settled, limit: depth, folding, pruned, opened });
}

// The step that is pointed at: the one that was pressed, else the one in the column's text.
function pinnedIn(run) {
  const { column, step } = store.cursor;
  if (column === run.key && run.steps.has(step)) return step;
  const place = store.pointed(run);
  return place?.run === run ? place.step : null;
}

function boxOf(run) {
  if (boxes.get(run.key)?.run !== run) {
    boxes.set(run.key, new TreeBox(run, { press: (item) => press(run, item), look }));
  }
  return boxes.get(run.key);
}

function show() {
  const runs = store.columns.filter(branched);
  part("tools").hidden = !runs.length;
  if (!runs.length) return empty();
  const shown = runs.map(boxOf);
  const figures = shown.map((box) => box.figure);
  const standing = [...part("forest").children];
  if (standing.length !== figures.length || standing.some((figure, at) => figure !== figures[at])) {
    part("forest").replaceChildren(...figures);
  }
  const layouts = runs.map((run, index) => layoutOf(run, shown[index]));
  const places = depthPlaces(layouts);
  const { at, replay } = store.cursor;
  runs.forEach((run, index) => {
    const marked = at === null ? null : at - run.before.length;
    shown[index].update(layouts[index], places, state.zoom, { marked, pinned: pinnedIn(run), replay });
  });
  legend(layouts);
  tellTools();
  if (looked) relook();
}

function empty() {
  const words = make("div", "empty");
  words.append(
    make("p", "", "No tree here yet."),
    make("p", "", "Beam search, beam sample, diverse and constrained beam search grow one: every text they keep, and every one they drop."),
    make("p", "", "Contrastive search shows the candidates it weighed, drafting strategies the drafts that were rejected, and sampling grows a tree when num_return_sequences is above 1."),
  );
  part("forest").replaceChildren(words);
}

// --- pressing -------------------------------------------------------------------------------------

function press(run, item) {
  if (item.nodes.length > 1) {
    openedIn(run).add(item.node.key);
    show();
    return;
  }
  if (item.kind === "origin") return;
  store.point(run.before.length + item.depth, { column: run.key, step: leadStep(item.node).id });
}

// --- the card -------------------------------------------------------------------------------------

const card = part("card");
let [looked, leaving] = [null, 0]; // what the card speaks of

function look(item, anchor, box) {
  clearTimeout(leaving);
  if (!item || item.kind === "origin") {
    leaving = setTimeout(forget, 150);
    return;
  }
  looked = { key: item.key, box };
  tell(item, anchor, box);
}

function forget() {
  looked = null;
  card.hidden = true;
}

// After a new drawing the card still tells of the same node, with its newest numbers.
function relook() {
  const { key, box } = looked;
  const [item, anchor] = [box.items.get(key), box.elements.get(key)];
  if (item && anchor && box.figure.isConnected) tell(item, anchor, box);
  else forget();
}

function tell(item, anchor, { run }) {
  const title = make("p", "title", item.nodes.length > 1 ? spelled(item) : visible(leadStep(item.node).token));
  const list = make("dl");
  const folded = item.nodes.length > 1 ? [["folded", `${item.nodes.length} tokens; press to open. Of the last:`]] : [];
  for (const [name, value] of [...folded, ...cardLines(item, run)]) {
    list.append(make("dt", "", name), make("dd", "", value));
  }
  card.replaceChildren(title, list, make("p", "path", "…" + pathText(item.nodes.at(-1)).slice(-160)));
  card.hidden = false;
  anchor.setAttribute("aria-describedby", card.id);
  const [from, size] = [anchor.getBoundingClientRect(), card.getBoundingClientRect()];
  const below = from.bottom + 8;
  const top = below + size.height <= innerHeight ? below : Math.max(8, from.top - size.height - 8);
  card.style.left = `${Math.max(8, Math.min(from.left, innerWidth - size.width - 8))}px`;
  card.style.top = `${top}px`;
}

// The pointer is elsewhere after a scroll; the focus takes its card with it.
const focused = () => looked?.box.elements.get(looked.key) === document.activeElement;
addEventListener("scroll", () => looked && (focused() ? relook() : forget()), { passive: true, capture: true });
element.addEventListener("keydown", (event) => event.key === "Escape" && forget());

// --- tools ----------------------------------------------------------------------------------------

// Zooms all trees alike; what lies under the given point of a box stays there.
function zoomTo(zoom, box = null, x = 0, y = 0) {
  const next = Math.max(LEAST, Math.min(MOST, zoom));
  const by = next / state.zoom;
  state.zoom = next;
  const kept = [...boxes.values()].map(({ box: each }) => {
    const [dx, dy] = each === box ? [x, y] : [0, 0];
    return [each, (each.scrollLeft + dx) * by - dx, (each.scrollTop + dy) * by - dy];
  });
  show();
  for (const [each, left, top] of kept) each.scrollTo({ left, top, behavior: "instant" });
}

function fit() {
  const fits = [...boxes.values()].filter((box) => box.figure.isConnected).map((box) => {
    const [width, height] = box.size;
    return Math.min(box.box.clientWidth / width, Math.max(box.box.clientHeight, 420) / height);
  });
  if (fits.length) zoomTo(Math.min(1, ...fits));
}

const switches = [
  ["fold paths", "Paths without a branch are drawn as one node.", "folding"],
  ["pruned", "Candidates that lost their place, and texts that came to nothing.", "pruned"],
].map(([words, help, name]) => {
  const node = button("", words, () => {
    state[name] = !state[name];
    if (name === "folding") state.opened.clear(); // what was opened is folded again
    show();
  });
  node.title = help;
  part("switches").append(node);
  return [node, name];
});
const zooms = [
  ["−", "Zoom out", () => zoomTo(state.zoom / 1.25)],
  ["100 %", "Original size", () => zoomTo(1)],
  ["+", "Zoom in", () => zoomTo(state.zoom * 1.25)],
  ["fit", "Fit the trees into their boxes", fit],
].map(([words, label, act]) => {
  const node = button("", words, act);
  node.setAttribute("aria-label", label);
  part("zoom").append(node);
  return node;
});

function tellTools() {
  for (const [node, name] of switches) node.setAttribute("aria-pressed", String(state[name]));
  zooms[1].textContent = `${Math.round(state.zoom * 100)} %`;
}

const boxUnder = (event) => event.target.closest?.(".box");

element.addEventListener("wheel", (event) => {
  const box = boxUnder(event);
  if (!box || !event.ctrlKey) return;
  event.preventDefault();
  const frame = box.getBoundingClientRect();
  zoomTo(state.zoom * Math.exp(-event.deltaY / 300), box, event.clientX - frame.left, event.clientY - frame.top);
}, { passive: false });

// Two fingers zoom the trees instead of the page.
let pinch = null;
const spread = ([one, other]) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
element.addEventListener("touchstart", (event) => {
  pinch = event.touches.length === 2 && boxUnder(event) ? { from: spread(event.touches), zoom: state.zoom } : null;
}, { passive: true });
element.addEventListener("touchmove", (event) => {
  if (!pinch || event.touches.length !== 2) return;
  event.preventDefault();
  const [box, frame] = [boxUnder(event), boxUnder(event).getBoundingClientRect()];
  const middle = (name) => (event.touches[0][name] + event.touches[1][name]) / 2;
  zoomTo((pinch.zoom * spread(event.touches)) / pinch.from, box, middle("clientX") - frame.left, middle("clientY") - frame.top);
}, { passive: false });

// The legend names what is there.
const LEGEND = {
  kept: "kept", pruned: "pruned or rejected", drafted: "drafted", finished: "ended a text", returned: "ends a returned sequence",
};

function legend(layouts) {
  const there = (kind) => layouts.some((layout) => layout.counts[kind]);
  const groups = Math.max(0, ...layouts.flatMap((layout) => layout.items.map((item) => (item.group ?? -1) + 1)));
  const bank = layouts.some((layout) => layout.items.some((item) => leadStep(item.node)?.notes.bank));
  const wanted = [
    ...Object.keys(LEGEND).filter(there).map((kind) => [kind, LEGEND[kind]]),
    ...Array.from({ length: groups }, (_, group) => [`swatch group-${group % 4}`, `group ${group + 1}`]),
    ...(bank ? [["", "◆ bank: tokens of the constraints so far"], ["forced", "looked at for a constraint"]] : []),
    ["", "thick edge: probable to the model"],
  ];
  const signature = JSON.stringify(wanted);
  if (part("legend").dataset.told === signature) return;
  part("legend").dataset.told = signature;
  part("legend").replaceChildren(...wanted.map(([name, words]) => {
    const entry = make("span");
    if (name) entry.append(sample(name));
    entry.append(words);
    return entry;
  }));
}

function sample(name) {
  const picture = draw("svg", { width: 18, height: 16, viewBox: "-9 -8 18 16", "aria-hidden": "true" });
  const group = draw("g", { class: name });
  group.append(name in GLYPHS ? draw("path", { class: "glyph", d: GLYPHS[name] }) : draw("rect", { x: -8, y: -6, width: 16, height: 12, rx: 3 }));
  picture.append(group);
  return picture;
}

const soon = drawing(element, show);
store.subscribe(({ kind, run }) => {
  if (kind === "reset") {
    boxes.clear();
    state.opened.clear();
    forget();
  }
  if (kind === "steps") heard.set(run.key, (heard.get(run.key) ?? 0) + 1);
  if (["reset", "column", "steps", "cursor"].includes(kind)) soon();
});
new ResizeObserver(() => boxes.forEach((box) => box.figure.isConnected && box.paint())).observe(element);
show();
