// The columns: each run's text token by token, its head, and what it says when it is over.
// Knows places, marks and where the reader is. Invents no number: the store has them all.
// Text of the model only ever becomes textContent. Runs after store.js, writing.js and colours.js, in
// the same function; nothing here draws before wires.js asks for it.

const part = (name) => element.querySelector("." + name);
const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
const BURST = 24; // so many new tokens, or so many columns at once, come without a motion of their own
const CROWD = 4;

const LOST = new Set(["rejected", "ignored"]); // drafts that are not in the text

const sameToken = (one, other) =>
  other !== undefined && one.run === other.run && one.step === other.step && one.tokenId === other.tokenId;

class Column {
  constructor(run) {
    this.run = run;
    this.places = []; // what is shown, and the tokens that show it
    this.tokens = [];
    this.told = null; // the end that is told below the text
    this.root = make("section", "column");
    this.root.tabIndex = -1;
    this.state = make("span", "state");
    const title = make("h3", "", run.name);
    if (run.origin !== null) title.append(make("span", "badge", forkName(run)));
    title.append(this.state);
    this.text = make("div", "text");
    this.text.setAttribute("role", "listbox");
    this.text.setAttribute("aria-orientation", "horizontal");
    this.sequences = make("div", "sequences");
    this.figures = make("dl", "figures");
    this.actions = actionsOf(this);
    const origin = run.origin === null ? [] : [make("p", "origin", originWords(run))];
    const settings = make("p", "settings", run.settings);
    this.root.append(title, settings, ...origin, this.text, this.sequences, this.figures, this.actions);
    this.root.setAttribute("aria-label", titleOf(run));
    this.text.setAttribute("aria-label", `Tokens of ${titleOf(run)}, ${run.settings}`);
  }

  update() {
    const waits = store.pace === "paused" && !this.run.end;
    const state = waits ? "paused" : this.run.state;
    if (this.root.dataset.state !== state) {
      this.state.textContent = state;
      this.root.dataset.state = state;
    }
    this.show(store.shown(this.run));
    if (this.run.end && this.told !== this.run.end) this.finish(this.run.end);
    this.chooseMarks();
    refreshActions(this);
  }

  // What the text shares with the one before stays, the rest is struck out.
  show(places) {
    let same = 0;
    while (same < places.length && sameToken(places[same], this.places[same])) same++;
    for (let at = 0; at < same; at++) {
      // A step that was told again has other notes.
      if (places[at].notes !== this.places[at].notes) this.paint(this.tokens[at], places[at]);
    }
    const lost = this.tokens.splice(same);
    const focused = lost.includes(document.activeElement);
    if (lost.length) this.strike(lost, same < places.length);
    const fresh = places.slice(same).map((place, i) => this.token(place, same + i));
    const batch = document.createDocumentFragment();
    batch.append(...fresh);
    this.text.insertBefore(batch, this.text.querySelector("del.revised"));
    this.tokens.push(...fresh);
    this.places = places;
    if (fresh.length && fresh.length < BURST && changed.size < CROWD && !calm()) {
      const own = fresh.filter((_, i) => same + i >= this.run.before.length);
      for (const token of own) token.animate([{ opacity: 0 }, { opacity: 1 }], { duration: 150 });
    }
    if (focused || !this.stop?.isConnected) this.rove(this.tokens[Math.min(same, this.tokens.length - 1)], focused);
  }

  // Tokens that were taken back: struck out for a moment where other ones took their place.
  strike(lost, revised) {
    const words = lost.map((token) => token.textContent).join("");
    lost.forEach((token) => token.remove());
    if (revised) this.ghost(words, "revised", null);
  }

  ghost(words, name, before) {
    this.text.querySelectorAll("del." + name).forEach((old) => old.remove());
    if (calm() || !words.trim()) return;
    const ghost = make("del", name, words.replaceAll("\n", "⏎")); // a ghost breaks no line
    ghost.setAttribute("aria-hidden", "true");
    this.text.insertBefore(ghost, before);
    const fading = ghost.animate([{ opacity: 1 }, { opacity: 0.8, offset: 0.5 }, { opacity: 0 }], { duration: 1100 });
    fading.onfinish = () => ghost.remove();
  }

  // Drafts that were struck out: they stand, for a moment, before the token that took their place.
  strikeDrafts(steps) {
    const drafts = steps.filter((step) => LOST.has(step.notes.verdict));
    if (!drafts.length) return;
    const [{ parent }] = drafts;
    const isParent = (place) => place.run === this.run && place.step === parent;
    const at = parent === null ? this.run.before.length : 1 + this.places.findLastIndex(isParent);
    if (at === 0 && parent !== null) return; // not in the text that is shown
    this.ghost(drafts.map((step) => step.text).join(""), "rejected", this.tokens[at] ?? null);
  }

  token(place, at) {
    // The space before a word hangs at the end of a line when the word goes to the next: it has no marks.
    const gap = place.text.match(/^\s+(?=\S)/)?.[0] ?? "";
    const token = make("span", "token");
    token.append(gap, make("span", "ink", place.text.slice(gap.length)));
    token.tabIndex = -1;
    token.setAttribute("role", "option");
    token.setAttribute("aria-selected", "false");
    token.classList.toggle("inherited", at < this.run.before.length);
    token.classList.toggle("given", place.given);
    if (!place.text) token.lastChild.dataset.mark = visible(place.token); // an end token, or part of a character
    else if (place.text.includes("\n")) token.lastChild.dataset.mark = "⏎";
    this.paint(token, place);
    return token;
  }

