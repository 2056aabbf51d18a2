// The runs of a comparison as the browser knows them: columns, steps, and the position in the texts that
// is selected. All views of the page share one store and subscribe to its changes. Every number comes
// from the server.

/**
 * @typedef {[id: number, token: string, raw: number | null, final: number, ...between: (number | null)[]]} Candidate
 *   a token, the model's own probability, the one used, and those between two processors
 *
 * @typedef {object} Distribution
 * @property {Candidate[]} candidates
 * @property {string[]} processors in the order they ran
 * @property {(number | null)[]} entropy before and after the processors, in nats
 * @property {number} kept tokens that could be chosen
 * @property {number[]} keptAfter tokens left after each processor
 * @property {(number | null)[]} cutoffs the smallest probability that each processor kept
 * @property {(number | null)[]} noise the random number that each candidate's probability was divided by
 *   in a draw; empty where nothing was drawn
 *
 * @typedef {Record<string, any>} Notes what the strategy recorded about a step
 *
 * @typedef {object} Step
 * @property {number} id
 * @property {number | null} parent
 * @property {number} tick
 * @property {number} tokenId
 * @property {string} token its spelling
 * @property {string} text the characters it adds to the text
 * @property {string} event what became of it: chosen, pruned, finished, returned, drafted …
 * @property {number | null} raw the model's own probability; null where it was not captured
 * @property {number | null} final the probability after the processors; null where it was cut or not captured
 * @property {number | null} rank in the model's own order
 * @property {number | null} at index of its distribution
 * @property {number | null} noise the random number of its draw; null where nothing was drawn
 * @property {Notes} notes
 *
 * @typedef {object} Returned a returned sequence
 * @property {number | null} lead its last step
 * @property {string | null} score
 * @property {number} tokens
 * @property {string} stop
 *
 * @typedef {object} End how a run ended
 * @property {[name: string, value: string, help?: string][]} figures
 * @property {string} stop
 * @property {string} rule
 * @property {string | null} error
 * @property {Returned[]} sequences
 *
 * @typedef {object} Place
 *   One token of a column's text: from a step of this run or of the run it was forked from, or given by
 *   the user. The probability of a given token is known if it was one of the candidates.
 * @property {Run | null} run
 * @property {number | null} step
 * @property {number} tokenId
 * @property {string} token
 * @property {string} text
 * @property {number | null} raw
 * @property {number | null} final
 * @property {number | null} rank
 * @property {string} event
 * @property {number | null} noise
 * @property {Notes} notes
 * @property {Distribution | null} distribution
 * @property {boolean} given
 *
 * @typedef {{ tokenId: number, token: string, text: string }} GivenToken
 * @typedef {{ column: number, step: number }} InheritedStep
 *
 * @typedef {object} ColumnLine
 * @property {number} column
 * @property {string} name
 * @property {string} strategy
 * @property {string} settings
 * @property {number | null} origin the column it was forked from
 * @property {import("./cards.js").Card | null} card the card that asked for the run
 * @property {string} prompt
 * @property {boolean} chat whether the prompt is a message to answer
 * @property {(GivenToken | InheritedStep)[]} before the text before the run's own tokens
 *
 * @typedef {object} StepsLine
 * @property {number} run
 * @property {Distribution[]} distributions
 * @property {Step[]} steps
 * @property {number | null} lead
 * @property {End} [end]
 *
 * @typedef {{ state: "playing" | "paused" | "over" }} StateLine
 * @typedef {{ status: string, error: boolean }} StatusLine
 * @typedef {ColumnLine | StepsLine | StateLine | StatusLine} Line one line of the feed
 *
 * @typedef {object} Cursor
 * @property {number | null} at the selected position; null is the end of the texts
 * @property {number | null} column
 * @property {boolean} replay texts are shown as they were at that position
 * @property {number | null} step a step that is not in the text, such as a pruned candidate
 *
 * @typedef {{ background: string, underline: string }} Marks
 *
 * @typedef {{ kind: "feed" } | { kind: "reset" } | { kind: "column", run: Run } | { kind: "steps", run: Run, steps: Step[] }
 *   | { kind: "state" } | { kind: "cursor" } | { kind: "replay" } | { kind: "marks" } | { kind: "tab" } | { kind: "page" }
 *   | { kind: "show", run: Run, page: string }
 *   | { kind: "status", text: string, error: boolean }} Change
 */

/**
 * @param {Run} run
 * @param {Step} step
 * @returns {Place}
 */
export function placeOf(run, step) {
  const { id, tokenId, token, text, raw, final, rank, event, noise, notes } = step;
  const distribution = step.at === null ? null : run.distributions[step.at];
  return { run, step: id, tokenId, token, text, raw, final, rank, event, noise, notes, distribution, given: false };
}

/**
 * @param {GivenToken} given
 * @param {Place | undefined} replaced
 * @returns {Place}
 */
