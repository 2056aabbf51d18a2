// Lays out a run's steps as a tree: pure functions of the recorded steps. Edges are recorded parents.

/**
 * @typedef {object} Step
 * @property {number} id
 * @property {number | null} parent
 * @property {number} tokenId
 * @property {string} token its spelling
 * @property {string} event
 * @property {number | null} raw the model's own probability; null where it was not captured
 * @property {number | null} final the probability after the processors; null where it was cut or not captured
 * @property {number | null} rank
 * @property {number | null} at index of its distribution
 * @property {Record<string, any>} notes what the strategy recorded
 *
 * @typedef {"origin" | "kept" | "pruned" | "drafted" | "finished" | "returned"} Kind
 *
 * @typedef {object} TreeRun what the tree needs of a run
 * @property {number} key
 * @property {string} settings
 * @property {Map<number, Step>} steps
 * @property {{ sequences: { lead: number | null, score: string | null }[] } | null} end
 * @property {unknown[]} before the text before the run's own tokens
 * @property {{ processors: string[] }[]} distributions
 * @property {number | null} [lengthPenalty] the exponent of beam search's length normalisation
 *
 * @typedef {object} Node one or more steps with the same tokens before them
 * @property {number | "root"} key
 * @property {number | null} tokenId
 * @property {Kind} kind
 * @property {number | null} group
 * @property {number} depth
 * @property {Step[]} steps
 * @property {number[]} through the returned sequences that pass, counted from 0 for the best
 * @property {Node[]} children
 * @property {Node | null} parent
 * @property {number} reach the depth of the deepest node below
 * @property {boolean} dropped kept, but every continuation was pruned
 * @property {boolean} stays
 *
 * @typedef {object} Item what is drawn: one node, or a collapsed path of nodes
 * @property {string} key
 * @property {Kind} kind
 * @property {Node[]} nodes
 * @property {Node} node the first of them
 * @property {Item | null} parent
 * @property {Item[]} children
 * @property {number} depth
 * @property {number} last the depth of the last node
 * @property {number} row
 * @property {number | null} group
 *
 * @typedef {Record<Exclude<Kind, "origin">, number>} Counts
 * @typedef {{ items: Item[], rows: number, depths: number, counts: Counts }} Layout
 * @typedef {{ root: Node, nodes: Node[], nodeOf: Map<number, Node> }} Trie
 */

/** @type {Record<string, Kind>} */
const KINDS = {
  chosen: "kept", accepted: "kept", resampled: "kept", bonus: "kept",
  pruned: "pruned", rejected: "pruned", drafted: "drafted", finished: "finished", returned: "returned",
};
/** @type {Record<Kind, number>} */
const PRECEDENCE = { origin: -1, pruned: 0, drafted: 1, kept: 2, finished: 3, returned: 4 };

/** @param {Step} step */
function kindOf(step) {
  if (step.event === "drafted" && step.notes.verdict === "ignored") return "pruned";
  return KINDS[step.event] ?? "kept";
}

/**
 * Whether a run is a tree: two steps have one parent, or several sequences were returned.
 * @param {Pick<TreeRun, "steps" | "end">} run
 */
export function isTree(run) {
  if (run.end && run.end.sequences.length > 1) return true;
  const parents = new Set();
  for (const { parent } of run.steps.values()) {
    if (parents.has(parent)) return true;
    parents.add(parent);
  }
  return false;
}

/**
 * @param {Node["key"]} key
 * @param {Node["tokenId"]} tokenId
 * @param {Kind} kind
 * @param {Node["group"]} group
 * @param {Node | null} parent
 * @returns {Node}
 */
function newNode(key, tokenId, kind, group, parent) {
  const depth = parent ? parent.depth + 1 : -1;
  return {
    key, tokenId, kind, group, parent, depth, steps: [], through: [], children: [], reach: depth, dropped: false, stays: true,
  };
}

/**
 * Merges the steps into a trie: steps with the same tokens before them are one node, unless they belong
 * to different beam groups.
 * @param {Iterable<Step>} steps
 * @param {number} limit leaves out deeper steps
 * @returns {Trie}
 */
