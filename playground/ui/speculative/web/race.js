// The race of drafters: one lane per drafter with its text, the drafts and their verdicts, and a replay
// of all lanes on one clock. Times are those that were measured.

import { button, make, part, reducedMotion } from "../../shared/web/dom.js";
import { counted } from "../../shared/web/format.js";

/** @typedef {import("../../shared/web/dom.js").Component} Component */

/**
 * A token of a lane: its text, its verdict, when it was written and verified in ms, its round, and how
 * many drafted tokens it stands for.
 * @typedef {[text: string, verdict: string, at: number, verified: number | null, round: number, count?: number]} Token
 *
 * @typedef {object} Lane
 * @property {number} id
 * @property {string} name
 * @property {string} about
 * @property {"waiting" | "running" | "done" | "stopped" | "failed"} state
 * @property {Token[]} [tokens] unchanged if they are missing
 * @property {string | null} [error]
 * @property {number} ms
 * @property {number} length tokens to write
 * @property {number} prompt passes over the prompt
 * @property {number | null} passes
 * @property {number | null} rate
 * @property {number | null} place
 * @property {string | null} [times]
 *
 * @typedef {{ at: number, kept: number, drafted: number, accepted: number }} Round
 */

const KEPT = new Set(["chosen", "accepted", "bonus", "resampled"]);
/** @type {Record<string, string>} */
const VERDICTS = {
  accepted: "drafted, accepted",
  bonus: "bonus token after an accepted draft",
  resampled: "the model's own token after a rejection",
  chosen: "without a draft",
  drafted: "drafted, not verified yet",
  rejected: "rejected",
  ignored: "discarded after a rejection",
};
const LEGEND = ["accepted", "bonus", "resampled", "rejected", "drafted"];
const FIGURES = { rate: "tokens/s", passes: "target passes", yield: "tokens per pass", kept: "accepted", time: "time" };
const SPEEDS = [{ text: "¼×", speed: 0.25 }, { text: "1×", speed: 1 }, { text: "4×", speed: 4 }];
const EMPTY = "No race has run yet.";
const PLACES = ["1st", "2nd", "3rd"];

/** @param {number} ms */
const seconds = (ms) => `${(ms / 1000).toFixed(2)} s`;

/**
 * The badge of a lane: its place, or its state.
 * @param {Pick<Lane, "state" | "place" | "times">} lane
 * @param {boolean} over
 */
export function badgeOf({ state, place, times }, over) {
  if (state === "waiting" || (state === "done" && !over)) return "";
  if (state !== "done") return state;
  if (!place) return "done";
  const name = PLACES[place - 1] ?? `${place}th`;
  return times ? `${name}, ${times}` : name;
}

/**
 * The passes of the target model: when each was over, and how many tokens it kept.
 * @param {Token[]} tokens
 */
export function roundsOf(tokens) {
  /** @type {Map<number, Round>} */
  const rounds = new Map();
  for (const [, verdict, , verified, number, count = 1] of tokens) {
    if (verified === null) continue;
    const round = rounds.get(number) ?? { at: verified, kept: 0, drafted: 0, accepted: 0 };
    if (KEPT.has(verdict)) round.kept += 1;
    if (verdict === "accepted") round.accepted += 1;
    if (["accepted", "rejected", "ignored"].includes(verdict)) round.drafted += count;
    rounds.set(number, round);
  }
  return [...rounds.values()];
}

class LaneView {
  /** @param {Lane} lane */
  constructor(lane) {
    this.lane = lane;
    /** @type {Token[]} */
    this.tokens = [];
    /** @type {Round[]} */
    this.rounds = [];
    /** @type {HTMLElement[]} */
    this.spans = [];
    /** @type {HTMLElement[]} */
    this.segments = [];
    this.root = make("li", "lane");
    const name = make("h4", "", lane.name);
    this.badge = make("span", "badge");
    name.append(this.badge);
    this.track = make("div", "track");
    this.track.setAttribute("role", "img");
    this.text = make("div", "text");
    this.text.tabIndex = 0; // it may scroll
    this.text.setAttribute("role", "group");
    this.text.setAttribute("aria-label", `Text of ${lane.name}`);
    const list = make("dl", "figures");
    /** @type {Record<string, HTMLElement>} */
    this.figures = {};
    for (const [key, label] of Object.entries(FIGURES)) {
      const pair = make("div", key);
      this.figures[key] = make("dd", "", "–");
      pair.append(make("dt", "", label), this.figures[key]);
      list.append(pair);
    }
    const side = make("div", "side");
    side.append(name, make("p", "about", lane.about), list);
    this.error = make("p", "error");
    const course = make("div", "course");
    course.append(this.track, this.text, this.error);
    this.root.append(side, course);
  }

