// The Step view: one token, the distribution it was chosen from, and what each processor did.

import { button, drawWhenVisible, make, part } from "../../shared/web/dom.js";
import { counted, nats, percent, visible } from "../../shared/web/format.js";
import { barScale, candidatesOf, largest, listedMass, stagesOf } from "./step_distribution.js";
import { cumulative, decisionOf } from "./step_decision.js";
import { PROCESSORS, effect, headline, reasons } from "./step_explanation.js";
import { placeOf, store } from "./store.js";

/** @typedef {import("../../shared/web/dom.js").Component} Component */
/** @typedef {import("./step_decision.js").Decision} Decision */
/** @typedef {import("./step_distribution.js").Row} Row */
/** @typedef {import("./step_distribution.js").Stage} Stage */
/** @typedef {import("./step_distribution.js").StageRow} StageRow */
/** @typedef {import("./store.js").Distribution} Distribution */
/** @typedef {import("./store.js").Place} Place */
/** @typedef {import("./store.js").Run} Run */
/** @typedef {(probability: number) => number} Scale */

const EMPTY = "Run a comparison, then click a token to see what it was chosen from and why.";
const CHANGES = { cut: "cut here", gone: "cut before", unknown: "not captured" };

/** The selected column, else the first. */
function selectedRun() {
  const { column } = store.cursor;
  return (column === null ? undefined : store.runs.get(column)) ?? store.columns[0];
}

/**
 * The selected token: a step that was clicked in a tree, or a token of the column's text.
 * @param {Run} run
 */
function selectedPlace(run) {
  const text = store.shown(run);
  const { column, step } = store.cursor;
  const at = store.cursor.at ?? text.length - 1;
  const clicked = column === run.key && step !== null ? run.steps.get(step) : undefined;
  return { at, place: clicked ? placeOf(run, clicked) : text[at], length: text.length };
}

/** @param {Place} place */
function siblingsOf({ run, step }) {
  const own = run && step !== null ? run.steps.get(step) : undefined;
  if (!run || !own) return [];
  return [...run.steps.values()].filter((other) => other.parent === own.parent && other !== own);
}

/**
 * All steps that a token's run recorded at the same time.
 * @param {Place} place
 */
function tickOf({ run, step }) {
  const own = run && step !== null ? run.steps.get(step) : undefined;
  return run && own ? [...run.steps.values()].filter((other) => other.tick === own.tick) : [];
}

/**
 * A group of toggle buttons. They are kept while their names stay, so that the focus is.
 * @param {HTMLElement} group
 * @param {string[]} names
 * @param {number} pressed
 * @param {(at: number) => void} onPress
 */
function toggles(group, names, pressed, onPress) {
  const before = [...group.children].map((node) => node.textContent);
  if (before.join("\n") !== names.join("\n")) {
    group.replaceChildren(...names.map((name, at) => button("", name, () => onPress(at))));
  }
  [...group.children].forEach((node, at) => node.setAttribute("aria-pressed", String(at === pressed)));
}

/**
 * @param {Scale} scale
 * @param {...[kind: string, probability: number | null]} kinds
 */
function bars(scale, ...kinds) {
  const cell = make("td", "bars");
  for (const [kind, probability] of kinds) {
    const track = make("span", "track " + kind);
    if (probability !== null) {
      const fill = make("i");
      fill.style.width = `${(scale(probability) * 100).toFixed(2)}%`;
      fill.hidden = probability === 0;
      track.append(fill);
    }
    cell.append(track);
  }
  return cell;
}

/** @param {Row} row */
function tokenCell(row) {
  const name = make("th", "", visible(row.token));
  name.scope = "row";
  name.title = `${visible(row.token)} (token ${row.id})`;
  if (row.chosen) name.prepend(make("b", "mark", "▸ "));
  return name;
}

/** @param {...[className: string, text: string]} names */
function header(...names) {
  const line = make("tr");
  for (const [className, text] of names) {
    const cell = make("th", className, text);
    cell.scope = "col";
    line.append(cell);
  }
  const head = make("thead");
  head.append(line);
  return head;
}

/** @param {Row} row */
function outcome(row) {
  if (row.cut) return row.cutBy ? `cut by ${row.cutBy}` : "cut";
  return row.chosen ? "this token" : "";
}

/**
 * @param {Row[]} rows
 * @param {boolean} processed
 * @param {Scale} scale
 */
