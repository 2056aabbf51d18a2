// One step, looked at closely: what the model said, what each processor made of it, why this token.
// Draws what step_reading.js and step_words.js say of the place the store points at.
// Gradio runs this as the body of function(element, trigger, props, server, upload, watch).

const part = (name) => element.querySelector("." + name);
let logarithmic = false;

// The column that is looked at: the one pointed out, else the first.
const columnShown = () => store.runs.get(store.cursor.column) ?? store.columns[0];

// The place to tell of: a step that was pressed in a tree, or the token of the column's text.
function placeShown(run) {
  const text = store.shown(run);
  const at = store.cursor.at ?? text.length - 1;
  const pressed = store.cursor.column === run.key ? run.steps.get(store.cursor.step) : undefined;
  return { at, place: pressed ? placeOf(run, pressed) : text[at], length: text.length };
}

function siblingsOf(place) {
  const steps = place.run?.steps;
  const own = steps?.get(place.step);
  return own ? [...steps.values()].filter((step) => step.parent === own.parent && step !== own) : [];
}

// --- the tools ------------------------------------------------------------------------------------

// Buttons are kept while their names stay, so that the focus is.
function offer(group, names, pressed, press) {
  const known = [...group.children];
  if (known.map((node) => node.textContent).join("\n") !== names.join("\n")) {
    group.replaceChildren(...names.map((name, at) => button("", name, () => press(at))));
  }
  [...group.children].forEach((node, at) => node.setAttribute("aria-pressed", String(at === pressed)));
}

function tools(run) {
  const runs = store.columns;
  offer(part("choice"), runs.map((one) => store.title(one)), runs.indexOf(run), (at) =>
    store.point(store.cursor.at, { column: store.columns[at].key, replay: store.cursor.replay }));
  part("choice").hidden = runs.length < 2;
  offer(part("scale"), ["linear", "log"], Number(logarithmic), (at) => {
    logarithmic = at === 1;
    show();
  });
}

for (const [words, label, by] of [["‹", "Token before", -1], ["›", "Next token", 1]]) {
  const walk = button("", words, () => {
    const run = columnShown();
    if (run) store.point(placeShown(run).at + by, { column: run.key, replay: store.cursor.replay });
  });
  walk.setAttribute("aria-label", label);
  part("walk").append(walk);
}

// --- bars -----------------------------------------------------------------------------------------

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

function tokenCell(row) {
  const name = make("th", "", visible(row.token));
  name.scope = "row";
  name.title = `${visible(row.token)} (token ${row.id})`;
  if (row.chosen) name.prepend(make("b", "mark", "▸ "));
  return name;
}

function header(...names) {
  const line = make("tr");
  for (const [name, text] of names) {
    const cell = make("th", name, text);
    cell.scope = "col";
    line.append(cell);
  }
  const head = make("thead");
  head.append(line);
  return head;
}

function scaleWords(rows) {
  if (logarithmic) return "Logarithmic bars: each tenth of the probability is a fifth of the width.";
  const top = Math.max(...rows.flatMap((row) => row.path.filter((probability) => probability !== null)));
  return `A full bar is ${percent(top)}.`;
}

// --- the whole distribution -------------------------------------------------------------------------

function outcome(row) {
  if (row.cut) return row.cutBy ? `cut by ${row.cutBy}` : "cut";
  return row.chosen ? "this token" : "";
}

function distributionTable(rows, processed, scale) {
  const grid = make("table", "whole");
  grid.append(make("caption", "", processed ? "Before and after the processors" : "The model's own probabilities"));
  grid.append(
    header(["token", "token"], ["bars", processed ? "model, as used" : ""], ["number", "model"],
      ...(processed ? [["number", "as used"]] : []), ["outcome", ""]),
  );
  const body = make("tbody");
  for (const row of rows) {
    const line = make("tr");
    line.classList.toggle("chosen", row.chosen);
    line.classList.toggle("cut", row.cut);
    const kinds = [["raw", row.raw], ...(processed ? [["final", row.final]] : [])];
    line.append(tokenCell(row), bars(scale, ...kinds), make("td", "number", percent(row.raw)));
    if (processed) line.append(make("td", "number", row.cut ? "cut" : percent(row.final)));
    line.append(make("td", "outcome", outcome(row)));
    body.append(line);
  }
  grid.append(body);
  return grid;
}