  /** @param {Lane} lane */
  update(lane) {
    this.lane = lane;
    if (lane.tokens) {
      this.tokens = lane.tokens;
      this.rounds = roundsOf(lane.tokens);
    }
    this.error.textContent = lane.error ?? "";
    this.draw(Infinity);
  }

  /**
   * Draws the lane as it was so many ms after its own start.
   * @param {number} clock
   */
  draw(clock) {
    const { ms, state } = this.lane;
    const over = clock >= ms && state !== "running";
    const before = this.spans.length;
    this.tokens.forEach((token, at) => this.#drawToken(token, at, clock));
    this.spans.splice(this.tokens.length).forEach((span) => span.remove());
    const verified = this.rounds.filter((round) => round.at <= clock);
    this.#drawTrack(verified);
    this.#drawFigures(verified, Math.min(clock, ms), over);
    this.root.dataset.state = over || clock === Infinity ? state : clock > 0 ? "running" : "waiting";
    this.badge.textContent = badgeOf(this.lane, over || clock === Infinity);
    if (this.spans.length > before || clock !== Infinity) this.#scrollToEnd();
  }

  /**
   * @param {Token} token
   * @param {number} index
   * @param {number} clock
   */
  #drawToken([text, verdict, at, verified, round], index, clock) {
    let span = this.spans[index];
    if (!span) {
      span = this.spans[index] = make("span");
      this.text.append(span);
    }
    const now = at > clock ? "to-come" : verified === null || verified > clock ? "drafted" : verdict;
    if (span.dataset.fate === now && span.textContent === text) return;
    span.dataset.fate = now;
    span.className = `tok ${now}`;
    span.textContent = text;
    span.title = VERDICTS[now] ? `${VERDICTS[now]}, round ${round}` : "";
  }

  /**
   * One segment for each pass of the target model, as wide as the tokens it kept.
   * @param {Round[]} rounds
   */
  #drawTrack(rounds) {
    const { length } = this.lane;
    rounds.forEach((round, at) => {
      const segment = (this.segments[at] ??= this.track.appendChild(make("span")));
      segment.style.width = `${(100 * round.kept) / length}%`;
    });
    this.segments.splice(rounds.length).forEach((segment) => segment.remove());
    const written = rounds.reduce((sum, { kept }) => sum + kept, 0);
    this.track.setAttribute("aria-label", `${counted(written, "token")} of ${length}`);
  }

  /**
   * @param {Round[]} rounds
   * @param {number} ms
   * @param {boolean} over
   */
  #drawFigures(rounds, ms, over) {
    const { lane, figures } = this;
    const sum = (/** @type {keyof Round} */ name) => rounds.reduce((total, round) => total + round[name], 0);
    const [written, drafted] = [sum("kept"), sum("drafted")];
    const passes = over && lane.passes !== null ? lane.passes : rounds.length + lane.prompt;
    const rate = over && lane.rate !== null ? lane.rate : (1000 * written) / ms;
    const begun = written > 0 && ms > 0;
    figures.rate.textContent = begun ? rate.toFixed(1) : "–";
    figures.passes.textContent = begun ? String(passes) : "–";
    figures.yield.textContent = begun && passes ? (written / passes).toFixed(2) : "–";
    figures.kept.textContent = drafted ? `${sum("accepted")} of ${drafted}` : "–";
    figures.time.textContent = begun ? seconds(ms) : "–";
  }

  // The end of the text stays visible, unless the user is reading it.
  #scrollToEnd() {
    if (!this.text.matches(":hover, :focus")) this.text.scrollTop = this.text.scrollHeight;
  }
}

