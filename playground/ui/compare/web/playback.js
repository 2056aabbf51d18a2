// The playback bar: moves through the texts, replays them, and pauses, resumes or steps the runs.

import { button, closest, make, part, svg } from "../../shared/web/dom.js";
import { store } from "./store.js";

/** @typedef {"start" | "back" | "play" | "step" | "end"} Action */
/** @typedef {"playing" | "paused" | "over"} RunState */

/**
 * @typedef {object} Effect
 * @property {number | null} [seek] show so many tokens; null is the end
 * @property {"play" | "pause" | "step"} [command] to the runs
 * @property {boolean} [replay] starts or stops the replay of finished runs
 */

/**
 * How many tokens of the texts are shown.
 * @param {{ cursor: { at: number | null }, length: number }} now
 */
export const positionOf = ({ cursor, length }) => (cursor.at === null ? length : Math.min(cursor.at + 1, length));

/**
 * What a button does.
 * @param {Action} action
 * @param {{ state: RunState, replaying: boolean, position: number, length: number }} now
 * @returns {Effect}
 */
export function effectOf(action, { state, replaying, position, length }) {
  const atEnd = position >= length;
  if (action === "start") return { seek: 1 };
  if (action === "back") return { seek: Math.max(1, position - 1) };
  if (action === "end") return { seek: null };
  if (action === "step" && !atEnd) return { seek: position + 1 };
  if (action === "step") return state === "over" ? {} : { command: state === "paused" ? "step" : "pause", seek: null };
  if (state === "playing") return { command: "pause" };
  if (state === "paused") return { command: "play", seek: null };
  if (replaying) return { replay: false };
  return atEnd ? { seek: 1, replay: true } : { replay: true };
}

/**
 * The cursor that shows so many tokens. The end of runs in progress moves with them.
 * @param {number | null} seek
 * @param {{ state: RunState, length: number }} now
 * @returns {[at: number | null, options: { replay?: boolean }]}
 */
export function cursorFor(seek, { state, length }) {
  if (seek === null || (state !== "over" && seek >= length)) return [null, {}];
  return [seek - 1, { replay: true }];
}

/** @type {Record<string, Action>} */
const KEYS = { " ": "play", ArrowLeft: "back", ArrowRight: "step", Home: "start", End: "end" };
const INTERACTIVE =
  "input, textarea, select, button, a[href], summary, [contenteditable]:not([contenteditable=false]), [role=tab], " +
  "[role=slider], [role=option], [role=menuitem], [role=treeitem], [role=button], [role=combobox], [role=dialog]";

/**
 * The action of a key; undefined where the focused element uses the key itself.
 * @param {Pick<KeyboardEvent, "key" | "defaultPrevented" | "ctrlKey" | "altKey" | "metaKey" | "shiftKey">} event
 * @param {Pick<Element, "closest"> | null} target
 */