  paint(token, place) {
    const tint = markOf(place, store.look.background)?.tint;
    const line = markOf(place, store.look.underline)?.line ?? "none";
    if (tint) token.style.setProperty("--tint", tint);
    else token.style.removeProperty("--tint");
    token.lastChild.dataset.line = line;
    token.classList.toggle("unseen", place.raw === null && !place.given);
    token.setAttribute("aria-label", spoken(place, store.look));
  }

  repaint() {
    this.tokens.forEach((token, at) => this.paint(token, this.places[at]));
  }

  // The place that is pointed out.
  mark(at) {
    const now = at === null ? undefined : this.tokens[at];
    if (this.marked === now) return;
    this.marked?.removeAttribute("aria-current");
    now?.setAttribute("aria-current", "true");
    this.marked = now;
  }

  // One tab stop per column; the arrow keys move it.
  rove(target, focus = false) {
    if (!target) return;
    if (this.stop) this.stop.tabIndex = -1;
    this.stop = target;
    target.tabIndex = 0;
    if (focus) target.focus({ preventScroll: true });
  }

  finish(end) {
    this.told = end;
    this.root.querySelector(".failure")?.remove();
    if (end.error !== null) this.text.after(make("p", "failure", end.error));
    const figures = [...end.figures, ["ended", end.stop, "The rule that ended this run."]];
    this.figures.replaceChildren(...figures.map((figure, at) => figureOf(figure, `${this.run.key}-${at}`, at === 0)));
    this.choices(end.sequences);
  }

  // The returned sequences, best first; choosing one shows its text.
  choices(sequences) {
    const scored = sequences.some((sequence) => sequence.score !== null);
    if (!scored && sequences.length < 2) return;
    const buttons = sequences.map((sequence, place) => {
      const words = `${place + 1}. ${sequence.score ?? ""}`.trim();
      const choice = button("", words, () => store.choose(this.run, sequence.lead));
      choice.title = `${sequence.tokens} tokens, ${sequence.stop}`;
      choice.lead = sequence.lead;
      return choice;
    });
    this.sequences.replaceChildren(make("span", "label", scored ? "by score" : "returned"), ...buttons);
  }

  chooseMarks() {
    let pressed = false; // two may end alike
    for (const choice of this.sequences.querySelectorAll("button")) {
      const now = !pressed && choice.lead === this.run.lead;
      choice.setAttribute("aria-pressed", String(now));
      pressed ||= now;
    }
  }
}

// One number below a text; its help comes where the reader points, and goes with Escape.
function figureOf([name, value, help], id, first) {
  const pair = make("div");
  const term = make("dt");
  const data = make("dd", "", value);
  pair.append(term, data);
  if (!help) {
    term.textContent = name;
    return pair;
  }
  const tip = make("span", "tip", help);
  tip.id = `live-help-${id}`;
  tip.setAttribute("role", "tooltip");
  const word = button("", name, () => {});
  if (!first) word.tabIndex = -1; // the arrow keys walk on
  word.setAttribute("aria-describedby", tip.id);
  term.append(word, tip);
  return pair;
}

// --- all of them ----------------------------------------------------------------------------------

const shown = new Map(); // run -> column
const changed = new Set(); // columns to be updated at the next frame
const struck = []; // drafts to be struck out then
let frame = 0;

const columnOf = (token) => [...shown.values()].find((column) => column.text === token.parentNode);

function soon(columns) {
  for (const column of columns) changed.add(column);
  frame ||= requestAnimationFrame(flush);
}

function flush() {
  cancelAnimationFrame(frame);
  frame = 0;
  for (const column of changed) column.update();
  changed.clear();
  for (const [column, steps] of struck.splice(0)) column.strikeDrafts(steps);
  for (const column of shown.values()) column.mark(store.cursor.at);
  refreshLegend();
  refreshTransport();
}

// Columns in the store's order; those that are there already stay as they are.
function arrange() {
  const runs = store.columns;
  for (const run of shown.keys()) if (!runs.includes(run)) shown.delete(run);
  for (const run of runs) if (!shown.has(run)) shown.set(run, new Column(run));
  const columns = runs.map((run) => shown.get(run));
  if (columns.length) {
    const place = part("columns");
    place.querySelector(".empty")?.remove();
    for (const old of [...place.children]) if (!columns.some((column) => column.root === old)) old.remove();
    columns.forEach((column, index) => {
      column.root.dataset.index = index;
      if (place.children[index] !== column.root) place.insertBefore(column.root, place.children[index] ?? null);
    });
  }
  drawForks();
  balance();
  soon(columns);
}

// As many columns in a row as there is room for, and about as many in every row.
function balance() {
  const place = part("columns");
  const count = [...place.querySelectorAll(".column")].filter((column) => !column.hidden).length;
  const room = Math.max(1, Math.floor((place.clientWidth + 12) / 272));
  const rows = Math.ceil(count / room);
  place.style.setProperty("--in-a-row", Math.max(1, Math.ceil(count / Math.max(rows, 1))));
}
