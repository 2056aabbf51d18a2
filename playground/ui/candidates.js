// The card of candidates: what else could have stood where the pointer or the focus is.
// Knows one step and its distribution. Runs after live.js, in the same function.

const card = part("candidates");
let pointed = null; // the token the card speaks of
let hiding = 0;

function bar(name, probability) {
  const track = make("span", "bar " + name);
  const fill = make("i");
  fill.style.width = `${probability * 100}%`;
  track.append(fill);
  return track;
}

function row({ token, raw, final }, chosen, processed) {
  const line = make("tr", chosen ? "chosen" : "");
  const cut = processed && !final;
  line.classList.toggle("cut", cut);
  const bars = make("td", "bars");
  bars.append(bar("raw", raw), ...(processed ? [bar("final", final ?? 0)] : []));
  const name = make("th", "", (chosen ? "▸ " : "") + visible(token));
  line.append(name, bars, make("td", "number", percent(raw)));
  if (processed) line.append(make("td", "number", cut ? "cut" : percent(final)));
  return line;
}

function table(step, distribution) {
  const processed = distribution.processors.length > 0;
  const grid = make("table");
  const head = make("tr");
  head.append(make("th", "", "token"), make("th"), make("th", "number", "model"));
  if (processed) head.append(make("th", "number", "as used"));
  grid.append(head);
  const rows = distribution.candidates.map(([id, token, raw, final]) => ({ id, token, raw, final }));
  if (!rows.some((candidate) => candidate.id === step.tokenId)) rows.push({ ...step, id: step.tokenId });
  for (const candidate of rows) grid.append(row(candidate, candidate.id === step.tokenId, processed));
  return grid;
}

function facts(step, distribution) {
  const processed = distribution.processors.length > 0;
  const [before, after] = distribution.entropy.map((nats) => nats.toFixed(2));
  const kept = `${distribution.kept.toLocaleString("en")} ${distribution.kept === 1 ? "token" : "tokens"}`;
  const mass = distribution.candidates.reduce((sum, [, , raw]) => sum + raw, 0);
  const lines = [
    `rank ${step.rank} in the model's own order`,
    processed ? `entropy ${before} → ${after} nats` : `entropy ${before} nats`,
    `${kept} could have been chosen`,
    `listed: ${percent(Math.min(mass, 1))} of the model's probability`,
  ];
  if (processed) lines.push(`processors: ${distribution.processors.join(" → ")}`);
  return make("p", "facts", lines.join("\n"));
}

function reveal(token) {
  clearTimeout(hiding);
  if (token === pointed && !card.hidden) return;
  pointed?.removeAttribute("aria-describedby");
  pointed = token;
  const column = columnOf(token);
  const step = column.steps.get(Number(token.dataset.step));
  const distribution = column.distributions[step.at];
  card.replaceChildren(
    ...(distribution
      ? [table(step, distribution), facts(step, distribution)]
      : [make("p", "facts", "Not captured: what the recipe chose this token from could not be seen.")]),
  );
  card.hidden = false;
  token.setAttribute("aria-describedby", card.id);
  place();
}

// Below the token where there is room, else above it; never outside the window.
function place() {
  if (card.hidden) return;
  if (!pointed.isConnected) return conceal();
  const anchor = pointed.getClientRects()[0] || pointed.getBoundingClientRect();
  const size = card.getBoundingClientRect();
  const below = anchor.bottom + 6;
  const top = below + size.height <= innerHeight ? below : Math.max(8, anchor.top - size.height - 6);
  card.style.left = `${Math.max(8, Math.min(anchor.left, innerWidth - size.width - 8))}px`;
  card.style.top = `${top}px`;
}

function conceal() {
  clearTimeout(hiding);
  card.hidden = true;
}

// The pointer has left: back to the token that has the keyboard's focus, if one has.
function retreat() {
  const focused = element.querySelector(".token:focus-visible");
  clearTimeout(hiding);
  hiding = setTimeout(() => (focused?.isConnected ? reveal(focused) : conceal()), 250);
}

element.addEventListener("pointerover", (event) => {
  if (tokenAt(event)) reveal(tokenAt(event));
  else if (card.contains(event.target)) clearTimeout(hiding);
  else retreat();
});
element.addEventListener("pointerleave", retreat);
element.addEventListener("focusin", (event) => tokenAt(event) && reveal(tokenAt(event)));
element.addEventListener("focusout", conceal);
element.addEventListener("keydown", (event) => event.key === "Escape" && conceal());
addEventListener("scroll", place, { passive: true, capture: true });
addEventListener("resize", place);
