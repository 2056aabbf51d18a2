// Why a token stands where it stands, in sentences made of captured numbers only.
// Knows what strategies note and what processors do. Refuses to draw.

// What each processor does, by the name the trace gives it.
const PROCESSORS = {
  temperature: "Divides the scores: below 1 the likely get likelier, above 1 the unlikely get a chance. Cuts nothing.",
  top_k: "Keeps a fixed number of the most probable tokens, however sure the model is.",
  top_p: "Keeps the most probable tokens that together reach a share of the probability: few where the model is sure.",
  min_p: "Keeps tokens with at least a share of the best one's probability.",
  top_h: "Keeps as many of the most probable tokens as a bound on the entropy allows.",
  typical: "Keeps tokens about as surprising as the average one: the too obvious may be cut as well.",
  epsilon: "Keeps tokens above a fixed probability.",
  eta: "Keeps tokens above a probability that falls where the model is unsure.",
  repetition_penalty: "Makes tokens that were already there less likely.",
  encoder_repetition_penalty: "Makes tokens of the input more likely, or less.",
  no_repeat_n_gram: "Cuts tokens that would repeat a run of tokens which is already there.",
  encoder_no_repeat_n_gram: "Cuts tokens that would repeat a run of tokens of the input.",
  sequence_bias: "Adds to the scores of chosen words, or takes away.",
  no_bad_words: "Cuts tokens that would complete a forbidden word.",
  suppress_tokens: "Cuts tokens that were ruled out.",
  suppress_tokens_at_begin: "Cuts tokens that were ruled out for the beginning.",
  min_length: "Cuts the end token while the text is too short.",
  min_new_tokens_length: "Cuts the end token while too few tokens are new.",
  forced_bos_token: "Leaves one token only, as the first.",
  forced_eos_token: "Leaves only the end token where the length runs out.",
  exponential_decay_length_penalty: "Makes the end token likelier the longer the text gets.",
  prefix_constrained: "Keeps only tokens that a rule allows after this beginning.",
  unbatched_classifier_free_guidance: "Moves away from what the model says to the negative prompt.",
  inf_nan_remove: "Replaces numbers that are none.",
  watermark: "Adds a bias to the tokens on a secret green list, which the tokens before it choose.",
  synth_id_text_watermark: "Lets tokens win rounds of a secret tournament, which leaves a trace in the text.",
  hamming_diversity: "Takes a penalty off tokens that the groups of beams before this one took at the same step.",
  dola: "Puts what the last layer says above an early layer in the place of the model's own scores; what the last layer finds implausible is cut.",
  residual: "After a rejected draft: what the model's probability has above the draft's, and nothing else.",
  recipe: "What a custom recipe made of the model's scores before its own processors.",
};

const quoted = (token) => `‘${visible(token)}’`;

const FATES = {
  chosen: "was chosen", returned: "was chosen, and ends a returned sequence", finished: "was chosen, and ended a hypothesis",
  pruned: "was a candidate and lost its place", drafted: "was drafted", accepted: "was drafted and accepted",
  rejected: "was drafted and rejected", resampled: "was taken after a rejection", bonus: "came as a bonus",
  ignored: "was drafted, and judged by nobody",
};
const fateOf = (place) => FATES[place.notes.verdict ?? place.event] ?? `is marked “${place.event}”`;

// The headline: which token, what became of it, and the two probabilities that matter.
function headline(place, number) {
  const name = `Token ${number} ${quoted(place.token)}`;
  if (place.given) return `${name} was given by you: no run chose it.`;
  if (!place.distribution) {
    return `${name} was written, but what it was chosen from could not be seen: there are no numbers for it.`;
  }
  const { distribution, raw, final, rank } = place;
  const size = sizeOf(distribution);
  const standing = rank === null ? "" : ` (rank ${rank.toLocaleString("en")}${size ? ` of ${size.toLocaleString("en")}` : ""})`;
  const processors = distribution.processors.join(", ");
  const after = !processors ? "" : final ? `; after ${processors} it had ${percent(final)}` : `; ${processors} had cut it`;
  return `${name} ${fateOf(place)}: the model gave it ${percent(raw)}${standing}${after}.`;
}

// Further sentences: where the token comes from, and the numbers only its strategy knows.
function reasons(place, run, siblings) {
  if (place.given) return givenReasons(place, run);
  const { notes } = place;
  return [
    ...(place.run !== run ? [`It was written by ${place.run.name}, before the fork.`] : []),
    ...verdictReasons(place, siblings),
    ...contrastReasons(place, siblings),
    ...(typeof notes.layer === "number"
      ? [`DoLa set the last layer against layer ${notes.layer}, the one furthest from it here.`] : []),
    ...beamReasons(notes),
  ];
}

