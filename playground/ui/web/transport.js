// The transport bar: walks through the texts, replays them, and holds or steps the runs themselves.
// Knows the cursor and the pace. Refuses to know what the tokens are. Runs after live.js, in the same function.

// How many tokens of the texts are shown.
const positionOf = ({ cursor, length }) => (cursor.at === null ? length : Math.min(cursor.at + 1, length));

// What a button does: {seek: tokens, or null for the end} moves the cursor, {paced} is for the runs,
// {replay} starts or ends the replay of runs that are over.
function act(wish, { pace, replaying, position, length }) {
  const atEnd = position >= length;
  if (wish === "start") return { seek: 1 };
  if (wish === "back") return { seek: Math.max(1, position - 1) };
  if (wish === "end") return { seek: null };
  if (wish === "step" && !atEnd) return { seek: position + 1 };
  if (wish === "step") return pace === "over" ? {} : { paced: pace === "paused" ? "step" : "pause", seek: null };
  if (pace === "playing") return { paced: "pause" };
  if (pace === "paused") return { paced: "play", seek: null };
  if (replaying) return { replay: false };
  return atEnd ? { seek: 1, replay: true } : { replay: true };
}

// Where the cursor goes for so many tokens: the end of runs that go on is wherever it will be.
function placeFor(seek, { pace, length }) {
  if (seek === null || (pace !== "over" && seek >= length)) return [null, {}];
  return [seek - 1, { replay: true }];
}

const KEYS = { " ": "play", ArrowLeft: "back", ArrowRight: "step", Home: "start", End: "end" };
const TAKEN =
  "input, textarea, select, button, a[href], summary, [contenteditable]:not([contenteditable=false]), [role=tab], " +
  "[role=slider], [role=option], [role=menuitem], [role=treeitem], [role=button], [role=combobox], [role=dialog]";

// Which button a key presses; nothing where the key belongs to what has the focus.
function wishOf(event) {
  if (event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return undefined;
  const token = event.target.closest?.(".token");
  if (token ? event.key !== " " : event.target.closest?.(TAKEN)) return undefined;
  return KEYS[event.key];
}

const ICONS = {
  start: "M4 4h2v12H4zM16 4v12L7 10z", back: "M14 4v12L5 10z", play: "M6 3v14l11-7z",
  pause: "M5 3h4v14H5zM11 3h4v14h-4z", step: "M6 4v12l9-6z", end: "M14 4h2v12h-2zM4 4v12l9-6z",
};

function iconOf(name) {
  const picture = draw("svg", { viewBox: "0 0 20 20", "aria-hidden": "true" });
  picture.append(draw("path", { d: ICONS[name] }));
  return picture;
}

const player = { buttons: {}, timer: 0, drawn: "", pace: "over" };

function press(wish) {
  const now = { pace: store.pace, replaying: player.timer !== 0, position: positionOf(store), length: store.length };
  if (!now.length && now.pace === "over") return;
  const { seek, paced, replay } = act(wish, now);
  replaying(false);
  if (seek !== undefined) seekTo(seek);
  if (replay) replaying(true);
  if (paced) trigger("paced", { do: paced });
  refreshTransport();
}

const seekTo = (seek) => {
  const [at, how] = placeFor(seek, store);
  store.point(at, how);
};

function replaying(on) {
  clearInterval(player.timer);
  player.timer = on ? setInterval(replayOne, 1000 / Number(player.speed.value)) : 0;
}

function replayOne() {
  if (!element.isConnected) return replaying(false);
  if (positionOf(store) < store.length) seekTo(positionOf(store) + 1);
  if (positionOf(store) >= store.length) replaying(false);
  refreshTransport();
}

function mountTransport() {
  const names = { start: "To the start", back: "One step back", play: "Play", step: "One step on", end: "To the end" };
  const group = make("span", "buttons");
  for (const [wish, name] of Object.entries(names)) {
    const node = button("", undefined, () => press(wish));
    node.append(iconOf(wish));
    node.title = name;
    node.setAttribute("aria-label", name);
    node.dataset.wish = wish;
    player.buttons[wish] = node;
    group.append(node);
  }
  player.slider = Object.assign(make("input"), { type: "range", min: 1, step: 1 });
  player.slider.setAttribute("aria-label", "Step of the texts");
  player.slider.addEventListener("input", () => {
    replaying(false);
    seekTo(Number(player.slider.value));
  });
  player.words = make("output", "step");
  const speed = make("label", "speed", "replay ");
  player.speed = make("select");
  for (const rate of [2, 8, 20]) player.speed.append(new Option(`${rate} steps/s`, rate, rate === 8, rate === 8));
  player.speed.addEventListener("change", () => player.timer && replaying(true));
  speed.append(player.speed);
  part("transport").append(group, player.slider, player.words, speed, hint());
  document.addEventListener("keydown", onKey);
  refreshTransport();
}

function hint() {
  const words = make("span", "hint");
  for (const [key, does] of [["Space", "play"], ["← →", "step"], ["Home End", "ends"], ["Enter", "candidates"]]) {
    words.append(make("kbd", "", key), ` ${does} `);
  }
  return words;
}

function onKey(event) {
  if (!element.isConnected) return document.removeEventListener("keydown", onKey);
  const wish = wishOf(event);
  if (!wish || !store.runs.size) return;
  event.preventDefault();
  press(wish);
}

// A button that is switched off loses the focus, and the reader the place: the bar takes it, where all keys work.
function catchFocus(paceChanged) {
  const bar = part("transport");
  const focused = document.activeElement;
  const lost = paceChanged ? focused?.matches("#run, #step, #stop") : focused?.disabled && bar.contains(focused);
  if (lost) bar.focus({ preventScroll: true });
}

function refreshTransport() {
  const { length, pace } = store;
  const position = positionOf(store);
  const going = pace === "playing" || player.timer !== 0;
  const now = [length, position, pace, going, store.runs.size].join();
  if (now === player.drawn) return;
  player.drawn = now;
  part("transport").hidden = !store.runs.size;
  player.slider.max = Math.max(1, length);
  player.slider.value = Math.max(1, position);
  player.words.textContent = `step ${position} of ${length}`;
  player.slider.setAttribute("aria-valuetext", player.words.textContent);
  const { start, back, play, step, end } = player.buttons;
  start.disabled = back.disabled = position <= 1;
  step.disabled = position >= length && pace === "over";
  end.disabled = position >= length && store.cursor.at === null;
  play.disabled = !length && pace === "over";
  catchFocus(false);
  if (player.pace !== pace) catchFocus(true);
  player.pace = pace;
  if (play.dataset.icon !== String(going)) {
    play.dataset.icon = String(going);
    play.replaceChildren(iconOf(going ? "pause" : "play"));
  }
  const live = pace !== "over";
  const name = going ? (live ? "Pause the runs" : "Pause") : live ? "Let the runs go on" : "Replay";
  play.title = name;
  play.setAttribute("aria-label", name);
  const further = live && position >= length ? "Let the runs write one more token" : "One step on";
  step.title = further;
  step.setAttribute("aria-label", further);
}
