// The lanes of a race: each drafter's text as it grows, what was drafted and what became of it.
// Words and numbers come ready from Python, or are counted from the tokens that did. Text of the model
// only ever becomes textContent. Runs after writing.js, as the body of
// function(element, trigger, props, server, upload, watch); race_replay.js follows in the same function.

const part = (name) => element.querySelector("." + name);
const KEPT = new Set(["chosen", "accepted", "bonus", "resampled"]);
const FATES = {
  accepted: "drafted, accepted",
  bonus: "bonus after a whole draft",
  resampled: "the model's own after a rejection",
  chosen: "without a draft",
  drafted: "drafted, not judged yet",
  rejected: "rejected",
  ignored: "behind a rejected one, nobody judged it",
};
const PLACES = ["1st", "2nd", "3rd"];
const placeOf = (place) => PLACES[place - 1] ?? `${place}th`;
const seconds = (ms) => `${(ms / 1000).toFixed(2)} s`;

class Lane {
  constructor({ name, about }) {
    this.root = make("li", "lane");
    this.name = make("h4", "", name);
    this.badge = make("span", "badge");
    this.name.append(this.badge);
    this.track = make("div", "track");
    this.track.setAttribute("role", "img");
    this.text = make("div", "text");
    this.text.tabIndex = 0; // it may be scrolled
    this.text.setAttribute("role", "group");
    this.text.setAttribute("aria-label", `What ${name} wrote`);
    this.figures = {};
    const figures = make("dl", "figures");
    for (const [key, words] of FIGURES) {
      const pair = make("div", key);
      this.figures[key] = make("dd", "", "–");
      pair.append(make("dt", "", words), this.figures[key]);
      figures.append(pair);
    }
    const side = make("div", "side");
    const told = make("p", "about", about);
    this.error = make("p", "error");
    side.append(this.name, told, figures);
    const course = make("div", "course");
    course.append(this.track, this.text, this.error);
    this.root.append(side, course);
    this.tokens = [];
    this.rounds = [];
    this.spans = [];
    this.segments = [];
  }

  // News from Python; tokens stay as they were where none are told.
  hear(told) {
    this.told = told;
    if (told.tokens) {
      this.tokens = told.tokens;
      this.rounds = roundsOf(told.tokens);
    }
    this.error.textContent = told.error ?? "";
    this.draw(Infinity);
  }

  // The lane as it was after so many milliseconds of its own run.
  draw(clock) {
    const end = this.told.ms;
    const over = clock >= end && this.told.state !== "running";
    const before = this.spans.length;
    this.tokens.forEach((token, at) => this.place(token, at, clock));
    this.spans.splice(this.tokens.length).forEach((span) => span.remove());
    const settled = this.rounds.filter((round) => round.at <= clock);
    this.runUp(settled);
    this.count(settled, Math.min(clock, end), over);
    this.root.dataset.state = over || clock === Infinity ? this.told.state : clock > 0 ? "running" : "waiting";
    this.badge.textContent = badgeOf(this.told, over || clock === Infinity);
    if (this.spans.length > before || clock !== Infinity) this.follow();
  }

  place([words, fate, at, judged, round], index, clock) {
    let span = this.spans[index];
    if (!span) {
      span = this.spans[index] = make("span");
      this.text.append(span);
    }
    const now = at > clock ? "to-come" : judged === null || judged > clock ? "drafted" : fate;
    if (span.dataset.fate === now && span.textContent === words) return;
    span.dataset.fate = now;
    span.className = `tok ${now}`;
    span.textContent = words;
    span.title = FATES[now] ? `${FATES[now]}, round ${round}` : "";
  }

  // One piece of the track for each pass of the model, as long as what it brought.
  runUp(settled) {
    settled.forEach((round, at) => {
      const piece = (this.segments[at] ??= this.track.appendChild(make("span")));
      piece.style.width = `${(100 * round.kept) / this.told.asked}%`;
    });
    this.segments.splice(settled.length).forEach((piece) => piece.remove());
    const written = settled.reduce((sum, { kept }) => sum + kept, 0);
    this.track.setAttribute("aria-label", `${counted(written, "token")} of ${this.told.asked}`);
  }

  count(settled, ms, over) {
    const written = settled.reduce((sum, { kept }) => sum + kept, 0);
    const passes = over && this.told.passes !== null ? this.told.passes : settled.length + this.told.prompt;
    const begun = written > 0 && ms > 0;
    const drafted = settled.reduce((sum, { drafted }) => sum + drafted, 0);
    const accepted = settled.reduce((sum, { accepted }) => sum + accepted, 0);
    const rate = over && this.told.rate !== null ? this.told.rate : (1000 * written) / ms;
    this.figures.rate.textContent = begun ? rate.toFixed(1) : "–";
    this.figures.passes.textContent = begun ? String(passes) : "–";
    this.figures.yield.textContent = begun && passes ? (written / passes).toFixed(2) : "–";
    this.figures.kept.textContent = drafted ? `${accepted} of ${drafted}` : "–";
    this.figures.time.textContent = begun ? seconds(ms) : "–";
  }

  // The end of the text stays in sight, unless somebody reads further up.
  follow() {
    if (!this.text.matches(":hover, :focus")) this.text.scrollTop = this.text.scrollHeight;
  }
}

const FIGURES = [
  ["rate", "tokens/s"],
  ["passes", "target passes"],
  ["yield", "tokens per pass"],
  ["kept", "accepted"],
  ["time", "time"],
];

function badgeOf({ state, place, times }, over) {
  if (state === "waiting" || (state === "done" && !over)) return "";
  if (state !== "done") return { running: "running", stopped: "stopped", failed: "failed" }[state];
  if (!place) return "done";
  return times ? `${placeOf(place)}, ${times}` : placeOf(place);
}

// The passes of the model: when each was over, and what it brought.
function roundsOf(tokens) {
  const rounds = new Map();
  for (const [, fate, , judged, number, count = 1] of tokens) {
    if (judged === null) continue;
    const round = rounds.get(number) ?? { at: judged, kept: 0, drafted: 0, accepted: 0 };
    round.kept += KEPT.has(fate);
    round.accepted += fate === "accepted";
    round.drafted += ["accepted", "rejected", "ignored"].includes(fate) ? count : 0;
    rounds.set(number, round);
  }
  return [...rounds.values()];
}
