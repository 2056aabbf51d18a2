// How tokens and numbers are written, and elements made, in every view.
// Text of the model only ever becomes textContent. Knows no run.

const PICTURES = { " ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "\u00a0": "⍽" };

// A token's spelling with its white space to be seen.
function visible(text) {
  return text.replace(/[ \n\t\r\u00a0]/g, (character) => PICTURES[character]);
}

function percent(probability) {
  if (probability === null || probability === undefined) return "–";
  if (probability === 0) return "0 %";
  if (probability < 0.0001) return "< 0.01 %";
  if (probability > 0.9995 && probability < 1) return "> 99.9 %";
  return (probability * 100).toFixed(probability < 0.01 ? 2 : 1) + " %";
}

const counted = (count, one) => `${count.toLocaleString("en")} ${one}${count === 1 ? "" : "s"}`;

// A log-probability, a score: with a real minus, and the same width for all.
function signed(number, digits = 3) {
  return number.toFixed(digits).replace("-", "−");
}

function make(tag, name, text) {
  const node = document.createElement(tag);
  if (name) node.className = name;
  if (text !== undefined) node.textContent = text;
  return node;
}

function button(name, text, press) {
  const node = make("button", name, text);
  node.type = "button";
  node.addEventListener("click", press);
  return node;
}

function draw(tag, attributes = {}) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

const OFTEN = 200; // ms between two drawings

// Draws soon, but not more often than that, and only what somebody can see: what was asked for
// while the view was hidden is drawn when it is shown.
function drawing(element, work) {
  let [last, waiting, seen] = [0, 0, false];
  const now = () => {
    waiting = 0;
    if (!seen && !element.offsetParent) return;
    last = performance.now();
    work();
  };
  const soon = () => {
    waiting ||= setTimeout(now, Math.max(0, last + OFTEN - performance.now()));
  };
  new IntersectionObserver((entries) => {
    const shown = entries.at(-1).isIntersecting;
    if (shown && !seen) soon();
    seen = shown;
  }).observe(element);
  return soon;
}
