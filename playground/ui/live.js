// The live columns: reads a feed of JSON lines and shows each run's text token by token.
// Knows steps, distributions and where the reader is. Invents no number: the feed brings them.
// Text of the model only ever becomes textContent.
// Gradio runs this as the body of function(element, trigger, props, server, upload, watch).

const VIRIDIS = [
  [68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141],
  [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37],
];
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const part = (name) => element.querySelector("." + name);

let columns = [];

// --- small things -------------------------------------------------------------------------------

function make(tag, name, text) {
  const node = document.createElement(tag);
  if (name) node.className = name;
  if (text !== undefined) node.textContent = text;
  return node;
}

function viridis(probability) {
  const place = Math.min(Math.max(probability, 0), 1) * (VIRIDIS.length - 1);
  const low = Math.min(Math.floor(place), VIRIDIS.length - 2);
  const mix = VIRIDIS[low].map((c, i) => Math.round(c + (VIRIDIS[low + 1][i] - c) * (place - low)));
  return `rgb(${mix.join(" ")})`;
}

function percent(probability) {
  if (probability === 0) return "0 %";
  if (probability < 0.0001) return "< 0.01 %";
  return (probability * 100).toFixed(probability < 0.01 ? 2 : 1) + " %";
}

const PICTURES = { " ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "\u00a0": "⍽" };
const visible = (text) => text.replace(/[ \n\t\r\u00a0]/g, (character) => PICTURES[character]);

function rankClass(rank) {
  return rank === 1 ? "rank-1" : rank <= 5 ? "rank-5" : rank <= 20 ? "rank-20" : "rank-more";
}

// --- one column ---------------------------------------------------------------------------------

class Column {
  constructor(head, index) {
    this.steps = new Map();
    this.distributions = [];
    this.path = []; // the steps shown, first token first
    this.index = index;
    this.root = make("section", "column");
    const title = make("h3", "", head.name);
    this.state = make("span", "state", "waiting");
    title.append(this.state);
    this.text = make("div", "text");
    this.text.setAttribute("role", "listbox");
    this.text.setAttribute("aria-orientation", "horizontal");
    this.text.setAttribute("aria-label", `Tokens of ${head.name}, ${head.settings}`);
    this.sequences = make("div", "sequences");
    this.figures = make("dl", "figures");
    const settings = make("p", "settings", head.settings);
    this.root.append(title, settings, this.text, this.sequences, this.figures);
  }

  apply(news) {
    this.distributions.push(...news.distributions);
    for (const step of news.steps) this.steps.set(step.id, step);
    if (!news.end) this.setState("writing");
    this.show(news.lead);
    if (news.end) this.finish(news.end);
  }

  setState(name) {
    this.state.textContent = name;
    this.root.dataset.state = name;
  }

  pathTo(lead) {
    const path = [];
    for (let step = this.steps.get(lead); step; step = this.steps.get(step.parent)) path.push(step);
    return path.reverse();
  }

  // Shows the text that ends at a step: what it shares with the last one stays, the rest is struck out.
  show(lead) {
    const path = this.pathTo(lead);
    let same = 0;
    while (same < path.length && path[same].id === this.path[same]?.id) same++;
    const tokens = [...this.text.querySelectorAll(".token")];
    const lost = tokens.slice(same);
    const focused = lost.includes(document.activeElement);
    if (lost.length) this.strike(lost);
    const fresh = path.slice(same).map((step) => this.token(step));
    const ghost = this.text.querySelector("del");
    fresh.forEach((token) => this.text.insertBefore(token, ghost));
    this.path = path;
    this.rove(focused ? fresh[0] || tokens[same - 1] : null);
  }

  strike(lost) {
    this.text.querySelectorAll("del").forEach((ghost) => ghost.remove());
    const words = lost.map((token) => token.textContent).join("");
    lost.forEach((token) => token.remove());
    if (calm.matches || !words.trim()) return;
    const ghost = make("del", "", words);
    ghost.setAttribute("aria-hidden", "true");
    this.text.append(ghost);
    const fading = ghost.animate([{ opacity: 0.7 }, { opacity: 0 }], { duration: 900 });
    fading.onfinish = () => ghost.remove();
  }

  token(step) {
    const seen = step.raw !== null;
    const token = make("span", "token " + (seen ? rankClass(step.rank) : "unseen"), step.text);
    if (seen) token.style.setProperty("--tint", viridis(step.raw));
    token.dataset.step = step.id;
    token.tabIndex = -1;
    token.setAttribute("role", "option");
    token.setAttribute("aria-selected", "false");
    const name = step.text.trim() || visible(step.token);
    const measure = seen ? `${percent(step.raw)}, rank ${step.rank}` : "not captured";
    token.setAttribute("aria-label", `${name}, ${measure}`);
    if (!step.text) token.dataset.mark = visible(step.token); // an end token, or part of a character
    else if (step.text.includes("\n")) token.dataset.mark = "⏎";
    if (!calm.matches) token.animate([{ opacity: 0 }, { opacity: 1 }], { duration: 150 });
    return token;
  }

  // One tab stop per column; the arrow keys move it.
  rove(target) {
    const stop = this.text.querySelector('[tabindex="0"]');
    const next = target || stop || this.text.querySelector(".token");
    if (stop && stop !== next) stop.tabIndex = -1;
    if (next) next.tabIndex = 0;
    if (target) target.focus({ preventScroll: true });
  }

  finish(end) {
    const failed = end.error !== null;
    this.setState(failed ? "failed" : end.rule === "cancelled" ? "stopped" : "done");
    this.root.querySelector(".failure")?.remove();
    if (failed) this.text.after(make("p", "failure", end.error));
    this.figures.replaceChildren();
    for (const [name, value] of [...end.figures, ["ended", end.stop]]) {
      const pair = make("div");
      pair.append(make("dt", "", name), make("dd", "", value));
      this.figures.append(pair);
    }
    this.choices(end.sequences);
  }

  // The returned sequences, best first; choosing one shows its text.
  choices(sequences) {
    const scored = sequences.some((sequence) => sequence.score !== null);
    if (!scored && sequences.length < 2) return;
    const buttons = sequences.map((sequence, place) => {
      const button = make("button", "", `${place + 1}. ${sequence.score ?? ""}`.trim());
      button.type = "button";
      button.title = `${sequence.tokens} tokens, ${sequence.stop}`;
      button.addEventListener("click", () => choose(place));
      return button;
    });
    const choose = (place) => {
      buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(at === place)));
      this.show(sequences[place].lead);
    };
    choose(0);
    this.sequences.replaceChildren(make("span", "label", scored ? "by score" : "returned"), ...buttons);
  }
}

