// The legend: which measure the tint and the line of a token show, and what each mark means.
// Knows the two channels. Refuses to know tokens. Runs after colours.js, in the same function.

const legends = {}; // as -> {select, words, drawn}

function mountLegend() {
  for (const [as, title] of [["background", "Background"], ["underline", "Underline"]]) {
    const row = make("div", "channel");
    const label = make("label", "", title);
    const select = make("select");
    select.id = `live-${as}`;
    label.htmlFor = select.id;
    for (const [key, { name }] of Object.entries(CHANNELS)) select.append(new Option(name, key));
    select.addEventListener("change", () => store.paint({ [as]: select.value }));
    const words = make("span", "meaning");
    row.append(label, select, words);
    part("legend").append(row);
    legends[as] = { select, words, drawn: "" };
  }
  const row = make("div", "channel extras");
  const missed = make("span", "missed");
  missed.append(make("span", "unseen", "dotted box"), " not captured");
  row.append(missed);
  part("legend").append(row);
  refreshLegend();
}

// Whether any token here has something to show in a channel.
function anyKnown(name) {
  const { measure } = channelOf(name);
  for (const run of store.runs.values()) {
    if (run.before.some((place) => measure(place) !== null)) return true;
    for (const step of run.steps.values()) if (measure(placeOf(run, step)) !== null) return true;
  }
  return false;
}

function refreshLegend() {
  part("legend").hidden = !store.runs.size;
  for (const [as, { select, words, drawn }] of Object.entries(legends)) {
    const name = channelOf(store.look[as]) === CHANNELS.none ? "none" : store.look[as];
    const lacking = name !== "none" && store.runs.size > 0 && store.length > 0 && !anyKnown(name);
    const now = `${name} ${lacking}`;
    if (now === drawn) continue;
    legends[as].drawn = now;
    select.value = name;
    words.replaceChildren(...meaning(name, as, lacking));
  }
  const unseen = [...shown.values()].some((column) => column.places.some((place) => place.raw === null && !place.given));
  part("missed").hidden = !unseen;
}

function meaning(name, as, lacking) {
  const { about, ends, stops, samples } = legendOf(name, as);
  const told = [make("span", "about", about + (samples?.length === 0 ? "" : ":"))];
  if (stops) {
    const ramp = make("span", "ramp");
    ramp.setAttribute("role", "img");
    ramp.setAttribute("aria-label", `from dark purple, ${ends[0]}, to yellow, ${ends[1]}`);
    ramp.append(...stops.map((stop) => tinted(make("i"), stop)));
    told.push(make("span", "ends", ends[0]), ramp, make("span", "ends", ends[1]));
  }
  for (const { tint, line, words } of samples ?? []) {
    const sample = make("span", "sample", words);
    if (as === "background") tinted(sample, tint);
    else sample.dataset.line = line;
    told.push(sample);
  }
  if (lacking) told.push(make("span", "lacking", channelOf(name).missing));
  return told;
}

function tinted(node, tint) {
  if (tint) node.style.setProperty("--tint", tint);
  return node;
}
