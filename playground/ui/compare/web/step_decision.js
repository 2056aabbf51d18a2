// What decided for a token: the numbers of the tokens that competed, as the strategy compared them.

import { grouped, percent, signed } from "../../shared/web/format.js";

/** @typedef {import("./step_distribution.js").Row} Row */
/** @typedef {import("./store.js").Distribution} Distribution */
/** @typedef {import("./store.js").Place} Place */
/** @typedef {import("./store.js").Step} Step */

/**
 * @typedef {object} Rival one token that competed
 * @property {string} token
 * @property {string} calculation the captured numbers, as the strategy combined them
 * @property {number} share the length of its bar, from 0 to 1
 * @property {boolean} own the token that is explained
 * @property {string} outcome
 *
 * @typedef {object} Decision
 * @property {string} title
 * @property {string} rule
 * @property {string} columns the heading of the numbers
 * @property {Rival[]} rivals the winner first
 * @property {string} rest what is known of the tokens that are not listed
 * @property {boolean} drawn whether the token was drawn from the step's final probabilities
 */

const SHOWN = 8; // rivals

/** @param {number} number */
const significant = (number) => {
  const text = number.toPrecision(3);
  return text.includes("e") ? text.replace("e-", "e−") : String(Number(text)).replace("-", "−");
};

/**
 * The decision that led to a token, if its numbers were captured.
 * @param {Place} place
 * @param {Row[]} rows
 * @param {Step[]} tick all steps that the run recorded together with the token's
 * @returns {Decision | null}
 */
export function decisionOf(place, rows, tick) {
  if (place.given || place.step === null) return null;
  const { notes } = place;
  const same = tick.filter((step) => step.notes.group === notes.group);
  if (typeof notes.total === "number" && typeof notes.order === "number") return beams(place, same);
  if (typeof notes.similarity === "number") {
    return contrastive(place, tick.filter((step) => typeof step.notes.similarity === "number"));
  }
  return draw(place, rows);
}

/**
 * The first rivals, and the explained token if it is not among them.
 * @template {{ own: boolean }} T
 * @param {T[]} rivals
 */
const shown = (rivals) => rivals.filter((rival, at) => at < SHOWN || rival.own);

/**
 * A random draw: the largest quotient of probability and random number wins.
 * @param {Place} place
 * @param {Row[]} rows
 * @returns {Decision | null}
 */
function draw({ distribution }, rows) {
  const drawn = rows.flatMap((row) =>
    row.final && row.noise ? [{ row, noise: row.noise, final: row.final, quotient: row.final / row.noise, own: row.chosen }] : []);
  if (!distribution || !drawn.length) return null;
  drawn.sort((one, other) => other.quotient - one.quotient);
  const most = drawn[0].quotient;
  const others = distribution.kept - drawn.length;
  return {
    title: "The draw",
    rule: "Each token's probability is divided by its own random number (exponential, mean 1). The largest quotient wins.",
    columns: "probability / random number = quotient",
    rivals: shown(drawn).map(({ row, noise, final, quotient, own }, at) => ({
      token: row.token, own, share: quotient / most, outcome: at ? "" : "drawn",
      calculation: `${significant(final)} / ${significant(noise)} = ${significant(quotient)}`,
    })),
    rest: others > 0 ? `${grouped(others)} more tokens took part, all with smaller quotients.` : "",
    drawn: true,
  };
}

/**
 * Contrastive search: the model's confidence less the degeneration penalty.
 * @param {Place} place
 * @param {Step[]} steps
 * @returns {Decision}
 */
function contrastive(place, steps) {
  const ranked = [...steps].sort((one, other) => other.notes.score - one.notes.score);
  const [most, least] = [ranked[0].notes.score, ranked[ranked.length - 1].notes.score];
  return {
    title: "The candidates",
    rule: "The score is the model's confidence less the degeneration penalty (the largest similarity to an earlier token), " +
      "weighted by penalty_alpha. The highest score wins.",
    columns: "confidence, penalty, score",
    rivals: ranked.map(({ id, token, notes }, at) => ({
      token, own: id === place.step, outcome: at ? "" : "chosen", share: between(notes.score, least, most),
      calculation: `${percent(notes.probability)}, ${signed(notes.similarity)}, ${signed(notes.score)}`,
    })),
    rest: "", drawn: false,
  };
}

