// What the page adds to the fields of Gradio.

import { keepComboboxFocus } from "./combobox_focus.js";
import { explainRanges } from "./number_range.js";

export function improveFields() {
  keepComboboxFocus();
  explainRanges();
}
