// What a node of a tree says of itself: its label, its card, its name for those who cannot see it.
// Knows what strategies note. Every number is a recorded one.

const MEANINGS = {
  kept: "kept", pruned: "lost its place", drafted: "drafted, not judged yet", finished: "ended a hypothesis",
  returned: "ends a returned sequence",
};
const VERDICTS = {
  accepted: "drafted and accepted", rejected: "drafted and rejected", resampled: "taken after a rejection",
  bonus: "came as a bonus", ignored: "drafted, judged by nobody",
};

const isNumber = (value) => typeof value === "number";

// Wide characters count twice: labels are set in a font of one width.
const widthOf = (text) => [...text].reduce((sum, character) => sum + (/[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\uff60\u{1f300}-\u{1faff}]/u.test(character) ? 2 : 1), 0);

function shortened(text, room) {
  if (widthOf(text) <= room) return text;
  let [kept, width] = ["", 1];
  for (const character of text) {
    width += widthOf(character);
    if (width > room) break;
    kept += character;
  }
  return kept + "…";
}

const spelled = (item) => item.nodes.map((node) => visible(leadStep(node).token)).join("");

// What happened to a node, in words.
function meaning(node) {
  const step = leadStep(node);
  const verdict = VERDICTS[step.notes.verdict];
  if (node.kind === "returned") return verdict ? `${verdict}; ${MEANINGS.returned}` : MEANINGS.returned;
  if (node.dropped) return "kept, but all that followed lost its place";
  return verdict ?? MEANINGS[node.kind];
}

const ranks = (through) => through.map((rank) => rank + 1).join(", ");

// The card's lines: name and value.
function cardLines(item, run) {
  const node = item.nodes.at(-1);
  const step = leadStep(node);
  const { notes } = step;
  const lines = [["state", meaning(node)]];
  const add = (name, value) => lines.push([name, value]);
  if (step.raw === null) add("model", "not captured");
  else add("model", `${percent(step.raw)}, rank ${step.rank.toLocaleString("en")}`);
  if (step.raw !== null && run.distributions[step.at]?.processors.length) add("as used", step.final ? percent(step.final) : "cut");
  if (isNumber(notes.total)) {
    if (isNumber(notes.score)) add("score of the step", signed(notes.score, 4));
    add("total", signed(notes.total, 4));
    if (isNumber(notes.normalized)) add("for its length", signed(notes.normalized, 4));
  }
  if (isNumber(notes.similarity)) {
    add("probability weighed", percent(notes.probability));
    add("similarity", signed(notes.similarity));
    add("score", signed(notes.score));
  }
  if (isNumber(notes.p)) add("p of the model", percent(notes.p));
  if (isNumber(notes.q)) add("q of the draft", percent(notes.q));
  if (isNumber(notes.draw)) add("draw", notes.draw.toFixed(3));
  if (isNumber(notes.group)) add("group", String(notes.group + 1));
  if (isNumber(notes.penalty)) add("penalty", signed(notes.penalty));
  if (isNumber(notes.bank)) add("bank", `${notes.bank}, by tokens of the constraints`);
  if (Array.isArray(notes.constraints)) add("constraints", notes.constraints.map(([done, of]) => `${done} of ${of}`).join(", "));
  if (notes.forced) add("forced", "looked at because it takes a constraint further");
  if (node.steps.length > 1) add("texts", String(node.steps.length));
  if (node.through.length) add("returned", `sequence ${ranks(node.through)}`);
  return lines;
}

// The text of the path that ends with a node.
function pathText(node) {
  const words = [];
  for (let at = node; at.parent; at = at.parent) words.push(leadStep(at).token);
  return words.reverse().join("");
}

function spokenName(item, run) {
  if (item.kind === "origin") return "The prompt, where the tree begins";
  const first = leadStep(item.node);
  if (item.nodes.length > 1) {
    return `${item.nodes.length} tokens without a branch, ${spelled(item)}, folded; Enter opens them`;
  }
  const model = first.raw === null ? "not captured" : `model ${percent(first.raw)}, rank ${first.rank}`;
  const total = isNumber(first.notes.total) ? `, total ${signed(first.notes.total)}` : "";
  const group = isNumber(first.notes.group) ? `, group ${first.notes.group + 1}` : "";
  const on = item.node.through.length ? `, on the way to returned sequence ${ranks(item.node.through)}` : "";
  return `${visible(first.token)}, ${meaning(item.node)}, ${model}${total}${group}${on}`;
}