function facts(distribution) {
  const processed = distribution.processors.length > 0;
  const [before, after] = distribution.entropy.map((nats) => nats.toFixed(2));
  const list = make("dl", "facts");
  for (const [name, value, help] of [
    ["entropy", processed ? `${before} → ${after} nats` : `${before} nats`, "How unsure the choice was: 0 is certain."],
    ["could be chosen", counted(distribution.kept, "token"), "Tokens that were not cut."],
    ["listed", `${percent(massOf(distribution))} of the probability`, "What the tokens listed here have together, as the model gave it."],
  ]) {
    const pair = make("div");
    pair.title = help;
    pair.append(make("dt", "", name), make("dd", "", value));
    list.append(pair);
  }
  return list;
}

function legend(processed) {
  const line = make("p", "legend");
  const kinds = [["raw", "as the model gave it"], ...(processed ? [["final", "as used"], ["hatched", "cut"]] : [])];
  for (const [kind, words] of kinds) {
    const item = make("span");
    item.append(make("i", "swatch " + kind), words);
    line.append(item);
  }
  return line;
}

// --- one processor ------------------------------------------------------------------------------------

const CHANGES = { cut: "cut here", gone: "cut before", unknown: "not listed" };

function change(row) {
  if (row.fate !== "kept") return CHANGES[row.fate];
  return row.before === row.after ? percent(row.after) : `${percent(row.before)} → ${percent(row.after)}`;
}

function stageFigure(stage, scale) {
  const figure = make("figure", "stage");
  const caption = make("figcaption");
  const title = make("h4", "", `${stage.at + 1}. ${stage.name}`);
  caption.append(title, make("p", "does", PROCESSORS[stage.name] ?? "A processor without a description here."));
  const grid = make("table");
  grid.setAttribute("aria-label", `Probabilities before and after ${stage.name}`);
  grid.append(header(["token", "token"], ["bars", "before, after"], ["number", ""]));
  const body = make("tbody");
  if (stage.line) {
    grid.classList.add("lined");
    grid.style.setProperty("--share", scale(stage.cutoff).toFixed(4));
  }
  for (const row of stage.rows) {
    const line = make("tr", row.fate);
    line.classList.toggle("chosen", row.chosen);
    line.append(tokenCell(row), bars(scale, ["raw", row.before], ["final", row.after]), make("td", "number", change(row)));
    body.append(line);
  }
  grid.append(body);
  const words = make("div", "effect");
  words.append(make("p", "", effect(stage)));
  if (stage.cutoff !== null && !stage.line) {
    words.append(make("p", "", "It cuts particular tokens, not the improbable ones: no line parts them."));
  }
  figure.append(caption, grid, words);
  return figure;
}

function stagesShown(distribution, rows, scale) {
  if (!distribution.processors.length) {
    return [make("p", "quiet", "No processor ran: the model's own probabilities were used as they are.")];
  }
  const grid = make("div", "stages");
  grid.append(...stagesOf(distribution, rows).map((stage) => stageFigure(stage, scale)));
  return [make("h3", "", "What each processor did, in the order they ran"), grid];
}

// --- all of it -----------------------------------------------------------------------------------------

function told(run) {
  const { at, place, length } = placeShown(run);
  if (!length) return [make("p", "empty", `${store.title(run)} has not written anything yet.`)];
  if (!place) return [make("p", "empty", `The text of ${store.title(run)} ends after ${counted(length, "token")}.`)];
  const head = make("h3", "headline", headline(place, at + 1));
  const why = reasons(place, run, siblingsOf(place)).map((words) => make("p", "why", words));
  if (!place.distribution) return [head, ...why];
  const rows = candidatesOf(place);
  const scale = barScale(rows, logarithmic);
  const processed = place.distribution.processors.length > 0;
  const [closely, table, beside] = ["closely", "shown", "beside"].map((name) => make("div", name));
  table.append(distributionTable(rows, processed, scale));
  beside.append(facts(place.distribution), legend(processed), make("p", "quiet", scaleWords(rows)));
  closely.append(table, beside);
  return [head, ...why, closely, ...stagesShown(place.distribution, rows, scale)];
}

function show() {
  const run = columnShown();
  part("tools").hidden = !run;
  if (!run) {
    part("told").replaceChildren(
      make("p", "empty", "Run a comparison, then press a token: here you see what it was chosen from, and why."),
    );
    return;
  }
  tools(run);
  part("told").replaceChildren(...told(run));
}

const soon = drawing(element, show);
store.subscribe(({ kind }) => ["reset", "column", "steps", "cursor"].includes(kind) && soon());
show();