export function mergeSteps(steps, limit = Infinity) {
  const root = newNode("root", null, "origin", null, null);
  /** @type {Node[]} */
  const nodes = [];
  /** @type {Map<number, Node>} */
  const nodeOf = new Map();
  for (const step of steps) {
    const parent = step.parent === null ? root : nodeOf.get(step.parent);
    if (!parent || parent.depth + 1 > limit) continue;
    const kind = kindOf(step);
    const group = step.notes.group ?? null;
    let node = parent.children.find((child) => child.tokenId === step.tokenId && child.group === group);
    if (!node) {
      node = newNode(step.id, step.tokenId, kind, group, parent);
      nodes.push(node);
      parent.children.push(node);
    }
    node.steps.push(step);
    if (PRECEDENCE[kind] > PRECEDENCE[node.kind]) node.kind = kind;
    nodeOf.set(step.id, node);
  }
  return { root, nodes, nodeOf };
}

/**
 * The newest step of a node; the root has none.
 * @param {Node} node
 */
export const newestStep = (node) => node.steps[node.steps.length - 1];

/**
 * Records which returned sequences pass through each node.
 * @param {Trie} trie
 * @param {(number | null)[]} leads the last steps of the sequences, best first
 */
export function markSequences(trie, leads) {
  leads.forEach((lead, rank) => {
    /** @type {Node | null | undefined} */
    let node = lead === null ? undefined : trie.nodeOf.get(lead);
    for (; node; node = node.parent) node.through.push(rank);
  });
}

/**
 * How many texts pass through a node: rows of its own in the trace, or returned sequences.
 * @param {Node} node
 */
export const countOf = (node) => Math.max(node.steps.length, node.through.length);

/**
 * Sorts children: the best returned sequence first, then the deepest, then in recorded order.
 * @param {Trie} trie
 */
function sortChildren(trie) {
  const best = (/** @type {Node} */ node) => (node.through.length ? node.through[0] : Infinity);
  const lost = (/** @type {Node} */ node) => Number(node.kind === "pruned");
  /** @type {(node: Node) => void} */
  const sort = (node) => {
    for (const child of node.children) node.reach = Math.max(node.reach, child.reach);
    if (node.children.length > 1) node.children.sort((one, other) => {
      const first = best(one);
      const second = best(other);
      return first === second ? other.reach - one.reach || lost(one) - lost(other) : first - second;
    });
  };
  for (let at = trie.nodes.length - 1; at >= 0; at--) sort(trie.nodes[at]);
  sort(trie.root);
}

/**
 * Marks kept nodes whose continuations were all pruned while others went further.
 * @param {Trie} trie
 */
function markDropped(trie) {
  const alive = trie.nodes.filter((node) => node.kind !== "pruned" && node.kind !== "drafted");
  const frontier = alive.reduce((deepest, node) => Math.max(deepest, node.depth), -1);
  for (const node of alive.reverse()) {
    const last = node.children.every((child) => child.kind === "pruned" || child.dropped);
    node.dropped = node.kind === "kept" && last && node.depth < frontier;
  }
}

/**
 * Removes pruned and dropped nodes.
 * @param {Trie} trie
 */
function removePruned(trie) {
  for (const node of [...trie.nodes].reverse()) {
    node.children = node.children.filter((child) => child.stays);
    node.stays = node.children.length > 0 || (node.kind !== "pruned" && !node.dropped);
  }
  trie.root.children = trie.root.children.filter((child) => child.stays);
}

const SHORTEST_PATH = 3; // nodes; shorter paths are not collapsed

/**
 * The items to draw: a path without branches becomes one item, unless it was expanded.
 * @param {Node} root
 * @param {boolean} collapsing
 * @param {Set<string>} expanded
 */