function distributionTable(rows, processed, scale) {
  const grid = make("table", "whole");
  grid.append(make("caption", "", processed ? "Before and after the processors" : "The model's own probabilities"));
  /** @type {[string, string][]} */
  const used = processed ? [["number", "as used"]] : [];
  grid.append(header(["token", "token"], ["bars", processed ? "model, as used" : ""], ["number", "model"], ...used, ["outcome", ""]));
  const body = make("tbody");
  for (const row of rows) {
    const line = make("tr");
    line.classList.toggle("chosen", row.chosen);
    line.classList.toggle("cut", row.cut);
    /** @type {[string, number | null][]} */
    const final = processed ? [["final", row.final]] : [];
    line.append(tokenCell(row), bars(scale, ["raw", row.raw], ...final), make("td", "number", percent(row.raw)));
    if (processed) line.append(make("td", "number", row.cut ? "cut" : percent(row.final)));
    line.append(make("td", "outcome", outcome(row)));
    body.append(line);
  }
  grid.append(body);
  return grid;
}

/** @param {Decision} decision */
function decisionTable({ title, rule, columns, rivals, rest }) {
  const grid = make("table", "decision");
  const caption = make("caption", "", title);
  caption.append(make("p", "quiet", rule));
  grid.append(caption, header(["token", "token"], ["bars", ""], ["number", columns], ["outcome", ""]));
  const body = make("tbody");
  for (const { token, own, share, calculation, outcome } of rivals) {
    const name = make("th", "", visible(token));
    name.scope = "row";
    name.title = visible(token);
    if (own) name.prepend(make("b", "mark", "▸ "));
    const line = make("tr", own ? "chosen" : "");
    line.append(name, bars((part) => part, ["final", share]), make("td", "number", calculation), make("td", "outcome", outcome));
    body.append(line);
  }
  grid.append(body);
  const section = make("div", "shown");
  section.append(grid, ...(rest ? [make("p", "quiet", rest)] : []));
  return section;
}

/**
 * The probabilities that a token was drawn from, side by side in one bar.
 * @param {Row[]} rows
 */
function cumulativeBar(rows) {
  const parts = cumulative(rows);
  if (!parts) return [];
  const bar = make("div", "cumulative");
  const own = parts.find((part) => part.own);
  const place = own ? `${percent(own.from)} to ${percent(own.from + own.size)}` : "";
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", `The probabilities of all tokens, side by side. ${own ? `${visible(own.token ?? "")}: ${place}.` : ""}`);
  for (const { token, size, own: chosen } of parts) {
    const name = token === null ? "all other tokens" : visible(token);
    const segment = make("span", token === null ? "others" : chosen ? "own" : "", size > 0.06 ? name : "");
    segment.style.flexGrow = String(size);
    segment.title = `${name}: ${percent(size)}`;
    bar.append(segment);
  }
  return [bar];
}

/** @param {Distribution} distribution */
function facts(distribution) {
  const mass = listedMass(distribution);
  const list = make("dl", "facts");
  for (const [name, value, help] of [
    ["entropy", nats(distribution.entropy, distribution.processors.length > 0), "0 means that one token has all the probability."],
    ["could be chosen", counted(distribution.kept, "token"), "Tokens that were not cut."],
    ["listed", mass === null ? "not captured" : `${percent(mass)} of the probability`, "The model's probability of all tokens listed here."],
  ]) {
    const pair = make("div");
    pair.title = help;
    pair.append(make("dt", "", name), make("dd", "", value));
    list.append(pair);
  }
  return list;
}

/** @param {boolean} processed */
function legend(processed) {
  const line = make("p", "legend");
  const kinds = [["raw", "model"], ...(processed ? [["final", "as used"], ["hatched", "cut"]] : [])];
  for (const [kind, text] of kinds) {
    const item = make("span");
    item.append(make("i", "swatch " + kind), text);
    line.append(item);
  }
  return line;
}

/** @param {StageRow} row */
function change(row) {
  if (row.fate !== "kept") return CHANGES[row.fate];
  return row.before === row.after ? percent(row.after) : `${percent(row.before)} → ${percent(row.after)}`;
}

/**
 * @param {Stage} stage
 * @param {Scale} scale
 */