class RaceView {
  /** @param {Component} component */
  constructor({ element, props }) {
    this.element = element;
    this.props = props;
    /** @type {Map<number, LaneView>} */
    this.lanes = new Map();
    this.clock = { at: Infinity, end: 0, speed: 1, frame: 0, last: 0 };
    this.status = part(element, "status");
    this.tools = part(element, "tools");
    this.legend = part(element, "legend");
    this.list = part(element, "lanes");
    this.playButton = button("play", "Replay together", () => (this.clock.frame ? this.#pause() : this.#play()));
    this.slider = Object.assign(make("input", "clock"), { type: "range", min: "0", step: "any" });
    this.slider.setAttribute("aria-label", "Time of the replay");
    this.slider.addEventListener("input", () => {
      const at = Number(this.slider.value); // pausing moves the slider back to the clock
      this.#pause();
      this.#show(at);
    });
    this.reading = make("output", "reading");
    this.speeds = SPEEDS.map(({ text, speed }) => button("", text, () => {
      this.clock.speed = speed;
      this.#refresh();
    }));
    this.#mount();
  }

  #mount() {
    const speeds = make("div", "speeds");
    speeds.setAttribute("role", "group");
    speeds.setAttribute("aria-label", "Speed of the replay");
    speeds.append(...this.speeds);
    const rejected = button("", "Rejected drafts", () => {
      const hidden = this.list.classList.toggle("clean");
      rejected.setAttribute("aria-pressed", String(!hidden));
    });
    rejected.setAttribute("aria-pressed", "true");
    this.tools.append(this.playButton, this.slider, this.reading, speeds, rejected);
    for (const verdict of LEGEND) this.legend.append(make("span", `sample tok ${verdict}`, VERDICTS[verdict]));
  }

  /** @param {number} at */
  #show(at) {
    this.clock.at = at;
    for (const lane of this.lanes.values()) lane.draw(at);
    this.#refresh();
  }

  #refresh() {
    const { clock } = this;
    const at = Math.min(clock.at, clock.end);
    this.slider.value = String(at);
    this.slider.setAttribute("aria-valuetext", seconds(at));
    this.reading.textContent = `${seconds(at)} of ${seconds(clock.end)}`;
    this.playButton.textContent = clock.frame ? "Pause" : "Replay together";
    this.speeds.forEach((node, i) => node.setAttribute("aria-pressed", String(SPEEDS[i].speed === clock.speed)));
  }

  #pause() {
    cancelAnimationFrame(this.clock.frame);
    this.clock.frame = 0;
    this.#refresh();
  }

  // With reduced motion, each press advances the clock by a tenth.
  #play() {
    const { clock } = this;
    const restart = clock.at >= clock.end;
    if (reducedMotion()) return this.#show(restart ? clock.end / 10 : Math.min(clock.at + clock.end / 10, clock.end));
    if (restart) this.#show(0);
    clock.last = performance.now();
    clock.frame = requestAnimationFrame((now) => this.#tick(now));
    this.#refresh();
  }

  /** @param {number} now */
  #tick(now) {
    const { clock } = this;
    const at = clock.at + (now - clock.last) * clock.speed;
    clock.last = now;
    if (at >= clock.end) {
      clock.frame = 0;
      return this.#show(Infinity);
    }
    clock.frame = requestAnimationFrame((next) => this.#tick(next));
    this.#show(at);
  }

  update() {
    const view = this.props.value ? JSON.parse(this.props.value) : {};
    if (this.clock.frame) this.#pause();
    /** @type {Lane[]} */
    const lanes = view.lanes ?? [];
    if (this.element.dataset.race !== (view.race ?? "")) {
      this.lanes.clear();
      this.list.replaceChildren();
      this.element.dataset.race = view.race ?? "";
    }
    for (const lane of lanes) {
      const shown = this.lanes.get(lane.id) ?? new LaneView(lane);
      if (!this.lanes.has(lane.id)) this.list.append(shown.root);
      this.lanes.set(lane.id, shown);
      shown.update(lane);
    }
    const over = view.over === true;
    this.status.textContent = view.status ?? EMPTY;
    this.status.dataset.kind = view.kind ?? "empty";
    this.tools.hidden = !over || !lanes.some(({ ms }) => ms > 0);
    this.legend.hidden = !lanes.length;
    this.clock.at = Infinity;
    this.clock.end = Math.max(0, ...lanes.map(({ ms }) => ms));
    this.slider.max = String(this.clock.end);
    this.element.dataset.over = String(over);
    this.#refresh();
  }
}

/** @param {Component} component */
export function mount(component) {
  const view = new RaceView(component);
  component.watch("value", () => view.update());
  view.update();
}
