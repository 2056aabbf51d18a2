// What a step's distribution shows: the candidates in one order, their probabilities before and after
// each processor, and which processor cut them. What was not captured stays null.

/** @typedef {import("./store.js").Distribution} Distribution */
/** @typedef {import("./store.js").Place} Place */
/** @typedef {number | null} Probability */

/**
 * @typedef {object} Row
 * @property {number} id
 * @property {string} token
 * @property {boolean} listed
 * @property {Probability[]} path its probability before the processors and after each
 * @property {boolean} chosen
 * @property {Probability} raw
 * @property {Probability} final
 * @property {number | null} noise the random number of its draw
 * @property {string | null} cutBy
 * @property {boolean} cut
 *
 * @typedef {Row & { before: Probability, after: Probability, fate: "kept" | "cut" | "gone" | "unknown" }} StageRow
 *
 * @typedef {object} Stage one processor
 * @property {string} name
 * @property {number} at
 * @property {StageRow[]} rows
 * @property {number | null} cutoff the smallest probability it kept
 * @property {number} cutHere
 * @property {number | null} keptAfter
 * @property {number | null} keptBefore
 * @property {boolean} line the cutoff separates the cut candidates from the kept ones
 * @property {boolean} touched
 */

/**
 * Every listed candidate and the chosen token, in the model's order; in the order of use where the
 * model's probabilities were not captured.
 * @param {Place} place
 * @param {Distribution} distribution
 * @returns {Row[]}
 */
export function candidatesOf(place, distribution) {
  const { tokenId } = place;
  const { processors } = distribution;
  const stages = processors.length;
  /** @type {{ id: number, token: string, listed: boolean, path: Probability[], noise: number | null }[]} */
  const found = distribution.candidates.map(([id, token, raw, final, ...between], at) => ({
    id, token, listed: true, path: stages ? [raw, ...between, final] : [raw], noise: distribution.noise[at] ?? null,
  }));
  if (!found.some((row) => row.id === tokenId) && !(place.given && place.raw === null)) {
    const between = Array(Math.max(stages - 1, 0)).fill(null);
    const ends = stages ? [place.raw, ...between, place.final ?? 0] : [place.raw];
    found.push({ id: tokenId, token: place.token, listed: false, path: ends, noise: place.noise });
  }
  const rows = found.map((row) => {
    const cutAt = row.path.findIndex((probability, at) => at > 0 && probability === 0);
    // Of an unlisted token only the ends are known: with several processors, any of them may have cut it.
    const unknown = cutAt < 1 || (!row.listed && stages > 1);
    const raw = row.path[0];
    const final = row.path[row.path.length - 1];
    return { ...row, chosen: row.id === tokenId, raw, final, cutBy: unknown ? null : processors[cutAt - 1], cut: final === 0 };
  });
  const order = (/** @type {Row} */ row) => row.raw ?? row.final ?? 0;
  return rows.sort((one, other) => order(other) - order(one));
}

/**
 * What each processor received, returned and cut.
 * @param {Distribution} distribution
 * @param {Row[]} rows
 * @returns {Stage[]}
 */
export function stagesOf(distribution, rows) {
  return distribution.processors.map((name, at) => {
    const changes = rows.map((row) => {
      const [before, after] = [row.path[at], row.path[at + 1]];
      /** @type {StageRow["fate"]} */
      const fate = before === null || after === null ? "unknown" : before === 0 ? "gone" : after === 0 ? "cut" : "kept";
      return { ...row, before, after, fate };
    });
    const cut = changes.filter((row) => row.fate === "cut");
    const cutoff = distribution.cutoffs[at] ?? null;
    return {
      name, at, rows: changes, cutoff, cutHere: cut.length,
      keptAfter: distribution.keptAfter[at] ?? null,
      keptBefore: at ? (distribution.keptAfter[at - 1] ?? null) : vocabularySize(distribution),
      // Some processors cut particular tokens, or those too probable: no cutoff separates them.
      line: cutoff !== null && cut.every((row) => row.before !== null && row.before < cutoff),
      touched: changes.some((row) => row.fate === "kept" && row.before !== row.after),
    };
  });
}

/**
 * The size of the vocabulary, if a number of the distribution shows it: a count up to which nothing was cut.
 * @param {Distribution} distribution
 */
export function vocabularySize(distribution) {
  if (!distribution.processors.length) return distribution.kept;
  const [first] = distribution.keptAfter;
  return first !== undefined && distribution.cutoffs[0] === null && first > 0 ? first : null;
}

/**
 * The share of the model's probability that the listed candidates have; null if it was not captured.
 * @param {Distribution} distribution
 */
export function listedMass({ candidates }) {
  const known = candidates.map(([, , raw]) => raw).filter((raw) => raw !== null);
  return known.length ? Math.min(1, known.reduce((sum, raw) => sum + raw, 0)) : null;
}

/**
 * The largest probability of a step.
 * @param {Row[]} rows
 */
export const largest = (rows) =>
  Math.max(FLOOR, ...rows.flatMap((row) => row.path.filter((probability) => probability !== null)));

const FLOOR = 1e-5; // where logarithmic bars begin

/**
 * The length of a bar, from 0 to 1.
 * @param {Row[]} rows
 * @param {boolean} logarithmic
 * @returns {(probability: number) => number}
 */
export function barScale(rows, logarithmic) {
  if (logarithmic) {
    return (probability) => (probability > FLOOR ? 1 - Math.log(probability) / Math.log(FLOOR) : 0);
  }
  const top = largest(rows);
  return (probability) => Math.min(1, probability / top);
}
