// Explains why a token was chosen, in sentences built from captured numbers.

import { counted, grouped, percent, signed, visible } from "../../shared/web/format.js";
import { vocabularySize } from "./step_distribution.js";

/** @typedef {import("./step_distribution.js").Stage} Stage */
/** @typedef {import("./store.js").Notes} Notes */
/** @typedef {import("./store.js").Place} Place */
/** @typedef {import("./store.js").Run} Run */
/** @typedef {import("./store.js").Step} Step */

/**
 * What each processor does, by its name in the trace.
 * @type {Record<string, string>}
 */
export const PROCESSORS = {
  temperature: "Divides the logits by the temperature: below 1 sharpens the distribution, above 1 flattens it. Cuts nothing.",
  top_k: "Keeps the k most probable tokens.",
  top_p: "Keeps the smallest set of most probable tokens whose probabilities sum to p.",
  min_p: "Keeps tokens whose probability is at least min_p times that of the best token.",
  top_h: "Keeps as many of the most probable tokens as a bound on the entropy allows.",
  typical: "Keeps tokens whose surprisal is close to the entropy. Very probable tokens may be cut as well.",
  epsilon: "Keeps tokens above a fixed probability.",
  eta: "Keeps tokens above a probability that is lower where the entropy is high.",
  repetition_penalty: "Lowers the logits of tokens that already occurred.",
  encoder_repetition_penalty: "Raises or lowers the logits of tokens in the input.",
  no_repeat_n_gram: "Cuts tokens that would repeat an n-gram of the text.",
  encoder_no_repeat_n_gram: "Cuts tokens that would repeat an n-gram of the input.",
  sequence_bias: "Adds a bias to the logits of chosen token sequences.",
  no_bad_words: "Cuts tokens that would complete a forbidden word.",
  suppress_tokens: "Cuts suppressed tokens.",
  suppress_tokens_at_begin: "Cuts tokens that are suppressed at the beginning.",
  min_length: "Cuts the end token while the text is shorter than min_length.",
  min_new_tokens_length: "Cuts the end token while there are fewer than min_new_tokens new tokens.",
  forced_bos_token: "Forces the first token.",
  forced_eos_token: "Forces the end token at the maximum length.",
  exponential_decay_length_penalty: "Raises the logit of the end token as the text gets longer.",
  prefix_constrained: "Keeps only the tokens that a function allows after this prefix.",
  unbatched_classifier_free_guidance: "Moves the logits away from those of the negative prompt.",
  inf_nan_remove: "Replaces infinite and NaN logits.",
  watermark: "Adds a bias to the tokens on a green list that is derived from a key and the tokens before.",
  synth_id_text_watermark: "Reweights the tokens by keyed tournament sampling (SynthID).",
  hamming_diversity: "Subtracts a penalty from tokens that earlier beam groups chose at the same step.",
  dola: "Contrasts the last layer with an early layer. Tokens that the last layer finds implausible are cut.",
  residual: "After a rejected draft: the positive part of target minus draft probability, renormalised.",
  recipe: "What the custom strategy did to the logits before its own processors.",
};

/** @param {string} token */
const quoted = (token) => `‘${visible(token)}’`;

/** @type {Record<string, string>} */
const OUTCOMES = {
  chosen: "was chosen", returned: "was chosen and ends a returned sequence", finished: "was chosen and finished a hypothesis",
  pruned: "was a candidate and was pruned", drafted: "was drafted", accepted: "was drafted and accepted",
  rejected: "was drafted and rejected", resampled: "was resampled after a rejection", bonus: "was the bonus token",
  ignored: "was drafted and discarded after a rejection",
};

/** @param {Place} place */
const outcomeOf = (place) => OUTCOMES[place.notes.verdict ?? place.event] ?? `has the event “${place.event}”`;

/**
 * The headline: the token, its outcome, and its probability before and after the processors.
 * @param {Place} place
 * @param {number} number
 */