function collapse(root, collapsing, expanded) {
  const plain = (/** @type {Node} */ { kind, children }) =>
    children.length === 1 ? kind === "kept" || kind === "pruned" : children.length === 0 && kind === "kept";
  /** @type {(node: Node) => Node[]} the nodes from this one to the end of its path */
  const pathFrom = (node) => {
    const path = [node];
    let end = node;
    while (plain(end) && end.children.length) {
      const [next] = end.children;
      if (!plain(next) || next.kind !== node.kind || countOf(next) !== countOf(node)) break;
      path.push(next);
      end = next;
    }
    return path;
  };
  /** @type {(node: Node, parent: Item | null, open?: boolean) => Item} */
  const item = (node, parent, open = false) => {
    const path = collapsing && node.parent && plain(node) ? pathFrom(node) : [node];
    const spread = open || expanded.has(String(node.key)); // to the end of the path
    const nodes = path.length >= SHORTEST_PATH && !spread ? path : [node];
    const last = nodes[nodes.length - 1];
    /** @type {Item} */
    const made = {
      key: String(node.key), kind: node.kind, nodes, node, parent, group: node.group,
      depth: node.depth, last: last.depth, row: 0, children: [],
    };
    for (const child of last.children) made.children.push(item(child, made, spread && child === path[1]));
    return made;
  };
  return item(root, null);
}

/**
 * Assigns rows. The first child continues its parent's row, the others stand below, as high as there is
 * room; returned sequences run straight. At every depth, nodes keep the order of their parents and none
 * stands above its parent, so no two edges cross.
 * @param {Item} root
 */
function assignRows(root) {
  /** @type {number[]} the next free row at each depth */
  const free = [];
  /** @type {Item[]} */
  const items = [];
  /** @type {(from: number, to: number, row: number) => number} */
  const roomFor = (from, to, row) => {
    for (let depth = from; depth <= to; depth++) row = Math.max(row, free[depth + 1] ?? 0);
    return row;
  };
  /** @type {(start: Item) => void} */
  const put = (start) => {
    const spine = [];
    for (let item = start; item; item = item.children[0]) spine.push(item);
    const end = spine[spine.length - 1].last;
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

export const COLUMN_WIDTH = 116;
const COLLAPSED_WIDTH = 12;

/**
 * The x position of each depth, the same for all trees. Depths inside of collapsed paths are narrow.
 * @param {Pick<Layout, "items" | "depths">[]} layouts
 */
export function depthPositions(layouts) {
  const depths = Math.max(0, ...layouts.map((layout) => layout.depths));
  const used = new Set(layouts.flatMap((layout) => layout.items.map((item) => item.depth + 1)));
  const positions = [0];
  for (let depth = 0; depth < depths; depth++) {
    positions.push(positions[depth] + (used.has(depth) ? COLUMN_WIDTH : COLLAPSED_WIDTH));
  }
  return positions;
}

/**
 * The layout of a run. Sequences decide the order of branches only if they are final: while beams
 * overtake each other, the rows stay where they are.
 * @param {Pick<TreeRun, "steps">} run
 * @param {object} options
 * @param {(number | null)[]} options.leads the last steps of the sequences to mark, best first
 * @param {boolean} [options.final]
 * @param {number} [options.limit] the depth up to which steps are shown
 * @param {boolean} [options.pruned] whether pruned candidates are shown
 * @param {boolean} [options.collapsing]
 * @param {Set<string>} [options.expanded] keys of the paths that are not collapsed
 * @returns {Layout}
 */
export function layOut(run, { leads, final = true, limit = Infinity, pruned = true, collapsing = true, expanded = new Set() }) {
  const trie = mergeSteps(run.steps.values(), limit);
  if (final) markSequences(trie, leads);
  sortChildren(trie);
  markDropped(trie);
  /** @type {Record<Kind, number>} */
  const all = { origin: 0, kept: 0, pruned: 0, drafted: 0, finished: 0, returned: 0 };
  for (const node of trie.nodes) all[node.kind]++;
  const { origin: _, ...counts } = all;
  if (!pruned) removePruned(trie);
  const placed = assignRows(collapse(trie.root, collapsing, expanded));
  if (!final) markSequences(trie, leads);
  return { ...placed, counts };
}
