// Has Gradio's page hear every answer. It hears them from one stream, which the server ends when it has
// answered everything. What is asked for just then the page takes to be answered there, and waits for
// ever: so such a stream is taken up again before the page hears of its end. Knows two of Gradio's
// addresses and two of its messages. Refuses to know what is asked and answered.
{
  const ASK = "/gradio_api/queue/join";
  const HEAR = "/gradio_api/queue/data";
  const HEAD = /^data: \{"msg":"(\w+)","event_id":(?:"([^"]*)"|null)/;
  const PATIENCE = 1000; // milliseconds for the page to notice an end it was told of

  const ask = globalThis.fetch.bind(globalThis);
  const open = new Set(); // what was asked for and has no answer yet
  const early = new Set(); // what was answered before it was known to be asked for
  let ended = Promise.resolve(); // when the page has noticed the end of its stream

  const turn = (id, one, other) => one.delete(id) || other.add(id);

  // The page learns that something is asked for only where it knows whether its stream goes on.
  async function asked(answer) {
    const { event_id: id } = await answer.json().catch(() => ({}));
    if (id) turn(id, early, open);
    await ended;
  }

  async function* messages(request) {
    const answer = await ask(request);
    if (!answer.ok) throw answer;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = "", read = await reader.read(); !read.done; read = await reader.read()) {
      const whole = (rest + read.value).split("\n\n");
      rest = whole.pop();
      yield* whole;
    }
  }

  function noticed(request) {
    return new Promise((go) => {
      request.signal.addEventListener("abort", go);
      setTimeout(go, PATIENCE);
    });
  }

  async function tell(page, request) {
    for await (const message of messages(request)) {
      const [, kind, id] = HEAD.exec(message) ?? [];
      if (kind === "process_completed") turn(id, open, early);
      const ends = kind === "close_stream";
      if (ends && open.size) return tell(page, request);
      if (ends) ended = noticed(request);
      await page.write(`${message}\n\n`);
      if (ends) return;
    }
  }

  function hear(request) {
    const { readable, writable } = new TextEncoderStream();
    const page = writable.getWriter();
    const done = tell(page, request).then(() => page.close());
    done.catch((error) => page.abort(error)).catch(() => {}); // the page may have left
    return new Response(readable, { headers: { "Content-Type": "text/event-stream" } });
  }

  globalThis.fetch = async (what, how) => {
    const { pathname } = new URL(what.url ?? what, location.href);
    if (pathname.endsWith(HEAR)) return hear(new Request(what, how));
    const answer = await ask(what, how);
    if (pathname.endsWith(ASK)) await asked(answer.clone());
    return answer;
  };
}
