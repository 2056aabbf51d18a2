// Which token shows which characters. A character that is split over several tokens (bytes of an emoji, a
// letter and its accent, an emoji sequence) is shown once and whole, by the token that completes it.

import { visible } from "../../shared/web/format.js";

/**
 * @typedef {object} Share what one token shows of a text
 * @property {string} text
 * @property {number} first the index of the first token with a part of these characters; often its own
 * @property {number} whole the index of the token that shows its characters; often its own
 */

/** @typedef {{ token: string, text: string }} Spelled */

const BYTES = /^(?:<0x[0-9A-F]{2}>)+$/; // the spelling of a token that is not a text by itself
// Characters that may belong to one cluster with the character before or after them; a superset of the
// rules of Unicode, because the segmenter decides.
const JOINS_BEFORE = /^(?:[\p{M}\p{Emoji_Modifier}\p{Regional_Indicator}\u1160-\u11ff\ud7b0-\ud7fb\u{e0020}-\u{e007f}]|\u200c|\u200d)/u;
const JOINS_AFTER = /(?:[\p{M}\p{Regional_Indicator}\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u1100-\u115f\ua960-\ua97c]|\u200d)$/u;

const COMBINING = 0x300; // no character below it joins another one

/**
 * @param {string} before
 * @param {string} text
 */
function mayJoin(before, text) {
  if (text.charCodeAt(0) < COMBINING && before.charCodeAt(before.length - 1) < COMBINING) return false;
  return JOINS_BEFORE.test(text) || JOINS_AFTER.test(before);
}

const clusters = new Intl.Segmenter(undefined, { granularity: "grapheme" });

/**
 * The last token of the tokens from `start` on whose characters may be split over them. Bytes at the end
 * of the text that are no character yet do not belong to them.
 * @param {Spelled[]} tokens
 * @param {number} start
 */
function endOfRun(tokens, start) {
  let before = tokens[start].text;
  let end = start;
  for (let at = start; at + 1 < tokens.length; at++) {
    if (!tokens[at].text && !BYTES.test(tokens[at].token)) break;
    const { text } = tokens[at + 1];
    if (!text) continue; // the text that these bytes become is that of a later token
    if (before && !mayJoin(before, text)) break;
    end = at + 1;
    before = text;
  }
  return end;
}

/**
 * Divides the clusters of a run of tokens among them.
 * @param {Spelled[]} tokens
 * @param {Share[]} shares
 * @param {number} start
 * @param {number} end
 */
function divide(tokens, shares, start, end) {
  let offset = 0; // of the end of token `at` in the text
  let at = start - 1;
  const seek = (/** @type {number} */ place) => {
    while (offset <= place && at < end) offset += tokens[++at].text.length;
  };
  for (let of = start; of <= end; of++) Object.assign(shares[of], { text: "", first: end, whole: -1 });
  for (const { segment, index } of clusters.segment(tokens.slice(start, end + 1).map(({ text }) => text).join(""))) {
    // Bytes before a token belong to its first character.
    const from = at + 1;
    seek(index);
    const first = Math.min(from, at);
    seek(index + segment.length - 1);
    const share = shares[at];
    share.text += segment;
    share.first = Math.min(share.first, first);
  }
  for (let of = end, whole = end; of >= start; of--) {
    if (shares[of].text) whole = of;
    else shares[of].first = of;
    shares[of].whole = whole;
  }
}

/**
 * What each token of a text shows.
 * @param {Spelled[]} tokens
 * @returns {Share[]}
 */
export function sharesOf(tokens) {
  const shares = tokens.map(({ text }, at) => ({ text, first: at, whole: at }));
  for (let start = 0; start < tokens.length; start++) {
    const end = endOfRun(tokens, start);
    if (end > start) divide(tokens, shares, start, end);
    start = end;
  }
  return shares;
}

/**
 * The indices of the tokens that share a character with a token, itself among them; none where its
 * characters are its own.
 * @param {Share[]} shares
 * @param {number} at
 */
export function partsOf(shares, at) {
  const { whole } = shares[at];
  const { first } = shares[whole];
  return first === whole ? [] : Array.from({ length: whole - first + 1 }, (_, i) => first + i);
}

/**
 * How a token is named where its text is read aloud.
 * @param {Spelled[]} tokens
 * @param {Share[]} shares
 * @param {number} at
 */
export function nameOf(tokens, shares, at) {
  const { whole, text } = shares[at];
  const parts = partsOf(shares, at);
  if (whole === at) {
    const name = text.trim() || visible(tokens[at].token);
    return parts.length ? `${name}, in ${parts.length} tokens` : name;
  }
  return `${visible(tokens[at].token)}, part ${parts.indexOf(at) + 1} of ${parts.length} of ${shares[whole].text.trim()}`;
}
