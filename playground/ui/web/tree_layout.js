// A run's steps as a tree, and where its nodes stand. Pure functions of what the store holds.
// Edges are the recorded parents and nothing else. Refuses to draw.

const KINDS = {
  chosen: "kept", accepted: "kept", resampled: "kept", bonus: "kept",
  pruned: "pruned", rejected: "pruned", drafted: "drafted", finished: "finished", returned: "returned",
};
const WEIGHT = { pruned: 0, drafted: 1, kept: 2, finished: 3, returned: 4 };

function kindOf(step) {
  if (step.event === "drafted" && step.notes.verdict === "ignored") return "pruned";
  return KINDS[step.event] ?? "kept";
}

// Whether there is a tree to see: two steps with one parent, or several sequences that came back.
function branched(run) {
  if (run.end?.sequences.length > 1) return true;
  const parents = new Set();
  for (const { parent } of run.steps.values()) {
    if (parents.has(parent)) return true;
    parents.add(parent);
  }
  return false;
}

// The steps as one trie: those with the same tokens before them are one node, unless they belong to
// groups of beams, which keep apart. `limit` leaves out steps deeper than that.
function merge(steps, limit = Infinity) {
  const root = { key: "root", kind: "origin", depth: -1, steps: [], through: [], children: [], parent: null };
  const [nodes, nodeOf] = [[], new Map()];
  for (const step of steps) {
    const parent = step.parent === null ? root : nodeOf.get(step.parent);
    if (!parent || parent.depth + 1 > limit) continue;
    const [kind, group] = [kindOf(step), step.notes.group ?? null];
    let node = parent.children.find((child) => child.tokenId === step.tokenId && child.group === group);
    if (!node) {
      const { id: key, tokenId } = step;
      node = { key, tokenId, kind, group, depth: parent.depth + 1, steps: [], through: [], children: [], parent };
      nodes.push(node);
      parent.children.push(node);
    }
    node.steps.push(step);
    if (WEIGHT[kind] > WEIGHT[node.kind]) node.kind = kind;
    nodeOf.set(step.id, node);
  }
  return { root, nodes, nodeOf };
}

const leadStep = (node) => node.steps.at(-1);

// Which returned sequences, counted from 0 for the best, go through each node.
function mark(trie, leads) {
  leads.forEach((lead, rank) => {
    for (let node = trie.nodeOf.get(lead); node; node = node.parent) node.through.push(rank);
  });
}

// How many texts go through a node: rows of its own in the trace, or returned sequences.
const countOf = (node) => Math.max(node.steps.length, node.through.length);

// The best returned sequence first, then what went on longest, then in the order of telling.
function arrange(trie) {
  const best = (node) => (node.through.length ? node.through[0] : Infinity);
  const lost = (node) => Number(node.kind === "pruned");
  for (const node of [trie.root, ...trie.nodes].reverse()) {
    node.reach = node.depth;
    for (const child of node.children) node.reach = Math.max(node.reach, child.reach);
    if (node.children.length > 1) node.children.sort((one, other) => {
      const [first, second] = [best(one), best(other)];
      return first === second ? other.reach - one.reach || lost(one) - lost(other) : first - second;
    });
  }
}

// Which kept texts came to nothing: others went further, and all that followed them lost its place.
function survey(trie) {
  const alive = trie.nodes.filter((node) => !["pruned", "drafted"].includes(node.kind));
  const frontier = alive.reduce((deepest, node) => Math.max(deepest, node.depth), -1);
  for (const node of alive.reverse()) {
    const last = node.children.every((child) => child.kind === "pruned" || child.dropped);
    node.dropped = node.kind === "kept" && last && node.depth < frontier;
  }
}

// Without what lost its place, and without what came to nothing.
function prune(trie) {
  for (const node of [...trie.nodes].reverse()) {
    node.children = node.children.filter((child) => child.stays);
    node.stays = node.children.length > 0 || (node.kind !== "pruned" && !node.dropped);
  }
  trie.root.children = trie.root.children.filter((child) => child.stays);
}

const SHORTEST = 3; // nodes in a row that are worth being made one

// Nodes to draw: paths without a branch become one, unless they were opened.
function collapse(root, folding, opened) {
  const plain = (node) =>
    node.children.length <= 1 && ["kept", "pruned"].includes(node.kind) && (node.children.length || node.kind === "kept");
  const item = (node, parent, open = false) => {
    const nodes = [node];
    while (folding && plain(nodes.at(-1)) && nodes.at(-1).children.length) {
      const [next] = nodes.at(-1).children;
      if (!plain(next) || next.kind !== node.kind || countOf(next) !== countOf(node)) break;
      nodes.push(next);
    }
    const spread = open || opened.has(node.key); // to the end of the path
    const held = node.parent && nodes.length >= SHORTEST && !spread ? nodes : [node];
    const made = {
      key: node.key, kind: node.kind, nodes: held, node, parent,
      depth: node.depth, last: held.at(-1).depth, group: node.group ?? null, children: [],
    };
    made.children = held.at(-1).children.map((child) => item(child, made, spread && child === nodes[1]));
    return made;
  };
  return item(root, null);
}

// Rows of the items. The first child goes on from its parent's row, the others stand below, each as
// high as there is room; what was returned runs straight. At every depth nodes keep the order of their parents, and nobody stands
// above their parent: so no two edges cross.
function place(root) {
  const free = []; // the next free row at each depth
  const items = [];
  const roomFor = (from, to, row) => {
    for (let depth = from; depth <= to; depth++) row = Math.max(row, free[depth + 1] ?? 0);
    return row;
  };
  const put = (start) => {
    const spine = [];
    for (let item = start; item; item = item.children[0]) spine.push(item);
    const end = spine.at(-1).last;
    const straight = start.node.through.length > 0;
    let row = start.parent?.row ?? 0;
    for (const item of spine) {
      row = roomFor(item.depth, straight ? end : item.last, row);
      item.row = row;
      for (let depth = item.depth; depth <= item.last; depth++) free[depth + 1] = row + 1;
    }
    items.push(...spine);
    for (const item of spine.reverse()) for (const child of item.children.slice(1)) put(child);
  };
  put(root);
  return { items, rows: Math.max(...free), depths: free.length };
}

const COLUMN = 116;
const FOLDED = 12;

// Where each depth begins, the same for all trees: depths inside of folded paths only are narrow.
function depthPlaces(layouts) {
  const depths = Math.max(0, ...layouts.map((layout) => layout.depths));
  const used = new Set(layouts.flatMap((layout) => layout.items.map((item) => item.depth + 1)));
  const places = [0];
  for (let depth = 0; depth < depths; depth++) places.push(places[depth] + (used.has(depth) ? COLUMN : FOLDED));
  return places;
}

// The whole way from a run to rows. `leads` are the last steps of what to mark, the best first. Only
// what is `settled` decides on the order: while beams overtake each other, the tree keeps still.
function layOut(run, { leads, settled = true, limit = Infinity, pruned = true, folding = true, opened = new Set() }) {
  const trie = merge(run.steps.values(), limit);
  if (settled) mark(trie, leads);
  arrange(trie);
  survey(trie);
  const counts = { kept: 0, pruned: 0, drafted: 0, finished: 0, returned: 0 };
  for (const node of trie.nodes) counts[node.kind]++;
  if (!pruned) prune(trie);
  const placed = place(collapse(trie.root, folding, opened));
  if (!settled) mark(trie, leads);
  return { ...placed, counts };
}
