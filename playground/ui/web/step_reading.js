// What a step's distribution says: candidates in one order, stage by stage, and who cut them.
// Knows the numbers of one place. Refuses to draw, and to fill in what was not captured.

// Every listed candidate, the model's favourites first, with its probability before and after each
// processor. The chosen token may not be among those listed: then only its ends are known.
function candidatesOf(place) {
  const { distribution, tokenId } = place;
  const stages = distribution.processors.length;
  const rows = distribution.candidates.map(([id, token, raw, final, ...between]) => ({
    id, token, listed: true, path: stages ? [raw, ...between, final] : [raw],
  }));
  if (!rows.some((row) => row.id === tokenId) && place.raw !== null) {
    const between = Array(Math.max(stages - 1, 0)).fill(null);
    const ends = stages ? [place.raw, ...between, place.final ?? 0] : [place.raw];
    rows.push({ id: tokenId, token: place.token, listed: false, path: ends });
  }
  for (const row of rows) {
    row.chosen = row.id === tokenId;
    row.raw = row.path[0];
    row.final = row.path.at(-1);
    const cutAt = row.path.findIndex((probability, at) => at > 0 && probability === 0);
    // Of a token that is not listed nobody knows which processor cut it, unless there is only one.
    row.cutBy = cutAt < 1 || (!row.listed && stages > 1) ? null : distribution.processors[cutAt - 1];
    row.cut = row.final === 0;
  }
  return rows.sort((one, other) => other.raw - one.raw);
}

// One processor: what went in, what came out, and its cut-off where a line can tell it.
function stagesOf(distribution, rows) {
  return distribution.processors.map((name, at) => {
    const changes = rows.map((row) => {
      const [before, after] = [row.path[at], row.path[at + 1]];
      const fate =
        before === null || after === null ? "unknown" : before === 0 ? "gone" : after === 0 ? "cut" : "kept";
      return { ...row, before, after, fate };
    });
    const cut = changes.filter((row) => row.fate === "cut");
    const cutoff = distribution.cutoffs[at] ?? null;
    return {
      name, at, rows: changes, cutoff, cutHere: cut.length,
      keptAfter: distribution.keptAfter[at] ?? null,
      keptBefore: at ? distribution.keptAfter[at - 1] ?? null : sizeOf(distribution),
      // Some processors cut single tokens or the too probable: no line parts those from the others.
      line: cutoff !== null && cut.every((row) => row.before < cutoff),
      touched: changes.some((row) => row.fate === "kept" && row.before !== row.after),
    };
  });
}

// How many tokens the model chooses from, where the numbers tell: nothing was cut up to a count.
function sizeOf(distribution) {
  if (!distribution.processors.length) return distribution.kept;
  const [first] = distribution.keptAfter;
  return first !== undefined && distribution.cutoffs[0] === null && first > 0 ? first : null;
}

const massOf = (distribution) => Math.min(1, distribution.candidates.reduce((sum, [, , raw]) => sum + raw, 0));

// How long a bar is, from 0 to 1. Logarithms reach down to a thousandth of a percent.
const FLOOR = 1e-5;
function barScale(rows, logarithmic) {
  if (logarithmic) {
    return (probability) => (probability > FLOOR ? 1 - Math.log(probability) / Math.log(FLOOR) : 0);
  }
  const top = Math.max(FLOOR, ...rows.flatMap((row) => row.path.filter((probability) => probability !== null)));
  return (probability) => Math.min(1, probability / top);
}
