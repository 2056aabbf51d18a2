// Shows a card with the candidates of the token that is hovered or focused, and draws the figures.
// All texts come from the JSON in the page and are only ever inserted as text.
"use strict";

const runs = JSON.parse(document.getElementById("runs").textContent);
const figures = JSON.parse(document.getElementById("figures").textContent);
const card = document.getElementById("card");

const element = (name, text = "") => {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
};

const NOT_CAPTURED = "not captured";
const percent = (p) => {
  if (p === null) return NOT_CAPTURED;
  return p && p < 0.001 ? p.toExponential(1) : (100 * p).toFixed(1) + "%";
};
const used = (p) => (p === 0 ? "cut" : percent(p));
const nats = (entropy) => (entropy === null ? NOT_CAPTURED : entropy.toFixed(2));

function row(cell, texts, chosen = false) {
  const made = element("tr");
  made.classList.toggle("chosen", chosen);
  made.append(...texts.map((text) => element(cell, text)));
  return made;
}

function fill(step) {
  const name = element("p");
  if (!step.seen) {
    name.append(element("strong", step.token), ` ${step.event}`);
    card.replaceChildren(name, element("p", `${NOT_CAPTURED}: the distribution was not recorded`));
    return;
  }
  const rank = step.rank === null ? `rank ${NOT_CAPTURED}` : `rank ${step.rank} under the model`;
  name.append(element("strong", step.token), ` ${step.event}, ${rank}`);
  const [before, after] = step.entropy.map(nats);
  const table = element("table");
  table.append(
    element("caption", "most probable candidates"),
    row("th", ["token", "model", "as used"]),
    ...step.candidates.map(([text, raw, final, chosen]) =>
      row("td", [(chosen ? "▸ " : "") + text, percent(raw), used(final)], chosen)),
  );
  card.replaceChildren(
    name,
    element("p", `model ${percent(step.raw)}, as used ${used(step.final)}`),
    element("p", `entropy ${before} nats, as used ${after}`),
    element("p", `${step.kept.toLocaleString("en")} tokens left after processing`),
    table,
  );
}

function place(token) {
  const around = [...token.getClientRects()].at(-1); // the last line, if a line break divides it
  const room = document.documentElement.clientWidth - card.offsetWidth - 8;
  const below = around.bottom + card.offsetHeight <= window.innerHeight || around.top < card.offsetHeight;
  card.style.left = `${window.scrollX + Math.max(8, Math.min(around.left, room))}px`;
  card.style.top = `${window.scrollY + (below ? around.bottom : around.top - card.offsetHeight)}px`;
}

let shown = null;

function show(token) {
  if (token === shown) return;
  shown?.removeAttribute("aria-describedby");
  shown = token;
  card.hidden = !token;
  if (!token) return;
  fill(runs[token.parentElement.dataset.run][token.dataset.step]);
  place(token);
  token.setAttribute("aria-describedby", "card");
}

const tokenAt = (node) => node?.closest?.(".token") ?? null;

document.addEventListener("mouseover", (event) => {
  const token = tokenAt(event.target);
  if (token) show(token);
  else if (shown !== document.activeElement && !event.target.closest("#card")) show(null);
});
document.addEventListener("focusin", (event) => show(tokenAt(event.target)));
document.addEventListener("focusout", () => show(null));
document.addEventListener("click", (event) => tokenAt(event.target)?.focus());

// One tab stop per text; arrows, Home and End move within it.
const MOVES = {
  ArrowRight: (at) => at + 1,
  ArrowLeft: (at) => at - 1,
  Home: () => 0,
  End: (_, last) => last,
};

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") show(null);
  const token = tokenAt(event.target);
  if (!token || !(event.key in MOVES)) return;
  const tokens = [...token.parentElement.querySelectorAll(".token")];
  const last = tokens.length - 1;
  const next = tokens[Math.max(0, Math.min(last, MOVES[event.key](tokens.indexOf(token), last)))];
  token.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
  event.preventDefault();
});

function draw() {
  const ink = getComputedStyle(document.body).color;
  const touch = matchMedia("(pointer: coarse)").matches;
  const config = {
    responsive: true,
    displaylogo: false,
    displayModeBar: touch ? false : "hover",
    showSendToCloud: false,
    plotlyServerURL: "",
    typesetMath: false,
  };
  for (const [id, { data, layout }] of Object.entries(figures)) {
    const plot = document.getElementById(id);
    plot.style.minWidth = `${layout.meta?.min_width ?? 0}px`;
    // On a touch screen dragging scrolls the page.
    const own = { ...layout, font: { color: ink }, ...(touch && { dragmode: false }) };
    Plotly.react(plot, data, own, config);
  }
}

draw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