function givenReasons(place, run) {
  const from = place.run ? ` of ${place.run.name}` : "";
  const fork = run.origin === null ? "" : ` It was put into the text${from} where this column was forked.`;
  const known = place.raw === null ? "" : ` The model had given it ${percent(place.raw)} there.`;
  const none = place.distribution && place.raw === null ? " It was not among the candidates that were kept." : "";
  return [(fork + known + none).trim()].filter(Boolean);
}

function verdictReasons({ notes }, siblings) {
  const { verdict, p, q, draw } = notes;
  const told = [];
  if (typeof notes.copied_from === "number") {
    told.push(`It was copied from token ${notes.copied_from + 1} of prompt and text, where the same ${counted(notes.matched, "token")} stood before it.`);
  }
  if (verdict === "accepted" || verdict === "rejected") told.push(weighed(verdict, p, q, draw));
  if (verdict === "resampled") told.push(...replaced(siblings));
  if (verdict === "bonus") told.push("Every drafted token of the round was kept, so the model's own next token came with the same pass.");
  if (verdict === "ignored") told.push("It stands behind a token that was rejected, or behind the end of the text.");
  if (typeof notes.round === "number") told.push(`Round ${notes.round} of drafting.`);
  return told;
}

// A drafted token stays with probability min(1, p/q); without a draw it must be what the model takes.
function weighed(verdict, p, q, draw) {
  const kept = verdict === "accepted";
  if (q === undefined || draw === undefined) {
    return kept
      ? `The model itself takes this token here (p ${percent(p)}), so it stays.`
      : `The model itself takes another token here (this one has p ${percent(p)}), so it was struck out.`;
  }
  const bound = q > 0 ? Math.min(1, p / q) : 1;
  return `The model has p ${percent(p)}, the draft had q ${percent(q)}: it stays if a draw from 0 to 1 is below ` +
    `min(1, p/q) = ${bound.toFixed(3)}. The draw was ${draw.toFixed(3)}: ${kept ? "it stays" : "it was struck out"}.`;
}

function replaced(siblings) {
  const lost = siblings.find((step) => (step.notes.verdict ?? step.event) === "rejected");
  if (!lost) return [];
  const how = lost.notes.draw === undefined
    ? "the model's own choice" : "drawn from what the model's probability has above the draft's";
  return [`The draft had ${quoted(lost.token)} here, which was rejected; this is ${how}.`];
}

function contrastReasons({ notes }, siblings) {
  const { probability, similarity, score } = notes;
  if ([probability, similarity, score].some((number) => typeof number !== "number")) return [];
  const others = siblings.map((step) => step.notes.score).filter((other) => typeof other === "number");
  const best = Math.max(score, ...others);
  const like = typeof notes.similar_to === "number" ? ` to token ${notes.similar_to + 1} of prompt and text` : "";
  const standing = !others.length ? "" : score === best
    ? `, the highest of ${others.length + 1} candidates` : `; the winner had ${signed(best)}`;
  return [
    `Its probability of ${percent(probability)} weighed against its similarity of ${signed(similarity)}${like} ` +
      `gives a score of ${signed(score)}${standing}.`,
  ];
}

function beamReasons(notes) {
  const told = [];
  if (typeof notes.total === "number") {
    const adds = typeof notes.score === "number" ? `It adds ${signed(notes.score)} to its beam, which` : "Its beam";
    const fair = typeof notes.normalized === "number" ? `, ${signed(notes.normalized)} for its length` : "";
    told.push(`${adds} then has ${signed(notes.total)}${fair}.`);
  }
  if (typeof notes.group === "number") {
    const penalty = notes.penalty ? `, with a penalty of ${signed(notes.penalty)} because earlier groups took the token` : "";
    told.push(`It belongs to group ${notes.group + 1}${penalty}.`);
  }
  if (typeof notes.bank === "number" && (notes.bank || notes.forced)) {
    told.push(`Its text is in bank ${notes.bank}: the tokens it has of the constraints, all counted as if as long as the longest.`);
  }
  if (notes.forced) told.push("It was looked at because it takes a constraint further: its score alone won no place.");
  return told;
}

// What a processor did here, in numbers.
function effect(stage) {
  const kept = stage.keptAfter === null ? "" : `${stage.keptAfter.toLocaleString("en")} kept`;
  const of = kept && stage.keptBefore !== null ? `${kept} of ${stage.keptBefore.toLocaleString("en")}` : kept;
  const least = stage.cutoff === null ? "" : `the least probable it kept had ${percent(stage.cutoff)}`;
  const idle = !stage.touched && !stage.cutHere && stage.cutoff === null ? "no change here" : "";
  return [of, least, idle].filter(Boolean).join(" · ");
}