export function headline(place, number) {
  const name = `Token ${number} ${quoted(place.token)}`;
  if (place.given) return `${name} was given by you: no run chose it.`;
  const { distribution, raw, final, rank } = place;
  if (!distribution) return `${name} was written, but its distribution was not captured: there are no numbers for it.`;
  const size = vocabularySize(distribution);
  const standing = rank === null ? "" : ` (rank ${grouped(rank)}${size ? ` of ${grouped(size)}` : ""})`;
  const model = raw === null ? "the model's own probability was not captured" : `the model's probability was ${percent(raw)}${standing}`;
  const processors = distribution.processors.join(", ");
  const used = final ? `after ${processors} it was ${percent(final)}` : `${processors} cut it`;
  return `${name} ${outcomeOf(place)}: ${model}${processors ? `; ${used}` : ""}.`;
}

/**
 * Further sentences: the token's origin, and the numbers that its strategy recorded.
 * @param {Place} place
 * @param {Run} run
 * @param {Step[]} siblings
 */
export function reasons(place, run, siblings) {
  if (place.given) return givenReasons(place, run);
  const { notes } = place;
  return [
    ...(place.run !== null && place.run !== run ? [`Written by ${place.run.name}, before the fork.`] : []),
    ...verdictReasons(place, siblings),
    ...contrastReasons(place, siblings),
    ...layerReasons(place),
    ...beamReasons(notes),
    ...choiceReasons(place),
  ];
}

/**
 * How a strategy without numbers of its own chose: by rank, or at random.
 * @param {Place} place
 */
function choiceReasons({ run, noise, event }) {
  if (event === "pruned" || event === "given") return [];
  if (run?.strategy === "greedy") return ["Greedy decoding takes the most probable token."];
  const drawn = run?.strategy === "sample" || run?.strategy === "beam_sample";
  return drawn && noise === null ? ["The token was drawn at random. The random numbers of the draw were not captured."] : [];
}

/** @param {Place} place */
function layerReasons({ notes, noise }) {
  const { layer, last, early } = notes;
  if (typeof layer !== "number") return [];
  const found = [`DoLa contrasted the last layer with layer ${layer}, the candidate layer that differs most from it here.`];
  if (typeof last === "number" && typeof early === "number") {
    found.push(`Log-probability ${signed(last)} at the last layer, ${signed(early)} at layer ${layer}: contrast ${signed(last - early)}.`);
  }
  if (noise === null) found.push("The token with the highest contrast after all processors is taken.");
  return found;
}

/**
 * @param {Place} place
 * @param {Run} run
 */
function givenReasons(place, run) {
  const from = place.run ? ` of ${place.run.name}` : "";
  const fork = run.origin === null ? [] : [`It was inserted into the text${from} where this column was forked.`];
  const known = place.raw === null ? [] : [`The model's probability for it there was ${percent(place.raw)}.`];
  const none = place.distribution && place.raw === null ? ["Its probability was not captured: it is not one of the recorded candidates."] : [];
  return [[...fork, ...known, ...none].join(" ")].filter(Boolean);
}

/**
 * @param {Place} place
 * @param {Step[]} siblings
 */
function verdictReasons({ notes, noise }, siblings) {
  const { verdict } = notes;
  const found = [];
  if (typeof notes.copied_from === "number") {
    found.push(`Copied from token ${notes.copied_from + 1} of prompt and text, which follows the same ${counted(notes.matched, "token")}.`);
  }
  if (verdict === "accepted" || verdict === "rejected") found.push(verification(notes, noise !== null));
  if (verdict === "resampled") found.push(...resampling(siblings));
  if (verdict === "bonus") found.push("Every drafted token of the round was accepted, so the same pass gave one more token of the model.");
  if (verdict === "ignored") found.push("It follows a rejected token or the end of the text.");
  if (typeof notes.round === "number") found.push(`Draft round ${notes.round}.`);
  return found;
}

/**
 * A drafted token is accepted with probability min(1, p/q); without q, if the model chooses it itself.
 * @param {Notes} notes
 * @param {boolean} drawn
 */
