// The two marks of a token: the tint behind it and the line below it. Each shows one measure, with a
// scale and a text for it. What was not captured has no mark. Colours are safe for colour-blind
// readers, and lines differ in style.

import { percent, visible } from "../../shared/web/format.js";

/** @typedef {import("./store.js").Place} Place */
/** @typedef {import("./store.js").Marks} Marks */
/** @typedef {{ tint: string | null, line: string, text: string }} Mark */
/** @typedef {{ least: number, line: string, text: string }} Level the line of all values from `least` up */

/**
 * @typedef {object} Measure
 * @property {string} name
 * @property {string} about
 * @property {(place: Place) => any} value null where it is not known
 * @property {string} missing shown where no token has a value
 * @property {Record<string, Mark>} [kinds] the marks of named values
 * @property {(value: any) => string} [format]
 * @property {(value: any) => number} [share] position on the colour scale, from 0 to 1
 * @property {[string, string]} [ends] labels of the colour scale
 * @property {boolean} [buckets] the colour scale has one tint per level
 * @property {Level[]} [levels] for lines, the highest first
 */

const VIRIDIS = [
  [68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141],
  [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37],
];
// The palette of Okabe and Ito.
const ORANGE = "rgb(230 159 0)";
const SKY = "rgb(86 180 233)";
const GREEN = "rgb(0 158 115)";
const VERMILLION = "rgb(213 94 0)";
const PURPLE = "rgb(204 121 167)";
const BLUE = "rgb(0 114 178)";

/** @param {number} share */
export function viridis(share) {
  const place = Math.min(Math.max(share, 0), 1) * (VIRIDIS.length - 1);
  const low = Math.min(Math.floor(place), VIRIDIS.length - 2);
  const mix = VIRIDIS[low].map((c, i) => Math.round(c + (VIRIDIS[low + 1][i] - c) * (place - low)));
  return `rgb(${mix.join(" ")})`;
}

/**
 * @param {number} least
 * @param {string} line
 * @param {string} text
 * @returns {Level}
 */
const level = (least, line, text) => ({ least, line, text });

/**
 * The verdict on a draft. A token copied from the text before is a draft too.
 * @param {Place} place
 */
function draftOf({ notes }) {
  if (notes.verdict === undefined) return null;
  return notes.verdict === "accepted" && notes.copied_from !== undefined ? "copied" : notes.verdict;
}

const NOT_CAPTURED = "not captured for any token here";

/** @type {Record<string, Measure>} */
export const MEASURES = {
  probability: {
    name: "probability",
    about: "the model's own probability of the token",
    value: (place) => place.raw,
    format: percent,
    share: (value) => value,
    ends: ["0 %", "100 %"],
    levels: [
      level(0.5, "none", "50 % or more"), level(0.1, "dotted", "10 to 50 %"),
      level(0.01, "dashed", "1 to 10 %"), level(0, "wavy", "below 1 %"),
    ],
    missing: NOT_CAPTURED,
  },
  rank: {
    name: "rank",
    about: "the token's rank in the model's own order",
    value: (place) => place.rank,
    format: (rank) => `rank ${rank}`,
    share: (rank) => (rank === 1 ? 1 : rank <= 5 ? 0.67 : rank <= 20 ? 0.33 : 0),
    buckets: true,
    levels: [
      level(21, "wavy", "21st or lower"), level(6, "dashed", "6th to 20th"),
      level(2, "dotted", "2nd to 5th"), level(1, "none", "1st"),
    ],
    missing: NOT_CAPTURED,
  },
  entropy: {
    name: "entropy",
    about: "entropy of the model's distribution before any processor",
    value: (place) => place.distribution?.entropy[0] ?? null,
    format: (nats) => `entropy ${nats.toFixed(2)} nats`,
    share: (nats) => 1 - nats / 6,
    ends: ["6 nats or more", "0 nats"],
    levels: [
      level(4, "wavy", "4 nats or more"), level(2, "dashed", "2 to 4"),
      level(0.5, "dotted", "0.5 to 2"), level(0, "none", "below 0.5"),
    ],
    missing: NOT_CAPTURED,
  },
  surprisal: {
    name: "surprisal",
    about: "surprisal of the token: one bit more is half the probability",
    value: (place) => (place.raw === null ? null : -Math.log2(place.raw) || 0),
    format: (bits) => `surprisal ${bits.toFixed(1)} bits`,
    share: (bits) => 1 - bits / 10,
    ends: ["10 bits or more", "0 bits"],
    levels: [
      level(7, "wavy", "7 bits or more"), level(3, "dashed", "3 to 7"),
      level(1, "dotted", "1 to 3"), level(0, "none", "below 1"),
    ],
    missing: NOT_CAPTURED,
  },
  green: {
    name: "green list",
    about: "whether the token was on the watermark's green list",
    value: (place) => (typeof place.notes.green === "boolean" ? (place.notes.green ? "green" : "red") : null),
    kinds: {
      green: { tint: GREEN, line: "solid", text: "on the green list" },
      red: { tint: VERMILLION, line: "dotted", text: "not on the green list" },
    },
    missing: "no run here has a watermark",
  },
  draft: {
    name: "draft verdict",
    about: "where the token came from in speculative decoding",
    value: draftOf,
    kinds: {
      accepted: { tint: SKY, line: "solid", text: "drafted, accepted" },
      copied: { tint: BLUE, line: "dashed", text: "copied from earlier text, accepted" },
      resampled: { tint: ORANGE, line: "wavy", text: "resampled after a rejection" },
      bonus: { tint: PURPLE, line: "double", text: "bonus token after an accepted draft" },
      chosen: { tint: null, line: "dotted", text: "without a draft" },
    },
    missing: "no run here uses drafts",
  },
  none: { name: "none", about: "no mark", value: () => null, kinds: {}, missing: "" },
};

