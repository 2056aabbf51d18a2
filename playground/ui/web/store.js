// What the page knows of the runs: columns, steps, and the place in the texts that is pointed out.
// One store for all views of a page: each view's script begins with this file. Knows the feed's
// lines. Refuses to draw and to invent: every number is one the feed brought.

// One token of a column's text: written by a step of this run or of the one it was forked from, or
// given by a person. What a given token had for a probability is known where it was a candidate.
function placeOf(run, step) {
  const { id, tokenId, token, text, raw, final, rank, event, notes } = step;
  const distribution = step.at === null ? null : run.distributions[step.at];
  return { run, step: id, tokenId, token, text, raw, final, rank, event, notes, distribution, given: false };
}

function givenPlace(given, replaced) {
  const distribution = replaced?.distribution ?? null;
  const known = distribution?.candidates.find(([id]) => id === given.tokenId);
  const [, , raw, final] = known ?? [null, null, null, null];
  return {
    ...given, run: replaced?.run ?? null, step: null, raw, final: final || null, rank: null,
    event: "given", notes: {}, distribution, given: true,
  };
}

class Run {
  constructor(head, runs) {
    this.key = head.column;
    this.name = head.name;
    this.settings = head.settings;
    this.origin = head.origin; // the key of the column it was forked from
    this.steps = new Map();
    this.distributions = [];
    this.lead = null; // the last step of the text that is shown
    this.leads = []; // the leading text's last step when it had 1, 2, 3 … tokens of its own
    this.chosen = false; // a person chose which of the returned texts is shown
    this.end = null;
    this.before = this.inherit(head.before, runs);
  }

  // What stands before the run's own tokens. `left` says where it left the text it was forked from,
  // what was given there, and what had stood in its place.
  inherit(told, runs) {
    const parent = runs.get(this.origin);
    const places = [];
    this.left = null;
    for (const item of told) {
      if (item.step !== undefined) {
        const from = runs.get(item.column);
        places.push(placeOf(from, from.steps.get(item.step)));
        continue;
      }
      // Behind a token the other text did not have, its probabilities tell of another text.
      const beside = this.left ? undefined : parent?.before[places.length] ?? parent?.nextTo(places);
      const again = beside?.given && beside.tokenId === item.tokenId;
      if (!again) this.left ??= { at: places.length, instead: beside ?? null };
      places.push(again ? beside : givenPlace(item, beside));
    }
    if (parent) this.left ??= { at: places.length, instead: parent.nextTo(places) ?? null };
    return places;
  }

  // The place of this run that follows those places, if they are its own text: what a fork replaced.
  // Where several do, the one in the text that is shown.
  nextTo(places) {
    const last = places.at(-1);
    const whole = places.length === this.before.length;
    if (!whole && (last?.run !== this || last.given)) return undefined;
    const parent = whole ? null : last.step;
    const next = [...this.steps.values()].filter((step) => step.parent === parent && step.at !== null);
    const shown = new Set(this.pathTo(this.lead));
    const step = next.find((one) => shown.has(one)) ?? next[0];
    return step && placeOf(this, step);
  }

  get state() {
    if (!this.end) return this.steps.size ? "writing" : "waiting";
    if (this.end.error !== null) return "failed";
    return this.end.rule === "cancelled" ? "stopped" : "done";
  }

  hear(news) {
    this.distributions.push(...news.distributions);
    for (const step of news.steps) this.steps.set(step.id, step);
    this.lead = news.lead;
    if (news.lead !== null) this.leads[this.pathTo(news.lead).length - 1] = news.lead;
    if (!news.end) return;
    this.end = news.end;
    if (news.end.sequences.length) this.lead = news.end.sequences[0].lead;
  }

  // Show another of the returned texts.
  choose(lead) {
    [this.lead, this.chosen] = [lead, true];
  }

  pathTo(lead) {
    const path = [];
    for (let step = this.steps.get(lead); step; step = this.steps.get(step.parent)) path.push(step);
    return path.reverse();
  }

  // The whole text that ends at a step, by default the one that leads.
  text(lead = this.lead) {
    return [...this.before, ...this.pathTo(lead).map((step) => placeOf(this, step))];
  }

  // The text as it stood when it was so many tokens long: beams may have led with another one then.
  textAt(length) {
    const now = this.text();
    if (length >= now.length) return now;
    if (this.chosen) return now.slice(0, length);
    const own = length - this.before.length;
    const then = this.leads[own - 1];
    const settled = then !== undefined && !["drafted", "rejected"].includes(this.steps.get(then).event);
    return own > 0 && settled ? this.text(then) : now.slice(0, length);
  }
}