function verification({ verdict, p, q, draw }, drawn) {
  const accepted = verdict === "accepted";
  if (drawn && typeof draw !== "number") {
    return accepted
      ? `The model's own draw gave the same token (p ${percent(p)}), so it is accepted.`
      : `The model's own draw gave another token (this one has p ${percent(p)}), so it is rejected.`;
  }
  if (typeof q !== "number" || typeof draw !== "number") {
    return accepted
      ? `It is the model's own choice here (p ${percent(p)}), so it is accepted.`
      : `The model chooses another token here (this one has p ${percent(p)}), so it is rejected.`;
  }
  const bound = q > 0 ? Math.min(1, p / q) : 1;
  return `Model p ${percent(p)}, draft q ${percent(q)}: accepted if a uniform random number is below ` +
    `min(1, p/q) = ${bound.toFixed(3)}. The number was ${draw.toFixed(3)}: ${accepted ? "accepted" : "rejected"}.`;
}

/** @param {Step[]} siblings */
function resampling(siblings) {
  const lost = siblings.find((step) => (step.notes.verdict ?? step.event) === "rejected");
  if (!lost) return [];
  const how = typeof lost.notes.draw === "number"
    ? "was sampled from the residual max(0, p − q)" : "is the model's own choice";
  return [`The draft had ${quoted(lost.token)} here, which was rejected; this token ${how}.`];
}

/**
 * @param {Place} place
 * @param {Step[]} siblings
 */
function contrastReasons({ notes }, siblings) {
  const { probability, similarity, score } = notes;
  if ([probability, similarity, score].some((number) => typeof number !== "number")) return [];
  const others = siblings.map((step) => step.notes.score).filter((other) => typeof other === "number");
  const best = Math.max(score, ...others);
  const like = typeof notes.similar_to === "number" ? ` to token ${notes.similar_to + 1} of prompt and text` : "";
  const standing = !others.length ? "" : score === best
    ? `, the highest of ${others.length + 1} candidates` : `; the chosen token has ${signed(best)}`;
  return [
    `Contrastive score ${signed(score)} from probability ${percent(probability)} and maximum similarity ` +
      `${signed(similarity)}${like}${standing}.`,
  ];
}

/** @param {Notes} notes */
function beamReasons(notes) {
  const found = [];
  if (typeof notes.total === "number") {
    const adds = typeof notes.score === "number" ? `Log-probability ${signed(notes.score)}; the` : "The";
    const normalized = typeof notes.normalized === "number" ? `, ${signed(notes.normalized)} normalised by length` : "";
    found.push(`${adds} beam's total score is ${signed(notes.total)}${normalized}.`);
  }
  if (typeof notes.group === "number") {
    const penalty = notes.penalty ? `, with a penalty of ${signed(notes.penalty)} because earlier groups chose this token` : "";
    found.push(`Beam group ${notes.group + 1}${penalty}.`);
  }
  if (Array.isArray(notes.constraints) && notes.constraints.length) found.push(constraintProgress(notes.constraints));
  if (typeof notes.bank === "number" && (notes.bank || notes.forced)) {
    found.push(`Bank ${notes.bank}: the number of constraint tokens that the text contains so far.`);
  }
  if (notes.forced) found.push("It was considered because it advances a constraint: its score alone would not have kept it.");
  return found;
}

/** @param {[done: number, length: number][]} constraints */
function constraintProgress(constraints) {
  const parts = constraints.map(([done, length], at) => {
    const progress = done === length ? "met" : done ? `${done} of ${counted(length, "token")}` : "not started";
    return constraints.length > 1 ? `${at + 1}: ${progress}` : progress;
  });
  return constraints.length > 1 ? `Constraints: ${parts.join("; ")}.` : `Constraint: ${parts[0]}.`;
}

/**
 * What a processor did at this step, in numbers.
 * @param {Stage} stage
 */
export function effect(stage) {
  const kept = stage.keptAfter === null ? "" : `${grouped(stage.keptAfter)} kept`;
  const of = kept && stage.keptBefore !== null ? `${kept} of ${grouped(stage.keptBefore)}` : kept;
  const least = stage.cutoff === null ? "" : `least probable token kept: ${percent(stage.cutoff)}`;
  const idle = !stage.touched && !stage.cutHere && stage.cutoff === null ? "no change here" : "";
  return [of, least, idle].filter(Boolean).join(" · ");
}
