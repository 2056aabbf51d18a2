// The card of candidates: what else could have stood where the reader points, and going on with it.
// Knows one place and its distribution. Refuses to run anything: it only asks.
// Runs after live.js, in the same function.

const card = { node: null, token: null, pinned: false, hiding: 0 };

function bar(name, probability) {
  const track = make("span", "bar " + name);
  const fill = make("i");
  fill.style.width = `${(probability ?? 0) * 100}%`;
  track.append(fill);
  return track;
}

// Why one cannot fork now; nothing where one can.
const busy = () => (store.pace === "over" ? "" : "The runs are still going: press Stop first, then go on from here.");

function forkButton({ id, token }, here) {
  const node = button("fork", visible(token), () => fork({ token: id }, here));
  node.tabIndex = -1; // the arrow keys walk through the rows
  node.disabled = busy() !== "";
  node.title = busy() || "Continue with this token, in a column of its own";
  node.setAttribute("aria-label", `Continue with ${visible(token)}`);
  return node;
}

function row(candidate, here, processed) {
  const chosen = candidate.id === here.place.tokenId;
  const cut = processed && !candidate.final;
  const line = make("tr", chosen ? "chosen" : "");
  line.classList.toggle("cut", cut);
  const name = make("th", "", chosen ? "▸ " : "");
  name.append(forkButton(candidate, here));
  const bars = make("td", "bars");
  bars.append(bar("raw", candidate.raw), ...(processed ? [bar("final", candidate.final)] : []));
  line.append(name, bars, make("td", "number", percent(candidate.raw)));
  if (processed) line.append(make("td", "number", cut ? "cut" : percent(candidate.final)));
  return line;
}

function table(here) {
  const { distribution, tokenId } = here.place;
  const processed = distribution.processors.length > 0;
  const grid = make("table");
  const head = make("tr");
  head.append(make("th", "", "continue with"), make("th"), make("th", "number", "model"));
  if (processed) head.append(make("th", "number", "as used"));
  grid.append(head);
  const rows = distribution.candidates.map(([id, token, raw, final]) => ({ id, token, raw, final }));
  if (!rows.some((candidate) => candidate.id === tokenId)) rows.push({ ...here.place, id: tokenId });
  for (const candidate of rows) grid.append(row(candidate, here, processed));
  return grid;
}

function facts({ place, column }) {
  const { distribution, notes } = place;
  if (!distribution) {
    const why = place.given
      ? "Given by you: what the model would have said at this place was not captured."
      : "Not captured: what the recipe chose this token from could not be seen.";
    return make("p", "facts", why);
  }
  const [before, after] = distribution.entropy.map((nats) => nats.toFixed(2));
  const mass = distribution.candidates.reduce((sum, [, , raw]) => sum + raw, 0);
  const processed = distribution.processors.length > 0;
  const lines = [
    ...(place.given ? ["given by you; the model had these candidates at this place"] : []),
    ...(place.rank === null ? [] : [`rank ${place.rank} in the model's own order`]),
    processed ? `entropy ${before} → ${after} nats` : `entropy ${before} nats`,
    `${counted(distribution.kept, "token")} could have been chosen`,
    `listed: ${percent(Math.min(mass, 1))} of the model's probability`,
    ...(processed ? [`processors: ${distribution.processors.join(" → ")}`] : []),
    ...(notes.green === undefined ? [] : [markOf(place, "green").words]),
    ...(notes.verdict === undefined ? [] : [markOf(place, "draft")?.words ?? notes.verdict]),
    ...instead(place, column),
  ];
  return make("p", "facts", lines.join("\n"));
}

// The draft a token took the place of.
function instead(place, column) {
  if (place.notes.verdict !== "resampled" || place.run !== column.run) return [];
  const steps = place.run.steps;
  const { parent } = steps.get(place.step);
  const lost = [...steps.values()].find((step) => step.parent === parent && step.notes.verdict === "rejected");
  return lost ? [`the draft had ${visible(lost.token)} here`] : [];
}

// Words of one's own in the place of the token.
function typing(here) {
  const form = make("form", "typing");
  const label = make("label", "", "or type");
  const field = make("input");
  field.id = "live-typing";
  label.htmlFor = field.id;
  field.autocomplete = "off";
  field.placeholder = "your own words; a space counts";
  const go = make("button", "", "Continue");
  go.type = "submit";
  go.title = busy() || "Continue with what you typed, in a column of its own";
  field.disabled = go.disabled = busy() !== "";
  form.append(label, field, go);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (field.value) fork({ text: field.value }, here);
  });
  return form;
}