export function actionOf(event, target) {
  if (event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return undefined;
  const token = target?.closest(".token");
  if (token ? event.key !== " " : target?.closest(INTERACTIVE)) return undefined;
  return KEYS[event.key];
}

const ICONS = {
  start: "M4 4h2v12H4zM16 4v12L7 10z", back: "M14 4v12L5 10z", play: "M6 3v14l11-7z",
  pause: "M5 3h4v14H5zM11 3h4v14h-4z", step: "M6 4v12l9-6z", end: "M14 4h2v12h-2zM4 4v12l9-6z",
};
const LABELS = { start: "To the start", back: "One step back", play: "Play", step: "One step forward", end: "To the end" };
const SHORTCUTS = [["Space", "play"], ["← →", "step"], ["Home End", "first, last"], ["Enter", "candidates"]];

/** @param {keyof typeof ICONS} name */
function icon(name) {
  const picture = svg("svg", { viewBox: "0 0 20 20", "aria-hidden": "true" });
  picture.append(svg("path", { d: ICONS[name] }));
  return picture;
}

/**
 * @param {HTMLElement} node
 * @param {string} text
 */
function label(node, text) {
  node.title = text;
  node.setAttribute("aria-label", text);
}

export class Playback {
  /**
   * @param {HTMLElement} view
   * @param {(command: string) => void} onCommand
   */
  constructor(view, onCommand) {
    this.view = view;
    this.bar = part(view, "transport");
    this.onCommand = onCommand;
    this.timer = 0;
    this.drawn = "";
    /** @type {RunState} */
    this.state = "over";
    const [start, back, play, step, end] = /** @type {Action[]} */ (Object.keys(LABELS)).map((action) => {
      const node = button("", undefined, () => this.act(action));
      node.append(icon(action));
      label(node, LABELS[action]);
      node.dataset.action = action;
      return node;
    });
    this.buttons = { start, back, play, step, end };
    this.slider = Object.assign(make("input"), { type: "range", min: "1", step: "1" });
    this.slider.setAttribute("aria-label", "Position in the texts");
    this.slider.addEventListener("input", () => {
      this.replay(false);
      this.#seek(Number(this.slider.value));
    });
    this.position = make("output", "step");
    this.speed = make("select");
    this.#mount();
    this.refresh();
  }

  #mount() {
    const group = make("span", "buttons");
    group.append(...Object.values(this.buttons));
    const speed = make("label", "speed", "replay ");
    for (const rate of [2, 8, 20]) {
      this.speed.append(new Option(`${rate} steps/s`, String(rate), rate === 8, rate === 8));
    }
    this.speed.addEventListener("change", () => this.timer && this.replay(true));
    speed.append(this.speed);
    const hint = make("span", "hint");
    for (const [key, does] of SHORTCUTS) hint.append(make("kbd", "", key), ` ${does} `);
    this.bar.append(group, this.slider, this.position, speed, hint);
    const onKey = (/** @type {KeyboardEvent} */ event) => {
      if (!this.view.isConnected) return document.removeEventListener("keydown", onKey);
      const action = actionOf(event, event.target instanceof Element ? event.target : null);
      if (!action || !store.runs.size) return;
      event.preventDefault();
      this.act(action);
    };
    document.addEventListener("keydown", onKey);
    this.view.addEventListener("click", (event) => {
      if (!closest(event, ".token") || !this.timer) return;
      this.replay(false); // the visitor looks at a token
      this.refresh();
    });
  }

  /** @param {Action} action */
  act(action) {
    const { state, length } = store;
    if (!length && state === "over") return;
    const { seek, command, replay } = effectOf(action, {
      state, length, replaying: this.timer !== 0, position: positionOf(store),
    });
    this.replay(false);
    if (seek !== undefined) this.#seek(seek);
    if (replay) this.replay(true);
    if (command) this.onCommand(command);
    this.refresh();
  }

  /** @param {number | null} seek */
  #seek(seek) {
    const [at, options] = cursorFor(seek, store);
    store.select(at, options);
  }

  /** @param {boolean} on */
  replay(on) {
    clearInterval(this.timer);
    this.timer = on ? setInterval(() => this.#replayStep(), 1000 / Number(this.speed.value)) : 0;
    store.setReplaying(on);
  }

  #replayStep() {
    if (!this.view.isConnected) return this.replay(false);
    if (positionOf(store) < store.length) this.#seek(positionOf(store) + 1);
    if (positionOf(store) >= store.length) this.replay(false);
    this.refresh();
  }

  /**
   * A button that is disabled loses the focus: the bar takes it, so that all keys keep working.
   * @param {boolean} stateChanged
   */
  #catchFocus(stateChanged) {
    const focused = document.activeElement;
    const lost = stateChanged
      ? focused?.matches("#run, #step, #stop")
      : focused instanceof HTMLButtonElement && focused.disabled && this.bar.contains(focused);
    if (lost) this.bar.focus({ preventScroll: true });
  }

  refresh() {
    const { length, state } = store;
    const position = positionOf(store);
    const playing = state === "playing" || this.timer !== 0;
    const now = [length, position, state, playing, store.runs.size].join();
    if (now === this.drawn) return;
    this.drawn = now;
    this.bar.hidden = !store.runs.size;
    this.slider.max = String(Math.max(1, length));
    this.slider.value = String(Math.max(1, position));
    this.position.textContent = `step ${position} of ${length}`;
    this.slider.setAttribute("aria-valuetext", this.position.textContent);
    const { start, back, play, step, end } = this.buttons;
    start.disabled = back.disabled = position <= 1;
    step.disabled = position >= length && state === "over";
    end.disabled = position >= length && store.cursor.at === null;
    play.disabled = !length && state === "over";
    this.#catchFocus(false);
    if (this.state !== state) this.#catchFocus(true);
    this.state = state;
    if (play.dataset.icon !== String(playing)) {
      play.dataset.icon = String(playing);
      play.replaceChildren(icon(playing ? "pause" : "play"));
    }
    const live = state !== "over";
    label(play, playing ? (live ? "Pause the runs" : "Pause") : live ? "Resume the runs" : "Replay");
    label(step, live && position >= length ? "Run one more step" : LABELS.step);
  }
}
