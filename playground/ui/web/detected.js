// What a detector found: the verdict, the tokens in their colours, the counts.
// Words and numbers come ready from Python; here they only become elements. Text is textContent alone.
// Runs after writing.js, as the body of function(element, trigger, props, server, upload, watch).

const [verdict, found] = ["verdict", "found"].map((name) => element.querySelector("." + name));

const KINDS = {
  green: ["green", "red", "not scored"],
  layered: ["g-values above chance", "not above chance", "not scored"],
};

function legend({ layered, best }) {
  const line = make("p", "legend");
  const words = KINDS[layered ? "layered" : "green"];
  ["green", "red", "unscored"].forEach((kind, at) => {
    line.append(make("span", `sample ${kind}`, words[at]));
  });
  if (best) line.append(make("span", "sample passage", "the marked passage"));
  return line;
}

function textOf({ tokens, more, best }) {
  const text = make("div", "text");
  text.tabIndex = 0; // it may be scrolled
  text.setAttribute("role", "group");
  text.setAttribute("aria-label", "The text, token by token");
  tokens.forEach(([words, kind, about], at) => {
    const inside = best && at >= best[0] && at < best[1];
    const token = make("span", `tok ${kind}${inside ? " passage" : ""}`, words);
    token.title = about;
    text.append(token);
  });
  if (more) text.append(make("span", "more", ` … and ${counted(more, "token")} more, which count too`));
  return text;
}

// The first row and the first cell of each name the others; `used` is the column that was asked for.
function table(name, [head, ...rows], used = null) {
  const node = make("table");
  node.append(make("caption", "", name));
  const top = node.createTHead().insertRow();
  head.forEach((words, at) => {
    const cell = make("th", at === used ? "used" : "", words);
    cell.scope = "col";
    top.append(cell);
  });
  const body = node.createTBody();
  for (const [first, ...rest] of rows) {
    const row = body.insertRow();
    const cell = make("th", "", first);
    cell.scope = "row";
    row.append(cell, ...rest.map((words, at) => make("td", at + 1 === used ? "used" : "", words)));
  }
  const frame = make("div", "frame");
  frame.tabIndex = 0; // on a narrow screen it is scrolled
  frame.setAttribute("role", "group");
  frame.setAttribute("aria-label", name);
  frame.append(node);
  return frame;
}

function tables({ counts, layers }, notes) {
  const { ways, rows, used } = counts;
  const node = make("div", "tables");
  node.append(table("Counts", [["", ...ways], ...rows], used + 1));
  if (layers.length) node.append(table("Scores of the g-values", layers));
  node.append(notes);
  return node;
}

function show() {
  const told = props.value ? JSON.parse(props.value) : { empty: "" };
  const words = told.error ?? told.empty;
  element.dataset.state = told.error === undefined ? told.verdict ?? "empty" : "error";
  verdict.className = `verdict ${element.dataset.state.replaceAll(" ", "-")}`;
  if (words !== undefined) {
    verdict.textContent = words;
    if (told.error === undefined) found.replaceChildren(); // what was found before is not lost by a slip
    found.classList.toggle("old", told.error !== undefined);
    return;
  }
  verdict.replaceChildren(make("b", "", told.verdict), make("span", "", told.reason.replace(told.verdict, "").replace(/^[:;,\s]+/, "")));
  const notes = make("ul", "notes");
  notes.append(...told.notes.map((note) => make("li", "", note)));
  found.classList.remove("old");
  found.replaceChildren(make("p", "name", told.name), legend(told), textOf(told), tables(told, notes));
}

watch("value", show);
show();
