// The page's scripts as the browser gets them: plain files, one after the other in one function.

import { readFileSync } from "node:fs";

const HERE = new URL("../../playground/ui/web/", import.meta.url);

// The names some scripts declare, run as Gradio runs them: as the body of one function.
export function load(files, names, given = {}) {
  const source = files.map((file) => readFileSync(new URL(file, HERE), "utf8")).join("\n");
  const body = `${source}\nreturn { ${names.join(", ")} };`;
  return new Function(...Object.keys(given), body)(...Object.values(given));
}

// A store nobody else has, though the page keeps one for all.
export function freshStore() {
  delete globalThis.decodingPlayground;
  return load(["store.js"], ["store"]).store;
}

export const screen = (feed, from, lines) =>
  [JSON.stringify({ feed, from }), ...lines.map((line) => JSON.stringify(line))].join("\n");

export const head = (column, { origin = null, before = [], name = "greedy" } = {}) => ({
  column, name, settings: "", origin, before,
});

// One step; `text` is also its spelling, and `tokenId` its length unless told.
export const step = (id, parent, text, more = {}) => ({
  id, parent, tick: id, tokenId: text.length, token: text, text, event: "chosen",
  raw: 0.5, final: 0.5, rank: 1, at: null, notes: {}, ...more,
});

export const distribution = (...candidates) => ({
  candidates, processors: [], entropy: [1, 1], kept: candidates.length, keptAfter: [], cutoffs: [],
});

export const news = (run, steps, lead, more = {}) => ({ run, distributions: [], steps, lead, ...more });

export const end = (...leads) => ({
  figures: [], stop: "length reached", rule: "length", error: null,
  sequences: leads.map((lead) => ({ lead, score: null, tokens: 1, stop: "" })),
});

export const words = (places) => places.map((place) => place.text).join("");
