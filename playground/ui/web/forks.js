// Forks: what each column was forked from, the tree of them, folding them away, and editing a text.
// Knows columns. Refuses to run anything: it only asks. Runs after live.js, in the same function.

const folded = new Set(); // runs whose column is hidden

const forksOf = () => [...store.runs.values()].filter((run) => run.origin !== null);
const forkName = (run) => `fork ${forksOf().indexOf(run) + 1}`;

// What a column is called where others are about: its name alone, where that is enough.
function titleOf(run) {
  if (run.origin !== null) return `${run.name}, ${forkName(run)}`;
  const roots = [...store.runs.values()].filter((other) => other.origin === null);
  const alike = roots.filter((other) => other.name === run.name).length > 1;
  return alike ? `${run.name}, column ${roots.indexOf(run) + 1}` : run.name;
}

// Where a fork left: "token 9: ‘␣cats’ instead of ‘␣dog’".
function leftWords(run) {
  const { at, instead } = run.left;
  const given = visible(run.before.slice(at).map((place) => place.token).join(""));
  if (!given) return `after token ${at}`;
  const short = given.length > 40 ? given.slice(0, 39) + "…" : given;
  const before = instead ? ` instead of ‘${visible(instead.token)}’` : "";
  return `at token ${at + 1}: ‘${short}’${instead?.tokenId === run.before[at]?.tokenId ? " again" : before}`;
}

const originWords = (run) => `forked from ${titleOf(store.runs.get(run.origin))} ${leftWords(run)}`;

function fold(run, away) {
  if (away) folded.add(run);
  else folded.delete(run);
  drawForks();
  balance();
}

function visit(run) {
  fold(run, false);
  const { root } = shown.get(run);
  root.focus({ preventScroll: true });
  root.scrollIntoView({ block: "nearest", inline: "nearest", behavior: calm() ? "auto" : "smooth" });
  const ring = getComputedStyle(root).getPropertyValue("--color-accent");
  root.animate([{ boxShadow: `0 0 0 3px ${ring}` }, { boxShadow: "0 0 0 3px transparent" }], { duration: 1500 });
}

let forksBefore = Infinity; // when somebody asked for one more

// What was pressed goes away: the focus waits at the column, and follows to the fork when that is there.
function leaveFrom(column) {
  column.root.focus({ preventScroll: true });
  forksBefore = forksOf().length;
}

function follow(forks) {
  if (forks.length <= forksBefore) return;
  forksBefore = Infinity;
  if (!document.activeElement?.matches("#live .column")) return;
  const { root } = shown.get(forks.at(-1));
  root.focus({ preventScroll: true });
  root.scrollIntoView({ block: "nearest", behavior: calm() ? "auto" : "smooth" });
}

// The tree, as nested lists; there is none before the first fork.
function drawForks() {
  const forks = forksOf();
  for (const [run, column] of shown) column.root.hidden = folded.has(run);
  follow(forks);
  const nav = part("forks");
  nav.hidden = !forks.length;
  if (forks.length) nav.replaceChildren(make("b", "", "Forks"), branch(null));
}

function branch(origin) {
  const list = make("ul");
  for (const run of [...store.runs.values()].filter((one) => one.origin === origin)) {
    const item = make("li");
    const line = make("span", "line");
    const fork = origin !== null;
    const go = button("go", fork ? `${forkName(run)}, ${leftWords(run)}` : titleOf(run), () => visit(run));
    go.title = "Go to this column";
    line.append(go);
    if (fork) {
      const hidden = folded.has(run);
      const switchIt = button("fold", hidden ? "show" : "hide", () => fold(run, !hidden));
      switchIt.setAttribute("aria-label", `${hidden ? "Show" : "Hide"} ${titleOf(run)}`);
      line.append(switchIt);
      item.classList.toggle("folded", hidden);
    }
    item.append(line);
    if (forks(run).length) item.append(branch(run.key));
    list.append(item);
  }
  return list;
}

const forks = (run) => forksOf().filter((one) => one.origin === run.key);

// --- editing ---------------------------------------------------------------------------------------

// What one can do with a finished column.
function actionsOf(column) {
  const bar = make("div", "actions");
  bar.hidden = true;
  bar.append(button("edit", "Edit", () => edit(column)));
  if (column.run.origin !== null) bar.append(button("away", "Hide", () => fold(column.run, true)));
  return bar;
}

function refreshActions(column) {
  const { actions, run, editor } = column;
  actions.hidden = !run.end || Boolean(editor);
  const pen = actions.querySelector(".edit");
  pen.disabled = busy() !== "";
  pen.title = busy() || "Change the text and let the strategy go on from there, in a column of its own";
}

function edit(column) {
  const form = make("form", "editor");
  const field = make("textarea");
  field.value = column.places.map((place) => place.text).join("");
  field.rows = Math.max(6, Math.ceil(field.value.length / 30) + 1);
  field.setAttribute("aria-label", `The text of ${titleOf(column.run)}, after the prompt`);
  const go = make("button", "primary", "Continue from here");
  go.type = "submit";
  const lead = leadOf(column);
  form.append(field, go, button("", "Cancel", () => endEdit(column)));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (busy()) return;
    endEdit(column);
    leaveFrom(column);
    trigger("edited", { column: column.run.key, lead, text: field.value });
  });
  form.addEventListener("keydown", (event) => event.key === "Escape" && endEdit(column));
  column.editor = form;
  column.text.hidden = true;
  column.text.before(form);
  refreshActions(column);
  field.focus();
  field.setSelectionRange(field.value.length, field.value.length);
}

function endEdit(column) {
  column.editor?.remove();
  column.editor = null;
  column.text.hidden = false;
  refreshActions(column);
  column.actions.querySelector(".edit").focus();
}