function givenPlace(given, replaced) {
  const distribution = replaced?.distribution ?? null;
  const candidate = distribution?.candidates.find(([id]) => id === given.tokenId);
  const [, , raw, final] = candidate ?? [null, null, null, null];
  return {
    ...given, run: replaced?.run ?? null, step: null, raw, final: final || null, rank: null,
    event: "given", noise: null, notes: {}, distribution, given: true,
  };
}

export class Run {
  /**
   * @param {ColumnLine} head
   * @param {Map<number, Run>} runs
   */
  constructor(head, runs) {
    this.key = head.column;
    this.name = head.name;
    this.strategy = head.strategy;
    this.settings = head.settings;
    this.origin = head.origin;
    this.card = head.card;
    this.prompt = head.prompt;
    this.chat = head.chat;
    /** @type {Map<number, Step>} */
    this.steps = new Map();
    /** @type {Distribution[]} */
    this.distributions = [];
    /** @type {number | null} the last step of the text that is shown */
    this.lead = null;
    /** @type {number[]} the last step of the leading text when it had 1, 2, 3 … tokens of its own */
    this.leads = [];
    /** @type {number | null} the returned sequence that the user chose to see; texts of two may be equal */
    this.choice = null;
    /** @type {End | null} */
    this.end = null;
    /** @type {{ at: number, instead: Place | null } | null} where a fork left its origin's text, and the token it replaced */
    this.left = null;
    this.before = this.#inherit(head.before, runs);
  }

  /**
   * The text before the run's own tokens.
   * @param {(GivenToken | InheritedStep)[]} items
   * @param {Map<number, Run>} runs
   */
  #inherit(items, runs) {
    const parent = this.origin === null ? undefined : runs.get(this.origin);
    /** @type {Place[]} */
    const places = [];
    for (const item of items) {
      if ("step" in item) {
        const from = runs.get(item.column);
        const step = from?.steps.get(item.step);
        if (from && step) places.push(placeOf(from, step));
        continue;
      }
      // After the first token that differs, the origin's probabilities belong to another text.
      const beside = this.left ? undefined : (parent?.before[places.length] ?? parent?.nextTo(places));
      const same = beside?.given && beside.tokenId === item.tokenId;
      if (!same) this.left ??= { at: places.length, instead: beside ?? null };
      places.push(same ? beside : givenPlace(item, beside));
    }
    if (parent) this.left ??= { at: places.length, instead: parent.nextTo(places) ?? null };
    return places;
  }

  /**
   * The token of this run that follows those places, if they are its own text. Of several, the one in
   * the text that is shown.
   * @param {Place[]} places
   */
  nextTo(places) {
    const last = places.at(-1);
    const whole = places.length === this.before.length;
    if (!whole && (last?.run !== this || last.given)) return undefined;
    const parent = whole ? null : last?.step;
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

  /** @param {StepsLine} line */
  add(line) {
    this.distributions.push(...line.distributions);
    for (const step of line.steps) this.steps.set(step.id, step);
    this.lead = line.lead;
    if (line.lead !== null) this.leads[this.pathTo(line.lead).length - 1] = line.lead;
    if (!line.end) return;
    this.end = line.end;
    if (line.end.sequences.length) this.lead = line.end.sequences[0].lead;
  }

  /**
   * Shows another of the returned texts.
   * @param {number} choice its index
   */
  choose(choice) {
    this.lead = this.end?.sequences[choice]?.lead ?? null;
    this.choice = choice;
  }

  /** @param {number | null} lead */
  pathTo(lead) {
    const path = [];
    for (let at = lead; at !== null; ) {
      const step = this.steps.get(at);
      if (!step) break;
      path.push(step);
      at = step.parent;
    }
    return path.reverse();
  }

  /** The whole text that ends at a step, by default at the leading one. */
  text(lead = this.lead) {
    return [...this.before, ...this.pathTo(lead).map((step) => placeOf(this, step))];
  }

  /**
   * The text as it was at a length: another beam may have led then.
   * @param {number} length
   */
  textAt(length) {
    const now = this.text();
    if (length >= now.length) return now;
    if (this.choice !== null) return now.slice(0, length);
    const own = length - this.before.length;
    const lead = this.leads[own - 1];
    const event = this.steps.get(lead)?.event;
    const decided = event !== undefined && event !== "drafted" && event !== "rejected";
    return own > 0 && decided ? this.text(lead) : now.slice(0, length);
  }
}

export class Store {
  constructor() {
    /** @type {Set<(change: Change) => void>} */
    this.listeners = new Set();
    this.feed = "";
    this.read = 0; // lines of the feed
    /** @type {Map<number, Run>} */
    this.runs = new Map();
    this.started = false;
    this.status = { text: "", error: false };
    /** @type {"playing" | "paused" | "over"} */
    this.state = "over";
    /** @type {Cursor} */
    this.cursor = { at: null, column: null, replay: false, step: null };
    this.replaying = false; // the replay moves the cursor
    /** @type {Marks} */
    this.marks = { background: "probability", underline: "rank" };
    this.page = "compare"; // the open page
    this.tab = "step"; // the open tab below the columns
    this.resultTab = "step"; // the last one that shows results
  }