/**
 * A measure by name. Names also come from links: an unknown one gives no mark.
 * @param {string} name
 */
export const measureOf = (name) => (Object.hasOwn(MEASURES, name) ? MEASURES[name] : MEASURES.none);

/**
 * The mark of a token for a measure; null where the value is not known.
 * @param {Place} place
 * @param {string} name
 * @returns {Mark | null}
 */
export function markOf(place, name) {
  const { value: read, kinds, levels = [], share, format } = measureOf(name);
  const value = read(place);
  if (value === null || value === undefined) return null;
  if (kinds) return kinds[value] ?? null;
  const line = levels.find(({ least }) => value >= least)?.line ?? "none";
  return { tint: share ? viridis(share(value)) : null, line, text: format?.(value) ?? "" };
}

/**
 * The background of a character that is split over several tokens: a stripe for each of them.
 * @param {(string | null | undefined)[]} tints
 * @param {boolean} rightToLeft
 */
export function stripes(tints, rightToLeft) {
  const size = 100 / tints.length;
  const stops = tints.map((tint, at) => {
    const colour = tint ? `color-mix(in srgb, ${tint} var(--strength), transparent)` : "transparent";
    return `${colour} ${(at * size).toFixed(1)}% ${((at + 1) * size).toFixed(1)}%`;
  });
  return `linear-gradient(to ${rightToLeft ? "left" : "right"}, ${stops.join(", ")})`;
}

/**
 * What the legend shows of a measure: a colour scale, or one sample for each mark.
 * @param {string} name
 * @param {string} channel background or underline
 * @returns {{ about: string, ends?: [string, string], stops?: string[], samples?: Mark[] }}
 */
export function legendOf(name, channel) {
  const { about, ends, levels = [], kinds, buckets, share = () => 0 } = measureOf(name);
  if (kinds) return { about, samples: Object.values(kinds) };
  if (channel === "background" && !buckets) return { about, ends, stops: VIRIDIS.map((_, i) => viridis(i / 8)) };
  const ordered = [...levels].sort((a, b) => share(b.least) - share(a.least));
  return { about, samples: ordered.map(({ line, text, least }) => ({ line, text, tint: viridis(share(least)) })) };
}

/**
 * A token's accessible name: its text, how probable the model found it, and what else the marks show.
 * @param {Place} place
 * @param {Marks} marks
 */
export function accessibleName(place, marks, name = place.text.trim() || visible(place.token)) {
  const extra = [marks.background, marks.underline]
    .filter((measure, i, all) => !["probability", "rank", "none"].includes(measure) && all.indexOf(measure) === i)
    .map((measure) => markOf(place, measure)?.text);
  const rank = place.rank === null ? null : `rank ${place.rank}`;
  const measured = place.raw !== null ? [percent(place.raw), rank] : [place.given ? null : "not captured"];
  return [name, place.given ? "given by you" : null, ...measured, ...extra].filter(Boolean).join(", ");
}
