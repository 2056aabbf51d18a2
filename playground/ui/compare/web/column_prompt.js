// The prompt of a column: its last words before the first token, or the whole prompt above the text where
// columns have different prompts or the form has another one.

import { make } from "../../shared/web/dom.js";

/** @typedef {import("./store.js").Run} Run */

const TAIL = 28; // characters
const MOST_SHOWN = 2000; // characters; a prompt may have a hundred thousand

/**
 * The last words of a prompt, on one line.
 * @param {string} prompt
 */
export function tailOf(prompt) {
  const last = Array.from(prompt.trimStart().slice(-MOST_SHOWN)); // characters, not halves of them
  const line = last.join("").replace(/\s*\n\s*/g, "⏎").replace(/\s+/g, " ");
  const end = Array.from(line).slice(-TAIL).join("");
  if (end === line) return line;
  const word = end.search(/[\s⏎](?=[^\s⏎])/); // no half word at the start, unless there is only one
  return `… ${word < 0 ? end : end.slice(word + 1)}`;
}

/** @param {string} prompt */
const shortened = (prompt) => (prompt.length > MOST_SHOWN ? `${prompt.slice(0, MOST_SHOWN)} …` : prompt);

export class ColumnPrompt {
  /** @param {Run} run */
  constructor(run) {
    const prompt = shortened(run.prompt);
    this.tail = make("span", run.chat ? "prompt message" : "prompt", tailOf(run.prompt));
    this.tail.dir = "auto"; // isolated: it does not change the direction of the text
    this.tail.title = prompt;
    this.tail.setAttribute("aria-hidden", "true"); // it is no option of the list of tokens
    this.line = make("details", "whole-prompt");
    const words = make("bdi", "", prompt);
    words.dir = "auto";
    const summary = make("summary");
    summary.title = prompt;
    summary.append(make("span", "label", run.chat ? "Message" : "Prompt"), " ", words);
    this.line.append(summary);
    this.show(false);
  }

  /** @param {boolean} whole */
  show(whole) {
    this.line.hidden = !whole;
    this.tail.hidden = whole;
  }
}

/**
 * Shows the whole prompt in all columns if they or the form have different ones.
 * @param {{ run: Run, prompt: ColumnPrompt }[]} columns
 */
export function showPrompts(columns) {
  const field = document.querySelector("#prompt textarea");
  const prompts = new Set(columns.map(({ run }) => run.prompt));
  for (const { run, prompt } of columns) {
    const differs = field instanceof HTMLTextAreaElement && field.value !== run.prompt;
    prompt.show(prompts.size > 1 || differs);
  }
}
