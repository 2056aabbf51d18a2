// Makes Gradio's dropdowns usable with the keyboard. Gradio (6.31) opens a list when its field gets the
// focus, opens it again when Tab or a modifier key leaves it, drops the focus when an option is chosen with
// Enter, and lets Tab move into the list of options. Here a list opens on a click, on Enter, Space and the
// arrow keys, and closes when the focus leaves. Only listens to events: without it, the page works as
// Gradio does.

const REOPEN = ["Enter", " ", "ArrowDown", "ArrowUp"];
const TYPED = ["Enter", " "]; // in a field that can be typed into, these belong to the text
const PASSING = ["Tab", "Shift", "Control", "Alt", "Meta"]; // keys that are not for the list

/** @param {EventTarget | null} target */
const combobox = (target) =>
  target instanceof HTMLInputElement && target.getAttribute("role") === "combobox" ? target : null;

/** @param {HTMLInputElement} field */
const closed = (field) => field.getAttribute("aria-expanded") !== "true";

/**
 * Opens the list of a field that has the focus: Gradio opens it when the field gets the focus.
 * @param {HTMLInputElement} field
 */
function open(field) {
  field.blur();
  field.focus({ preventScroll: true });
}

/**
 * Moves the focus to the frame around the field: on the field itself the list would open again.
 * @param {HTMLInputElement} field
 */
function focusFrame(field) {
  const frame = field.closest(".wrap");
  if (document.activeElement !== document.body || !(frame instanceof HTMLElement) || !frame.isConnected) return;
  /** @param {KeyboardEvent} event */
  const reopen = (event) => {
    if (!REOPEN.includes(event.key) || event.target !== frame) return;
    event.preventDefault();
    field.focus();
  };
  frame.tabIndex = -1;
  field.tabIndex = -1; // Tab moves on to the next control
  frame.addEventListener("keydown", reopen);
  frame.addEventListener("blur", () => {
    frame.removeEventListener("keydown", reopen);
    frame.removeAttribute("tabindex");
    field.removeAttribute("tabindex");
  }, { once: true });
  frame.setAttribute("role", "group");
  frame.setAttribute("aria-label", `${field.getAttribute("aria-label")}: ${field.value}`);
  frame.focus({ preventScroll: true });
}

export function keepComboboxFocus() {
  /** @type {Element | undefined} the field whose list the current key closes */
  let closing;
  let tabbing = false; // the current key moves the focus

  document.addEventListener("keydown", (event) => {
    tabbing = event.key === "Tab";
    if (tabbing) setTimeout(() => (tabbing = false));
    const field = combobox(event.target);
    if (!field) return;
    if (PASSING.includes(event.key)) event.stopPropagation();
    if (closed(field)) return openWithKey(field, event);
    const list = document.getElementById(field.getAttribute("aria-controls") ?? "");
    if (event.key === "Tab" && list) list.tabIndex = -1; // a list that scrolls is a tab stop
    if (event.key !== "Enter") return;
    closing = field;
    setTimeout(() => (closing = undefined)); // leaving the field later is the visitor's own choice
  }, true);

  // While capturing: the field itself does not get the event, and its list stays closed.
  document.addEventListener("focus", (event) => {
    if (tabbing && combobox(event.target)) event.stopPropagation();
  }, true);

  document.addEventListener("click", ({ target }) => {
    const field = combobox(target);
    if (field && closed(field)) open(field);
  });

  // In a microtask, because the next key may already be queued.
  document.addEventListener("focusout", ({ target }) => {
    if (target instanceof HTMLInputElement && target === closing) queueMicrotask(() => focusFrame(target));
  });
}

/**
 * @param {HTMLInputElement} field
 * @param {KeyboardEvent} event
 */
function openWithKey(field, event) {
  if (!REOPEN.includes(event.key) || (!field.readOnly && TYPED.includes(event.key))) return;
  event.preventDefault();
  event.stopPropagation();
  open(field);
}
