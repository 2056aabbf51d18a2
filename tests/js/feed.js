// Parts of a feed, as the server sends them.

/** The lines as the server sends them. */
export const encoded = (lines) => lines.map((line) => JSON.stringify(line));

export const columnLine = (column, { origin = null, before = [], name = "greedy" } = {}) => ({
  column, name, settings: "", origin, before,
});

// One step: by default its spelling is `text`, and its id is the length of that.
export const step = (id, parent, text, more = {}) => ({
  id, parent, tick: id, tokenId: text.length, token: text, text, event: "chosen",
  raw: 0.5, final: 0.5, rank: 1, at: null, noise: null, notes: {}, ...more,
});

export const distribution = (...candidates) => ({
  candidates, processors: [], entropy: [1, 1], kept: candidates.length, keptAfter: [], cutoffs: [], noise: [],
});

export const stepsLine = (run, steps, lead, more = {}) => ({ run, distributions: [], steps, lead, ...more });

export const end = (...leads) => ({
  figures: [], stop: "length reached", rule: "length", error: null,
  sequences: leads.map((lead) => ({ lead, score: null, tokens: 1, stop: "" })),
});

export const textOf = (places) => places.map((place) => place.text).join("");
