// What only the visitor's browser can do: keep the state over a reload, read a link, save a file.
// Knows the address and the session's storage; what a state holds is Python's affair.
// Runs after store.js, as the body of function(element, trigger, props, server, upload, watch).

const KEY = "decoding-playground";

function kept() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY)) ?? {};
  } catch {
    return {}; // storage may be forbidden
  }
}

function keep(news) {
  try {
    sessionStorage.setItem(KEY, JSON.stringify({ ...kept(), ...news }));
  } catch {
    // Then a reload begins anew.
  }
}

// A link that was followed wins over what this tab has kept, unless it led here before.
function arrive() {
  const address = new URLSearchParams(location.hash.slice(1));
  const link = address.get("s");
  const before = kept();
  const followed = link && link !== before.followed;
  if (followed) keep({ followed: link, state: link, tab: address.get("tab"), feed: null });
  const look = followed ? address.get("look")?.split(".") : before.look;
  if (look?.length === 2) store.paint({ background: look[0], underline: look[1] });
  const arrived = followed
    ? { state: link, tab: address.get("tab") }
    : { state: before.state, tab: before.tab, feed: before.feed };
  if (arrived.tab) store.turn(arrived.tab);
  if (arrived.state || arrived.feed) trigger("arrived", arrived);
}

function save({ url, name }) {
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
}

function hear() {
  if (!props.value) return;
  const told = JSON.parse(props.value);
  if (told.keep) keep(told.keep);
  if (told.save) save(told.save);
}

store.subscribe((change) => {
  if (change.kind === "column") keep({ feed: store.feed });
  if (change.kind === "look") keep({ look: [store.look.background, store.look.underline] });
  if (change.kind === "tab") keep({ tab: store.tab });
  // Told from here, not from the cards: an event of cards that were drawn anew since reaches nobody.
  if (change.kind === "drawn") trigger("drawn");
});

// Whatever a visitor does to the form reaches the document as one of these; Python hears of it when
// they rest and no cards are being drawn, as an event of the old ones would reach nobody.
let rest = 0;
function restart() {
  clearTimeout(rest);
  rest = setTimeout(() => (store.drawn ? trigger("changed") : restart()), 1000);
}
for (const doing of ["input", "change", "click"]) document.addEventListener(doing, restart);

// A server that was started anew knows nothing of this page: what is pressed here reaches nobody, and
// Gradio finds that out only where something was on its way. So whoever comes back to the page or
// presses something has it asked.
const ANEW = "The server was started anew. Reload this page to go on: the form comes back, the columns do not.";
let greeted = 0;
async function greet() {
  if (document.hidden || Date.now() - greeted < 3000) return;
  greeted = Date.now();
  try {
    const { app_id: now } = await (await fetch("gradio_api/app_id")).json();
    if (now !== globalThis.gradio_config.app_id) store.tell({ kind: "say", words: ANEW, error: true });
  } catch {
    // Nobody is there; Gradio says so and looks for them.
  }
}
document.addEventListener("visibilitychange", greet);
document.addEventListener("click", greet);

watch("value", hear);
arrive();
