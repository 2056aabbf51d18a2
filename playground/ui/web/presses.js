// Keeps what is pressed while the cards are drawn anew until they are: before, Python does not know
// the events that read them. Knows the page's buttons by their ids.
// Runs after browser.js, in the same function.

const READERS = "#run, #step, #add, #make-link";
const PATIENCE = 20_000; // a press that comes much later than it was made would surprise
let waiting = 0;

// Presses a button as soon as it can be.
function press(button, until = Date.now() + PATIENCE) {
  clearTimeout(waiting);
  if (store.drawn && !button.disabled) button.click();
  else if (Date.now() < until) waiting = setTimeout(press, 30, button, until);
}

function keepUntilDrawn(event, button) {
  if (!button || store.drawn) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  press(button);
}

document.addEventListener("click", (event) => keepUntilDrawn(event, event.target.closest?.(READERS)), true);
document.addEventListener(
  "keydown",
  (event) => {
    const begins = event.key === "Enter" && event.shiftKey && event.target.closest?.("#prompt");
    if (begins) keepUntilDrawn(event, document.querySelector("#run"));
  },
  true,
);
