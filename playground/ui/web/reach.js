// Lists to choose from, for those without a mouse: Gradio gives up the focus when something was chosen,
// and lets Tab lead into the list, which goes away at that moment. Knows comboboxes; nothing else.
() => {
  const RESUME = ["Enter", " ", "ArrowDown", "ArrowUp"];
  let closing; // the field whose list the key under way closes

  // The field's frame holds the focus: on the field itself the list would open again.
  function rest(field) {
    const frame = field.closest(".wrap");
    if (document.activeElement !== document.body || !frame?.isConnected) return;
    const resume = (event) => {
      if (!RESUME.includes(event.key) || event.target !== frame) return;
      event.preventDefault();
      field.focus();
    };
    frame.tabIndex = -1;
    field.tabIndex = -1; // Tab goes on to what follows
    frame.addEventListener("keydown", resume);
    frame.addEventListener("blur", () => {
      frame.removeEventListener("keydown", resume);
      frame.removeAttribute("tabindex");
      field.removeAttribute("tabindex");
    }, { once: true });
    frame.setAttribute("role", "group");
    frame.setAttribute("aria-label", `${field.getAttribute("aria-label")}: ${field.value}`);
    frame.focus({ preventScroll: true });
  }

  document.addEventListener("keydown", (event) => {
    const field = event.target.closest?.("[role=combobox][aria-expanded=true]");
    if (!field) return;
    const list = document.getElementById(field.getAttribute("aria-controls"));
    if (event.key === "Tab" && list) list.tabIndex = -1; // a list that scrolls is a stop for Tab
    if (event.key !== "Enter" && event.key !== "Escape") return;
    closing = field;
    setTimeout(() => (closing = undefined)); // who leaves it later goes where they like
  }, true);

  // As soon as the field is left, and not a moment later: the next key may be on its way.
  document.addEventListener("focusout", (event) => {
    if (event.target === closing) queueMicrotask(() => rest(event.target));
  });
};