// The last of a column's own steps in the text it shows.
const leadOf = (column) => column.places.findLast((place, at) => at >= column.run.before.length)?.step ?? null;

function fork(wish, { column, at }) {
  if (busy()) return;
  leaveFrom(column);
  conceal();
  trigger("forked", { column: column.run.key, lead: leadOf(column), at, ...wish });
}

function reveal(token, pinned = card.pinned) {
  clearTimeout(card.hiding);
  if (token === card.token && !card.node.hidden) {
    card.pinned = pinned;
    return;
  }
  card.token?.removeAttribute("aria-describedby");
  [card.token, card.pinned] = [token, pinned];
  fillCard();
  card.node.hidden = false;
  token.setAttribute("aria-describedby", card.node.id);
  placeCard();
}

function fillCard() {
  const column = columnOf(card.token);
  const at = column.tokens.indexOf(card.token);
  const here = { column, at, place: column.places[at] };
  const title = make("p", "where");
  title.append(make("b", "", visible(here.place.token)), ` token ${at + 1} of ${titleOf(column.run)}`);
  const rows = here.place.distribution ? [table(here)] : [];
  card.node.replaceChildren(title, ...rows, typing(here), facts(here));
}

// Below the token where there is room, else above it; never outside the window.
function placeCard() {
  if (!card.node || card.node.hidden) return;
  if (!card.token.isConnected) return conceal();
  const anchor = card.token.lastChild.getClientRects()[0] || card.token.getBoundingClientRect();
  const size = card.node.getBoundingClientRect();
  const below = anchor.bottom + 6;
  const above = Math.max(8, anchor.top - size.height - 6);
  const top = below + size.height <= innerHeight || anchor.top < size.height ? below : above;
  card.node.style.left = `${Math.max(8, Math.min(anchor.left, innerWidth - size.width - 8))}px`;
  card.node.style.top = `${Math.max(8, Math.min(top, innerHeight - size.height - 8))}px`;
}

function conceal() {
  clearTimeout(card.hiding);
  card.pinned = false;
  card.node.hidden = true;
}

// The pointer has left: back to the token that has the keyboard's focus, if one has.
function retreat() {
  if (card.pinned) return;
  clearTimeout(card.hiding);
  card.hiding = setTimeout(() => {
    const focused = element.querySelector(".token:focus-visible");
    if (card.node.contains(document.activeElement)) return;
    if (focused) reveal(focused);
    else conceal();
  }, 250);
}

// The runs began or ended: one can fork now, or no longer. A field somebody types in stays.
function refreshCard() {
  if (card.node.hidden || card.node.contains(document.activeElement)) return;
  if (card.token.isConnected) fillCard();
  else conceal();
}

function intoCard() {
  const first = card.node.querySelector(".chosen .fork:enabled, .fork:enabled, input:enabled");
  (first ?? card.node).focus();
}

function walkCard(event) {
  const rows = [...card.node.querySelectorAll(".fork")];
  const at = rows.indexOf(document.activeElement);
  const move = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
  if (event.key === "Escape") card.token.focus();
  else if (at < 0 || move === undefined) return;
  else rows[Math.max(0, Math.min(move, rows.length - 1))].focus();
  event.preventDefault();
}

function mountCard() {
  card.node = part("candidates");
  card.node.tabIndex = -1;
  const tokenAt = (event) => event.target.closest?.(".token");
  const leaves = (event) => !card.node.contains(event.relatedTarget) && !event.relatedTarget?.closest?.(".token");
  element.addEventListener("pointerover", (event) => {
    if (card.node.contains(event.target)) clearTimeout(card.hiding);
    else if (card.pinned) return;
    else if (tokenAt(event)) reveal(tokenAt(event));
    else retreat();
  });
  element.addEventListener("pointerleave", retreat);
  element.addEventListener("focusin", (event) => tokenAt(event) && reveal(tokenAt(event)));
  // Whoever walks on with the keyboard leaves no card behind that hides where they are.
  element.addEventListener("focusout", (event) => (event.relatedTarget || !card.pinned) && leaves(event) && conceal());
  card.node.addEventListener("keydown", walkCard);
  document.addEventListener("pointerdown", (event) => {
    if (card.pinned && !card.node.contains(event.target) && !tokenAt(event)) conceal();
  });
  addEventListener("scroll", placeCard, { passive: true, capture: true });
  addEventListener("resize", placeCard);
}