class Store {
  constructor() {
    this.listeners = new Set();
    this.feed = "";
    this.read = 0; // lines of it
    this.runs = new Map();
    this.pace = "over"; // or playing, paused
    this.cursor = { at: null, column: null, replay: false, step: null };
    this.look = { background: "probability", underline: "rank" };
    this.drawing = { wanted: 0, done: 0 }; // how often the cards were to be drawn, and were
    this.tab = "step"; // the open one below the columns
    this.view = "step"; // the last of them that showed something of the runs
  }

  // Whether the cards are there, and none of them is being drawn anew.
  get drawn() {
    return this.drawing.done > 0 && this.drawing.done === this.drawing.wanted;
  }

  drew(count) {
    this.drawing.done = count;
    if (this.drawn) this.tell({ kind: "drawn" });
  }

  // Forks stand right behind what they were forked from.
  get columns() {
    const below = (origin) =>
      [...this.runs.values()].filter((run) => run.origin === origin).flatMap((run) => [run, ...below(run.key)]);
    return below(null);
  }

  // What a column is called where others are about: its name alone, where that is enough.
  title(run) {
    const kin = [...this.runs.values()].filter((other) => (other.origin === null) === (run.origin === null));
    if (run.origin !== null) return `${run.name}, fork ${kin.indexOf(run) + 1}`;
    const alike = kin.filter((other) => other.name === run.name).length > 1;
    return alike ? `${run.name}, column ${kin.indexOf(run) + 1}` : run.name;
  }

  get length() {
    return Math.max(0, ...[...this.runs.values()].map((run) => run.text().length));
  }

  // The text of a column as the cursor wants it.
  shown(run) {
    const { at, replay } = this.cursor;
    return replay && at !== null ? run.textAt(at + 1) : run.text();
  }

  // The token of a column the cursor points at; nothing where its text is shorter.
  pointed(run) {
    return this.cursor.at === null ? undefined : this.shown(run)[this.cursor.at];
  }

  // Point at a place of the texts; null is their end. `replay` shows them as they stood then. `step` is
  // the column's step that was meant, where it need not be one of the text: a candidate that lost.
  point(at, { column = this.cursor.column, replay = false, step = null } = {}) {
    const last = this.length - 1;
    const place = at === null || last < 0 ? null : Math.max(0, Math.min(at, last));
    this.cursor = { at: place, column, replay: replay && place !== null, step };
    this.tell({ kind: "cursor" });
  }

  // Show another of the texts a run returned.
  choose(run, lead) {
    run.choose(lead);
    this.tell({ kind: "steps", run, steps: [] });
  }

  paint(look) {
    this.look = { ...this.look, ...look };
    this.tell({ kind: "look" });
  }

  turn(tab) {
    this.tab = tab;
    if (tab !== "take") this.view = tab;
    this.tell({ kind: "tab" });
  }

  // A listener is called with what changed, {kind: "reset" | "column" | "steps" | "say" | "pace" | "cursor" |
  // "look" | "tab" | "drawn", …}.
  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  tell(change) {
    for (const listener of [...this.listeners]) listener(change);
  }

  // What the server told: lines of a feed, below one that says which and from where on. Gives whether
  // nothing was missed before them.
  hear(value) {
    if (!value) return true;
    const [head, ...lines] = value.split("\n");
    const { feed, from } = JSON.parse(head);
    if (feed !== this.feed) this.reset(feed);
    if (from > this.read) return false;
    const unread = lines.slice(this.read - from);
    this.read += unread.length;
    for (const line of unread) this.take(JSON.parse(line));
    return true;
  }

  reset(feed) {
    [this.feed, this.read] = [feed, 0];
    this.begun = false;
    this.tell({ kind: "feed" });
  }

  // The last comparison stays until the first column of the next one: a wish may be refused.
  begin() {
    this.begun = true;
    this.runs = new Map();
    this.cursor = { at: null, column: null, replay: false, step: null };
    this.tell({ kind: "reset" });
  }

  take(news) {
    if (news.column !== undefined) {
      if (!this.begun) this.begin();
      const run = new Run(news, this.runs);
      this.runs.set(run.key, run);
      this.tell({ kind: "column", run });
    } else if (news.run !== undefined) {
      const run = this.runs.get(news.run);
      run.hear(news);
      this.tell({ kind: "steps", run, steps: news.steps });
    } else if (news.pace !== undefined) {
      this.pace = news.pace;
      this.tell({ kind: "pace" });
    } else if (news.say !== undefined) {
      this.tell({ kind: "say", words: news.say, error: news.error });
    }
  }
}

const store = (globalThis.decodingPlayground ??= new Store());
