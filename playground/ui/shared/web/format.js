// Formats tokens and numbers.

/** @type {Record<string, string>} */
const WHITESPACE = { " ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "\u00a0": "⍽" };

/** @type {Record<string, string>} */
const JOINERS = { "\u200c": "ZWNJ", "\u200d": "ZWJ" };

/**
 * A token with its white space made visible, and with a base for a combining mark that has none.
 * @param {string} text
 */
export function visible(text) {
  if (Object.hasOwn(JOINERS, text)) return JOINERS[text];
  return (/^\p{M}/u.test(text) ? "◌" + text : text).replace(/[ \n\t\r\u00a0]/g, (character) => WHITESPACE[character]);
}

/**
 * A probability as a percentage. Null stands for a value that was not captured.
 * @param {number | null | undefined} probability
 */
export function percent(probability) {
  if (probability === null || probability === undefined) return "not captured";
  if (probability === 0) return "0 %";
  if (probability < 0.0001) return "< 0.01 %";
  if (probability > 0.9995 && probability < 1) return "> 99.9 %";
  return (probability * 100).toFixed(probability < 0.01 ? 2 : 1) + " %";
}

/**
 * An entropy before and after the processors, in nats; null was not captured.
 * @param {(number | null)[]} entropy
 * @param {boolean} processed
 */
export function nats([before, after], processed) {
  const number = (/** @type {number | null} */ value) => (value === null ? "not captured" : value.toFixed(2));
  return processed ? `${number(before)} → ${number(after)} nats` : before === null ? number(before) : `${number(before)} nats`;
}

/** @param {number} number */
export const grouped = (number) => number.toLocaleString("en");

/**
 * @param {number} count
 * @param {string} noun
 */
export const counted = (count, noun) => `${grouped(count)} ${noun}${count === 1 ? "" : "s"}`;

/**
 * A log-probability or a score, with a real minus sign.
 * @param {number} number
 */
export function signed(number, digits = 3) {
  return number.toFixed(digits).replace("-", "−");
}
