// What a token's two marks mean: the tint behind it and the line below it.
// Knows the measures a place has, their words and their scales. Refuses to draw and to guess: what
// was not captured has no mark. Colours are safe for colour-blind eyes, and lines differ in style.
// Runs after writing.js, in the same function.

const VIRIDIS = [
  [68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141],
  [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37],
];
// Okabe and Ito's.
const ORANGE = "rgb(230 159 0)";
const SKY = "rgb(86 180 233)";
const GREEN = "rgb(0 158 115)";
const VERMILLION = "rgb(213 94 0)";
const PURPLE = "rgb(204 121 167)";
const BLUE = "rgb(0 114 178)";

function viridis(share) {
  const place = Math.min(Math.max(share, 0), 1) * (VIRIDIS.length - 1);
  const low = Math.min(Math.floor(place), VIRIDIS.length - 2);
  const mix = VIRIDIS[low].map((c, i) => Math.round(c + (VIRIDIS[low + 1][i] - c) * (place - low)));
  return `rgb(${mix.join(" ")})`;
}

// A level of a scale: the line of all values from `least` up, and the words for it.
const level = (least, line, words) => ({ least, line, words });

// What became of a draft, as the reader is told it. A word copied from the text before is a draft too.
function draftOf({ notes }) {
  if (notes.verdict === undefined) return null;
  return notes.verdict === "accepted" && notes.copied_from !== undefined ? "copied" : notes.verdict;
}

// `measure` is null where nothing is known. A scale runs from `ends[0]`, where the model was least
// sure, to `ends[1]`; `share` is where on it a value stands. `levels` are for lines, the highest first.
const CHANNELS = {
  probability: {
    name: "probability",
    about: "how probable the model itself found the token",
    measure: (place) => place.raw,
    words: percent,
    share: (value) => value,
    ends: ["0 %", "100 %"],
    levels: [
      level(0.5, "none", "50 % or more"), level(0.1, "dotted", "10 to 50 %"),
      level(0.01, "dashed", "1 to 10 %"), level(0, "wavy", "below 1 %"),
    ],
    missing: "no token here was captured",
  },
  rank: {
    name: "rank",
    about: "its rank in the model's own order",
    measure: (place) => place.rank,
    words: (rank) => `rank ${rank}`,
    // Ranks are told in four buckets: tints as far apart as viridis goes.
    share: (rank) => (rank === 1 ? 1 : rank <= 5 ? 0.67 : rank <= 20 ? 0.33 : 0),
    buckets: true,
    levels: [
      level(21, "wavy", "21st or further"), level(6, "dashed", "6th to 20th"),
      level(2, "dotted", "2nd to 5th"), level(1, "none", "1st"),
    ],
    missing: "no token here was captured",
  },
  entropy: {
    name: "entropy",
    about: "how undecided the model was at this place, before any processor",
    measure: (place) => place.distribution?.entropy[0] ?? null,
    words: (nats) => `entropy ${nats.toFixed(2)} nats`,
    share: (nats) => 1 - nats / 6,
    ends: ["6 nats or more", "0 nats"],
    levels: [
      level(4, "wavy", "4 nats or more"), level(2, "dashed", "2 to 4"),
      level(0.5, "dotted", "0.5 to 2"), level(0, "none", "below 0.5"),
    ],
    missing: "no token here was captured",
  },
  surprisal: {
    name: "surprisal",
    about: "how surprised the model was by the token: one bit more is half the probability",
    measure: (place) => (place.raw === null ? null : -Math.log2(place.raw) || 0),
    words: (bits) => `surprisal ${bits.toFixed(1)} bits`,
    share: (bits) => 1 - bits / 10,
    ends: ["10 bits or more", "0 bits"],
    levels: [
      level(7, "wavy", "7 bits or more"), level(3, "dashed", "3 to 7"),
      level(1, "dotted", "1 to 3"), level(0, "none", "below 1"),
    ],
    missing: "no token here was captured",
  },
  green: {
    name: "green list",
    about: "whether the watermark had put the token on its green list",
    measure: (place) => (place.notes.green === undefined ? null : place.notes.green ? "green" : "red"),
    kinds: {
      green: { tint: GREEN, line: "solid", words: "on the green list" },
      red: { tint: VERMILLION, line: "dotted", words: "not on it" },
    },
    missing: "no run here has a watermark",
  },
  draft: {
    name: "draft origin",
    about: "who wrote the token, where a draft was written ahead",
    measure: draftOf,
    kinds: {
      accepted: { tint: SKY, line: "solid", words: "drafted, accepted" },
      copied: { tint: BLUE, line: "dashed", words: "copied from before, accepted" },
      resampled: { tint: ORANGE, line: "wavy", words: "resampled after a rejection" },
      bonus: { tint: PURPLE, line: "double", words: "bonus after a whole draft" },
      chosen: { tint: null, line: "dotted", words: "without a draft" },
    },
    missing: "no run here writes drafts",
  },
  none: { name: "none", about: "no mark", measure: () => null, kinds: {}, missing: "" },
};

// A look may come from a link: a name nobody knows is no mark.
const channelOf = (name) => (Object.hasOwn(CHANNELS, name) ? CHANNELS[name] : CHANNELS.none);

// The mark of a place in one channel: {tint, line, words}; null where nothing is known.
function markOf(place, name) {
  const channel = channelOf(name);
  const value = channel.measure(place);
  if (value === null || value === undefined) return null;
  if (channel.kinds) return channel.kinds[value] ?? null;
  const line = channel.levels.find(({ least }) => value >= least)?.line ?? "none";
  return { tint: viridis(channel.share(value)), line, words: channel.words(value) };
}

// What the legend shows of a channel: a ramp with its ends, or one sample for each mark.
function legendOf(name, as) {
  const { about, ends, levels, kinds, buckets, share } = channelOf(name);
  if (kinds) return { about, samples: Object.values(kinds) };
  if (as === "background" && !buckets) return { about, ends, stops: VIRIDIS.map((_, i) => viridis(i / 8)) };
  const ordered = [...levels].sort((a, b) => share(b.least) - share(a.least));
  return { about, samples: ordered.map((one) => ({ ...one, tint: viridis(share(one.least)) })) };
}

// What a token is called aloud: its text, how the model saw it, and whatever else the marks say.
function spoken(place, look) {
  const name = place.text.trim() || visible(place.token);
  const extra = [look.background, look.underline]
    .filter((channel, i, all) => !["probability", "rank", "none"].includes(channel) && all.indexOf(channel) === i)
    .map((channel) => markOf(place, channel)?.words);
  const seen = place.raw !== null;
  const rank = place.rank === null ? null : `rank ${place.rank}`;
  const measure = seen ? [percent(place.raw), rank] : [place.given ? null : "not captured"];
  return [name, place.given ? "given by you" : null, ...measure, ...extra].filter(Boolean).join(", ");
}
