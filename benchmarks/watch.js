// What a benchmark sees of the page: when a step that the server wrote was shown, and which steps were
// never the newest in a frame. Evaluated in the page once it is ready; leaves `watched` behind.

(async () => {
  const link = document.querySelector("link[rel=modulepreload][href$='compare/web/store.js']");
  const { store } = await import(link.href);
  const channel = new MessageChannel();
  const seen = {};
  const clear = () => Object.assign(seen, {
    run: null, first: null, stop: null, over: null, // moments
    tokens: 0, delays: [], ticks: new Set(), newest: new Set(), gaps: 0, screens: 0, frames: [], coming: [],
  });
  clear();

  const steps = () => [...store.runs.values()].flatMap((run) => [...run.steps.values()]);
  const reached = () => Math.max(0, ...steps().map(({ tick }) => tick));

  // Steps that the server wrote after Stop was pressed. A real model does not record when it wrote them:
  // there, the steps that arrived after the click count.
  const further = () => {
    const timed = steps().filter(({ notes }) => notes.written);
    if (!timed.length) return reached() - seen.reached;
    return new Set(timed.filter(({ notes }) => notes.written * 1000 > seen.stopped).map(({ tick }) => tick)).size;
  };

  addEventListener("click", ({ target }) => {
    if (target.closest("#run")) seen.run = performance.now();
    if (target.closest("#stop")) [seen.stop, seen.stopped, seen.reached] = [performance.now(), Date.now(), reached()];
  }, true);

  // After the frame that shows the steps, layout and paint included.
  channel.port1.onmessage = () => {
    const now = Date.now();
    if (seen.tokens && seen.first === null) seen.first = performance.now();
    const steps = seen.coming.splice(0);
    for (const { notes } of steps) if (notes.written) seen.delays.push(now - notes.written * 1000);
    for (const { tick } of steps) seen.ticks.add(tick);
    if (steps.length) seen.newest.add(Math.max(...steps.map(({ tick }) => tick)));
  };

  let requested = false;
  store.subscribe(({ kind, steps }) => {
    if (kind === "pace" && store.pace === "over") seen.over = performance.now();
    if (kind !== "steps") return;
    seen.tokens += steps.length;
    seen.coming.push(...steps);
    if (!requested) requestAnimationFrame(() => { requested = false; channel.port2.postMessage(null); });
    requested = true;
  });

  const receive = store.receive;
  store.receive = function (value) {
    const { feed, from } = JSON.parse(value.split("\n", 1)[0] || "{}");
    seen.screens++;
    if (from > (feed === store.feed ? store.read : 0)) seen.gaps++;
    return receive.call(store, value);
  };

  let last = performance.now();
  const frame = (now) => {
    seen.frames.push(now - last);
    last = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);

  globalThis.watched = {
    clear,
    get tokens() { return seen.tokens; },
    times: () => ({ first_token_ms: seen.first - seen.run, stop_ms: seen.over - seen.stop, steps_after_stop: further() }),
    stream: () => ({
      delays: seen.delays,
      known: steps().length,
      coalesced: seen.ticks.size - seen.newest.size,
      gaps: seen.gaps,
      screens: seen.screens,
      longest_frame_ms: Math.max(...seen.frames),
      first_token_ms: seen.first - seen.run,
    }),
  };
})();