  /** The runs in the order of their columns: a fork follows its origin. */
  get columns() {
    /** @type {(origin: number | null) => Run[]} */
    const below = (origin) =>
      [...this.runs.values()].filter((run) => run.origin === origin).flatMap((run) => [run, ...below(run.key)]);
    return below(null);
  }

  get forks() {
    return [...this.runs.values()].filter((run) => run.origin !== null);
  }

  /** @param {Run} run */
  forkName(run) {
    return `fork ${this.forks.indexOf(run) + 1}`;
  }

  /**
   * A column's name, numbered where several share it.
   * @param {Run} run
   */
  title(run) {
    if (run.origin !== null) return `${run.name}, ${this.forkName(run)}`;
    const roots = [...this.runs.values()].filter((other) => other.origin === null);
    const alike = roots.filter((other) => other.name === run.name).length > 1;
    return alike ? `${run.name}, column ${roots.indexOf(run) + 1}` : run.name;
  }

  /** The length of the longest text. */
  get length() {
    return Math.max(0, ...[...this.runs.values()].map((run) => run.text().length));
  }

  /**
   * The text of a column at the cursor.
   * @param {Run} run
   */
  shown(run) {
    const { at, replay } = this.cursor;
    return replay && at !== null ? run.textAt(at + 1) : run.text();
  }

  /**
   * The token of a column at the cursor; undefined where its text is shorter.
   * @param {Run} run
   */
  selected(run) {
    return this.cursor.at === null ? undefined : this.shown(run)[this.cursor.at];
  }

  /**
   * Selects a position in the texts; null is their end.
   * @param {number | null} at
   * @param {Partial<Omit<Cursor, "at">>} [options]
   */
  select(at, { column = this.cursor.column, replay = false, step = null } = {}) {
    const last = this.length - 1;
    const place = at === null || last < 0 ? null : Math.max(0, Math.min(at, last));
    this.cursor = { at: place, column, replay: replay && place !== null, step };
    this.notify({ kind: "cursor" });
  }

  /**
   * Shows another of the texts that a run returned.
   * @param {Run} run
   * @param {number} choice the index of the returned sequence
   */
  choose(run, choice) {
    run.choose(choice);
    this.notify({ kind: "steps", run, steps: [] });
  }

  /** @param {boolean} on */
  setReplaying(on) {
    if (this.replaying === on) return;
    this.replaying = on;
    this.notify({ kind: "replay" });
  }

  /** @param {Partial<Marks>} marks */
  setMarks(marks) {
    this.marks = { ...this.marks, ...marks };
    this.notify({ kind: "marks" });
  }

  /** @param {string} tab */
  openTab(tab) {
    this.tab = tab;
    if (tab !== "export") this.resultTab = tab;
    this.notify({ kind: "tab" });
  }

  /** What is open; events that draw figures carry it to Python. */
  get view() {
    return { page: this.page, tab: this.tab };
  }

  /** @param {string} page */
  openPage(page) {
    this.page = page;
    this.notify({ kind: "page" });
  }

  /**
   * @param {(change: Change) => void} listener
   * @returns {() => void} removes the listener
   */
  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** @param {Change} change */
  notify(change) {
    for (const listener of [...this.listeners]) listener(change);
  }

  /**
   * Starts to read a feed; nothing changes if it is the one that is being read.
   * @param {string} feed
   */
  openFeed(feed) {
    if (feed === this.feed) return;
    this.feed = feed;
    this.read = 0;
    this.started = false;
    this.notify({ kind: "feed" });
  }

  /**
   * Reads lines of the feed, apart from those that were read before.
   * @param {number} from the number of the first line
   * @param {string[]} lines
   */
  receive(from, lines) {
    const unread = lines.slice(Math.max(0, this.read - from));
    this.read += unread.length;
    for (const line of unread) this.#apply(JSON.parse(line));
  }

  /**
   * Ends runs that the server no longer has.
   * @param {string} text the reason
   */
  abandon(text) {
    this.setStatus({ text, error: true });
    this.state = "over";
    this.notify({ kind: "state" });
  }

  /** @param {{ text: string, error: boolean }} status */
  setStatus(status) {
    this.status = status;
    this.notify({ kind: "status", ...status });
  }

  /** @param {Line} line */
  #apply(line) {
    if ("column" in line) {
      if (!this.started) this.#start();
      const run = new Run(line, this.runs);
      this.runs.set(run.key, run);
      this.notify({ kind: "column", run });
    } else if ("run" in line) {
      const run = this.runs.get(line.run);
      if (!run) return;
      run.add(line);
      this.notify({ kind: "steps", run, steps: line.steps });
    } else if ("state" in line) {
      this.state = line.state;
      this.notify({ kind: "state" });
    } else if ("status" in line) {
      this.setStatus({ text: line.status, error: line.error });
    }
  }

  // The last comparison stays until the first column of the next one, because a request may be refused.
  #start() {
    this.started = true;
    this.runs = new Map();
    this.cursor = { at: null, column: null, replay: false, step: null };
    this.notify({ kind: "reset" });
  }
}

export const store = new Store();
