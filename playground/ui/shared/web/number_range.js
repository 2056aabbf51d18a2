// Says so where a number typed into a slider's field is out of range. Gradio (6.31) replaces it by the
// nearest limit without a word. Only listens to events: without it, the page works as Gradio does.

const NOTE = "out-of-range";

/**
 * What is wrong with a typed number, or "" if nothing is.
 * @param {{ value: string, min: string, max: string }} field
 */
export function rangeError({ value, min, max }) {
  if (value.trim() === "" || min === "" || max === "") return "";
  const number = Number(value);
  const used = Math.min(Math.max(number, Number(min)), Number(max));
  return number === used ? "" : `${value} is out of range: it must be from ${min} to ${max}. ${used} is used instead.`;
}

/** @param {HTMLInputElement} field */
function explain(field) {
  const block = field.closest(".block");
  const error = rangeError(field);
  block?.querySelector(`.${NOTE}`)?.remove();
  if (!block || !error) return;
  const note = document.createElement("p");
  note.className = NOTE;
  note.setAttribute("role", "alert");
  note.textContent = error;
  block.append(note);
}

export function explainRanges() {
  // While capturing: Gradio replaces the number when the field itself gets the event.
  document.addEventListener("blur", ({ target }) => {
    if (target instanceof HTMLInputElement && target.type === "number") explain(target);
  }, true);
}