// --- where the reader is --------------------------------------------------------------------------

const tokenAt = (event) => event.target.closest?.(".token");
const columnOf = (token) => columns[Number(token.closest(".column").dataset.index)];

element.addEventListener("click", (event) => {
  const token = tokenAt(event);
  if (token) columnOf(token).rove(token);
});

element.addEventListener("keydown", (event) => {
  const token = tokenAt(event);
  if (!token) return;
  const column = columnOf(token);
  const tokens = [...column.text.querySelectorAll(".token")];
  const at = tokens.indexOf(token);
  const aside = (other) => {
    const there = other ? [...other.text.querySelectorAll(".token")] : [];
    return there[at] ?? there.at(-1);
  };
  const moves = {
    ArrowRight: () => tokens[at + 1],
    ArrowLeft: () => tokens[at - 1],
    Home: () => tokens[0],
    End: () => tokens.at(-1),
    ArrowDown: () => aside(columns[column.index + 1]),
    ArrowUp: () => aside(columns[column.index - 1]),
  };
  if (!moves[event.key]) return;
  event.preventDefault();
  const next = moves[event.key]();
  if (next) columnOf(next).rove(next);
});

// --- the feed -----------------------------------------------------------------------------------

function begin(heads) {
  columns = heads.map((head, index) => new Column(head, index));
  columns.forEach((column) => (column.root.dataset.index = column.index));
  part("columns").replaceChildren(...columns.map((column) => column.root));
  part("candidates").hidden = true;
  element.scrollIntoView({ block: "nearest", behavior: calm.matches ? "auto" : "smooth" });
}

function say(news) {
  const status = part("status");
  status.textContent = news.say;
  status.classList.toggle("error", news.error);
}

// The runs are over, and so is the feed: Python tidies up, and whoever waits can see it.
// Two events, as Gradio lets a listener drawn with the cards take the place of one of the page.
function end() {
  element.dataset.over = feed;
  trigger("over");
  trigger("ended");
}

let feed = "";
let read = 0; // lines of it

function hear() {
  if (!props.value) return;
  const [head, ...lines] = props.value.split("\n");
  const { feed: name, from } = JSON.parse(head);
  if (name !== feed) {
    [feed, read] = [name, 0];
    trigger("begun");
  }
  if (from > read) return; // a screen was missed: the next whole one brings it
  const unread = lines.slice(read - from);
  read += unread.length;
  for (const line of unread) {
    const news = JSON.parse(line);
    if (news.columns) begin(news.columns);
    if (news.say !== undefined) say(news);
    if (news.run !== undefined) columns[news.run].apply(news);
    if (news.over) end();
  }
}

watch("value", hear);
hear();