/**
 * Beams: the continuations of all beams compete with their total scores. In beam sampling they are drawn.
 * @param {Place} place
 * @param {Step[]} tick
 * @returns {Decision}
 */
function beams(place, tick) {
  const found = tick.flatMap((step) => (typeof step.notes.total === "number" && typeof step.notes.order === "number"
    ? [{ step, own: step.id === place.step, total: step.notes.total, noise: step.noise }] : []));
  const drawn = found.every(({ noise }) => noise !== null);
  const value = (/** @type {typeof found[0]} */ one) => (drawn && one.noise ? one.total - Math.log(one.noise) : one.total);
  found.sort((one, other) => value(other) - value(one));
  const [most, least] = [value(found[0]), value(found[found.length - 1])];
  return {
    title: "The continuations of all beams",
    rule: (drawn ? DRAWN : RANKED) + (typeof place.notes.bank === "number" ? BANKS : ""),
    columns: drawn ? "total − ln(random number)" : "beam's total + token = total",
    rivals: shown(found).map((one) => ({
      token: one.step.token, own: one.own, outcome: outcomeOf(one.step), share: between(value(one), least, most),
      calculation: drawn && one.noise
        ? `${signed(one.total)} − ln ${significant(one.noise)} = ${signed(value(one))}`
        : sum(one.step.notes.score, one.total),
    })),
    rest: "", drawn: false,
  };
}

/**
 * @param {unknown} score
 * @param {number} total
 */
function sum(score, total) {
  if (typeof score !== "number") return signed(total);
  return `${signed(total - score)} ${score < 0 ? "−" : "+"} ${Math.abs(score).toFixed(3)} = ${signed(total)}`;
}

const RANKED = "Continuations are ranked by their total score, the sum of the log-probabilities of the whole text.";
const DRAWN = "Continuations are drawn: the probability of each whole text is divided by its own random number (exponential, " +
  "mean 1), and the largest quotients become candidates. In logarithms: total − ln(random number).";
const BANKS = " The beams are divided among banks, texts that meet equally much of the constraints: the best of each bank is kept first.";

/** @param {Step} step */
function outcomeOf({ event, notes }) {
  const names = /** @type {Record<string, string>} */ ({ chosen: "kept", returned: "finished", finished: "finished", pruned: "pruned" });
  const beam = typeof notes.beam === "number" ? `, beam ${notes.beam + 1}` : "";
  return `${names[event] ?? event}${beam}${notes.forced ? ", forced" : ""}`;
}

/**
 * The length of a bar for a score: the best is full, the worst keeps a tenth.
 * @param {number} value
 * @param {number} least
 * @param {number} most
 */
const between = (value, least, most) => (most > least ? 0.1 + (0.9 * (value - least)) / (most - least) : 1);

/**
 * The probabilities a token was drawn from as parts of one bar, most probable first; the last part is
 * that of all tokens that are not listed. Null where no random number was captured.
 * @param {Row[]} rows
 * @returns {{ token: string | null, from: number, size: number, own: boolean }[] | null}
 */
export function cumulative(rows) {
  const used = rows.flatMap((row) => (row.final && row.noise ? [{ row, final: row.final }] : []));
  if (!used.length) return null;
  used.sort((one, other) => other.final - one.final);
  let from = 0;
  /** @type {{ token: string | null, from: number, size: number, own: boolean }[]} */
  const parts = used.map(({ row, final }) => {
    const part = { token: row.token, from, size: final, own: row.chosen };
    from += final;
    return part;
  });
  if (from < 0.9995) parts.push({ token: null, from, size: 1 - from, own: false });
  return parts;
}
