// What goes in and out: the feed into the store, its changes to the parts of this view, and the
// reader's clicks and keys to the store and to Python.
// Runs last, as the body of function(element, trigger, props, server, upload, watch).

// --- the reader's clicks and keys on tokens -------------------------------------------------------

function pin(token) {
  const column = columnOf(token);
  column.rove(token, true);
  reveal(token, true);
  store.point(column.tokens.indexOf(token), { column: column.run.key });
}

// The token a key leads to from another one, in a text or to the same place beside it.
function neighbour(key, column, at) {
  const { tokens } = column;
  const columns = store.columns.map((run) => shown.get(run)).filter((other) => !other.root.hidden && other.tokens.length);
  const aside = (by) => {
    const there = columns[columns.indexOf(column) + by]?.tokens ?? [];
    return there[at] ?? there.at(-1);
  };
  return {
    ArrowRight: () => tokens[at + 1], ArrowLeft: () => tokens[at - 1], Home: () => tokens[0], End: () => tokens.at(-1),
    ArrowDown: () => aside(1), ArrowUp: () => aside(-1),
  }[key];
}

function walk(event, token) {
  const column = columnOf(token);
  const at = column.tokens.indexOf(token);
  const leads = neighbour(event.key, column, at);
  if (!leads || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  let next = leads();
  if (!next && event.key === "ArrowRight" && store.cursor.replay) {
    press("step"); // the text goes on behind what the replay shows
    flush();
    next = column.tokens[at + 1];
  }
  if (!next) return;
  const there = columnOf(next);
  there.rove(next, true);
  next.scrollIntoView({ block: "nearest" });
  store.point(there.tokens.indexOf(next), { column: there.run.key, replay: store.cursor.replay });
}

function onTokenKey(event) {
  const token = event.target.closest?.(".token");
  if (!token) return;
  if (event.key === "Enter") {
    event.preventDefault();
    pin(token);
    intoCard();
  } else if (event.key === "Escape") {
    if (card.node.hidden) store.point(null);
    conceal();
  } else {
    walk(event, token);
  }
}

// The words of a column's figures are one stop for the keyboard.
function walkFigures(event) {
  const figures = event.target.closest?.(".figures");
  const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!figures || !by) return;
  event.preventDefault();
  const words = [...figures.querySelectorAll("button")];
  words[(words.indexOf(event.target) + by + words.length) % words.length].focus();
}

// --- what the store tells --------------------------------------------------------------------------

let pace = store.pace; // as Python was last told of it
let pacing = false;
let [pinnedAt, pinning] = [store.cursor.at, 0];

// The runs are over: Python tidies up, and whoever waits can see it. Two events, as Gradio lets a
// listener drawn with the cards take the place of one of the page.
function paced() {
  pacing = false;
  flush();
  refreshCard();
  if (store.pace === "over") {
    element.dataset.over = `${store.feed}:${store.read}`;
    trigger("over");
    trigger("ended");
  } else if (pace === "over") {
    replaying(false);
    if (store.cursor.replay) store.point(null);
    trigger("begun");
  }
  pace = store.pace;
}

// The replay comes to a token that took a draft's place: the draft is struck out once more.
function strikeAgain(column) {
  const place = store.pointed(column.run);
  if (place?.run !== column.run || place.notes.verdict !== "resampled") return;
  const { round } = place.notes;
  struck.push([column, [...column.run.steps.values()].filter((step) => step.notes.round === round)]);
}

function moved() {
  clearTimeout(pinning);
  pinning = setTimeout(() => {
    if (store.cursor.at === pinnedAt) return;
    pinnedAt = store.cursor.at;
    trigger("pinned", { at: pinnedAt });
  }, 250);
}

function say({ words, error }) {
  part("status").textContent = words;
  part("status").classList.toggle("error", Boolean(error));
}

const answers = {
  reset() {
    folded.clear();
    conceal();
    replaying(false);
    element.scrollIntoView({ block: "nearest", behavior: calm() ? "auto" : "smooth" });
  },
  column: arrange,
  steps({ run, steps }) {
    soon([shown.get(run)]);
    if (steps.some((step) => LOST.has(step.notes.verdict))) struck.push([shown.get(run), steps]);
  },
  cursor() {
    soon(shown.values());
    if (store.cursor.replay) for (const column of shown.values()) strikeAgain(column);
    moved();
  },
  look() {
    for (const column of shown.values()) column.repaint();
    refreshLegend();
  },
  pace() {
    soon(shown.values());
    if (store.pace === "playing") ask();
    if (!pacing) queueMicrotask(paced); // a screen may tell of several
    pacing = true;
  },
  say,
};

// --- the news --------------------------------------------------------------------------------------

let asking = false;

// Ask for what the store has not read: while the runs are playing, since what Gradio brings passes
// through all that is on the page, and whenever a busy browser has missed a screen.
async function ask() {
  if (asking) return;
  asking = true;
  do {
    const { feed, read } = store;
    const news = await server.more({ feed, from: read }).catch(() => null);
    if (news === "") break; // the server knows nothing of it any more
    if (news === null) await new Promise((go) => setTimeout(go, 1000));
    else if (feed === store.feed) store.hear(news);
  } while (store.pace === "playing" && element.isConnected);
  asking = false;
}

function hear() {
  if (!store.hear(props.value)) ask();
}

function mount() {
  mountLegend();
  mountTransport();
  mountCard();
  element.addEventListener("click", (event) => event.target.closest?.(".token") && pin(event.target.closest(".token")));
  element.addEventListener("keydown", onTokenKey);
  element.addEventListener("keydown", walkFigures);
  new ResizeObserver(balance).observe(part("columns"));
  const leave = store.subscribe((change) => (element.isConnected ? answers[change.kind]?.(change) : leave()));
  if (store.runs.size) arrange(); // another view of the page was here before
}

mount();
watch("value", hear);
hear();
