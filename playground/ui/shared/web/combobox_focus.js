// Keeps the keyboard focus at a Gradio dropdown. Gradio (6.31) drops the focus when an option is chosen
// with Enter, and lets Tab move into the list of options, which disappears at that moment. Only listens to
// events: without it, the page works as Gradio does.

const REOPEN = ["Enter", " ", "ArrowDown", "ArrowUp"];

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

  document.addEventListener("keydown", (event) => {
    const field = event.target instanceof Element && event.target.closest("[role=combobox][aria-expanded=true]");
    if (!field) return;
    const list = document.getElementById(field.getAttribute("aria-controls") ?? "");
    if (event.key === "Tab" && list) list.tabIndex = -1; // a list that scrolls is a tab stop
    if (event.key !== "Enter") return;
    closing = field;
    setTimeout(() => (closing = undefined)); // leaving the field later is the visitor's own choice
  }, true);

  // In a microtask, because the next key may already be queued.
  document.addEventListener("focusout", ({ target }) => {
    if (target instanceof HTMLInputElement && target === closing) queueMicrotask(() => focusFrame(target));
  });
}
