// The race on one clock: every lane as it was so many milliseconds after its own start.
// Runs after race.js, in the same function; the times are those that were measured.

const calm = matchMedia("(prefers-reduced-motion: reduce)");
const SPEEDS = [["¼×", 0.25], ["1×", 1], ["4×", 4]];
const EMPTY = "Nothing has run yet.";

const [say, tools, legend, list] = ["say", "tools", "legend", "lanes"].map(part);
const lanes = new Map(); // by id
let told = {};
const clock = { at: Infinity, end: 0, speed: 1, frame: 0, last: 0 };

const play = button("play", "Replay together", () => (clock.frame ? hold() : begin()));
const slider = make("input", "clock");
slider.type = "range";
slider.min = 0;
slider.step = "any";
slider.setAttribute("aria-label", "The common clock");
const reading = make("output", "reading");
const speeds = SPEEDS.map(([words, speed]) =>
  button("", words, () => {
    clock.speed = speed;
    refresh();
  }),
);
const strike = button("", "Struck-out drafts", () => {
  const clean = list.classList.toggle("clean");
  strike.setAttribute("aria-pressed", String(!clean));
});
strike.setAttribute("aria-pressed", "true");

function buildTools() {
  const pace = make("div", "speeds");
  pace.setAttribute("role", "group");
  pace.setAttribute("aria-label", "How fast the clock goes");
  pace.append(...speeds);
  tools.append(play, slider, reading, pace, strike);
  slider.addEventListener("input", () => {
    const at = Number(slider.value); // holding the clock moves the slider back to it
    hold();
    show(at);
  });
  for (const fate of ["accepted", "bonus", "resampled", "rejected", "drafted"]) {
    legend.append(make("span", `sample tok ${fate}`, FATES[fate]));
  }
}

function show(at) {
  clock.at = at;
  for (const lane of lanes.values()) lane.draw(at);
  refresh();
}

function refresh() {
  const at = Math.min(clock.at, clock.end);
  slider.value = at;
  slider.setAttribute("aria-valuetext", seconds(at));
  reading.textContent = `${seconds(at)} of ${seconds(clock.end)}`;
  play.textContent = clock.frame ? "Pause" : "Replay together";
  speeds.forEach((one, i) => one.setAttribute("aria-pressed", String(SPEEDS[i][1] === clock.speed)));
}

function hold() {
  cancelAnimationFrame(clock.frame);
  clock.frame = 0;
  refresh();
}

// Whoever asks for less motion moves the clock by hand: here it goes on by a tenth at a press.
function begin() {
  const fresh = clock.at >= clock.end;
  if (calm.matches) return show(fresh ? clock.end / 10 : Math.min(clock.at + clock.end / 10, clock.end));
  if (fresh) show(0);
  clock.last = performance.now();
  clock.frame = requestAnimationFrame(tick);
  refresh();
}

function tick(now) {
  const at = clock.at + (now - clock.last) * clock.speed;
  clock.last = now;
  if (at >= clock.end) {
    clock.frame = 0;
    return show(Infinity);
  }
  clock.frame = requestAnimationFrame(tick);
  show(at);
}

function hear() {
  told = props.value ? JSON.parse(props.value) : {};
  if (clock.frame) hold();
  const heard = told.lanes ?? [];
  if (element.dataset.race !== (told.race ?? "")) {
    lanes.clear();
    list.replaceChildren();
    element.dataset.race = told.race ?? "";
  }
  for (const lane of heard) {
    if (!lanes.has(lane.id)) {
      lanes.set(lane.id, new Lane(lane));
      list.append(lanes.get(lane.id).root);
    }
    lanes.get(lane.id).hear(lane);
  }
  say.textContent = told.say ?? EMPTY;
  say.dataset.kind = told.kind ?? "empty";
  const replayable = told.over === true && heard.filter(({ ms }) => ms > 0).length > 0;
  tools.hidden = !replayable;
  legend.hidden = !heard.length;
  clock.at = Infinity;
  clock.end = Math.max(0, ...heard.map(({ ms }) => ms));
  slider.max = clock.end;
  element.dataset.over = String(told.over === true);
  refresh();
}

buildTools();
watch("value", hear);
hear();
