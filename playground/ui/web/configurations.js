// The model's own generation config, and one table per card: what its run would change of it.
// Knows the JSON that configurations.py writes. All its text only ever becomes textContent.
// Gradio runs this as the body of function(element, trigger, props, server, upload, watch).

function make(tag, name, ...children) {
  const node = document.createElement(tag);
  if (name) node.className = name;
  node.append(...children);
  return node;
}

function table(rows) {
  const head = make("tr", "", make("th", "", "field"), make("th", "", "model's own"), make("th", "", "this run"));
  const lines = rows.map(({ field, own, run, same }) =>
    make("tr", same ? "same" : "", make("th", "", field), make("td", "", own), make("td", "", run)));
  return make("table", "", make("thead", "", head), make("tbody", "", ...lines));
}

function card({ name, rows, note, error }, place) {
  const section = make("section", "", make("h4", "", `${place + 1}. ${name}`));
  if (error) section.append(make("p", "refused", error));
  else if (rows.length) section.append(make("div", "scroll", table(rows)));
  else section.append(make("p", "", "Nothing is changed."));
  if (note) section.append(make("p", "note", note));
  return section;
}

function show() {
  if (!props.value) return;
  const { model, own, cards, error } = JSON.parse(props.value);
  const title = make("h4", "", `${model}, its own`);
  const text = make("pre", "", own);
  text.tabIndex = 0; // it may scroll
  element.querySelector(".own").replaceChildren(title, text);
  const sections = error ? [make("p", "refused", error)] : cards.map(card);
  element.querySelector(".runs").replaceChildren(...sections);
}

watch("value", show);
show();