function stageFigure(stage, scale) {
  const figure = make("figure", "stage");
  const caption = make("figcaption");
  const title = make("h4", "", `${stage.at + 1}. ${stage.name}`);
  caption.append(title, make("p", "does", PROCESSORS[stage.name] ?? "No description of this processor."));
  const grid = make("table");
  grid.setAttribute("aria-label", `Probabilities before and after ${stage.name}`);
  grid.append(header(["token", "token"], ["bars", "before, after"], ["number", ""]));
  if (stage.line && stage.cutoff !== null) {
    grid.classList.add("lined");
    grid.style.setProperty("--share", scale(stage.cutoff).toFixed(4));
  }
  const body = make("tbody");
  for (const row of stage.rows) {
    const line = make("tr", row.fate);
    line.classList.toggle("chosen", row.chosen);
    line.append(tokenCell(row), bars(scale, ["raw", row.before], ["final", row.after]), make("td", "number", change(row)));
    body.append(line);
  }
  grid.append(body);
  const text = make("div", "effect");
  text.append(make("p", "", effect(stage)));
  if (stage.cutoff !== null && !stage.line) {
    text.append(make("p", "", "It cuts particular tokens, not the least probable ones, so there is no cutoff line."));
  }
  figure.append(caption, grid, text);
  return figure;
}

/**
 * @param {Distribution} distribution
 * @param {Row[]} rows
 * @param {Scale} scale
 */
function stageFigures(distribution, rows, scale) {
  if (!distribution.processors.length) {
    return [make("p", "quiet", "No processor ran: the model's own probabilities were used.")];
  }
  const grid = make("div", "stages");
  grid.append(...stagesOf(distribution, rows).map((stage) => stageFigure(stage, scale)));
  return [make("h3", "", "Processors, in the order they ran"), grid];
}

/**
 * @param {Run} run
 * @param {boolean} logarithmic
 */
function details(run, logarithmic) {
  const { at, place, length } = selectedPlace(run);
  if (!length) return [make("p", "empty", `${store.title(run)} has no tokens yet.`)];
  if (!place) return [make("p", "empty", `The text of ${store.title(run)} ends after ${counted(length, "token")}.`)];
  const head = make("h3", "headline", headline(place, at + 1));
  const why = reasons(place, run, siblingsOf(place)).map((text) => make("p", "why", text));
  const { distribution } = place;
  if (!distribution) return [head, ...why];
  const rows = candidatesOf(place, distribution);
  const scale = barScale(rows, logarithmic);
  const processed = distribution.processors.length > 0;
  const [closely, table, beside] = ["closely", "shown", "beside"].map((name) => make("div", name));
  table.append(distributionTable(rows, processed, scale));
  const scaleText = logarithmic
    ? "Logarithmic bars: a factor of ten is a fifth of the width."
    : `A full bar is ${percent(largest(rows))}.`;
  beside.append(facts(distribution), legend(processed), make("p", "quiet", scaleText));
  closely.append(table, beside);
  const decision = decisionOf(place, rows, tickOf(place));
  const decided = decision ? [decisionTable(decision)] : [];
  const side = decision?.drawn ? cumulativeBar(rows) : [];
  return [head, ...why, ...decided, ...side, closely, ...stageFigures(distribution, rows, scale)];
}

/** @param {Component} component */
export function mount({ element }) {
  let logarithmic = false;
  const [tools, choice, walk, scale, content] = ["tools", "choice", "walk", "scale", "content"].map((name) => part(element, name));

  function show() {
    const run = selectedRun();
    tools.hidden = !run;
    if (!run) return content.replaceChildren(make("p", "empty", EMPTY));
    const runs = store.columns;
    choice.hidden = runs.length < 2;
    toggles(choice, runs.map((one) => store.title(one)), runs.indexOf(run), (at) =>
      store.select(store.cursor.at, { column: store.columns[at].key, replay: store.cursor.replay }));
    toggles(scale, ["linear", "log"], Number(logarithmic), (at) => {
      logarithmic = at === 1;
      show();
    });
    content.replaceChildren(...details(run, logarithmic));
  }

  for (const { text, label, by } of [{ text: "‹", label: "Previous token", by: -1 }, { text: "›", label: "Next token", by: 1 }]) {
    const move = button("", text, () => {
      const run = selectedRun();
      if (run) store.select(selectedPlace(run).at + by, { column: run.key, replay: store.cursor.replay });
    });
    move.setAttribute("aria-label", label);
    walk.append(move);
  }
  const request = drawWhenVisible(element, show);
  store.subscribe(({ kind }) => ["reset", "column", "steps", "cursor"].includes(kind) && request());
  show();
}
