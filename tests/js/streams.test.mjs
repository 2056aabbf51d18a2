// Every answer is heard: questions and streams as Gradio's page and server have them.

import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./loading.mjs";

const HERE = "http://here/gradio_api/queue/";

// A page and its server: `ask` is answered with an event's id, `tell` writes to a stream of the server's.
function page({ status = 200 } = {}) {
  const streams = [];
  const world = {
    fetch: async (what) => {
      if (typeof what === "string") return Response.json({ event_id: new URL(what).hash.slice(1) });
      return new Response(new ReadableStream({ start: (stream) => streams.push(stream) }), { status });
    },
  };
  load(["streams.js"], [], { globalThis: world, location: { href: HERE } });
  const leaves = new AbortController();
  const decoder = new TextDecoder();
  let reader;
  return {
    streams,
    leaves,
    ask: (id) => world.fetch(`${HERE}join#${id}`),
    open: async () => {
      const answer = await world.fetch(new Request(`${HERE}data?session_hash=x`, { signal: leaves.signal }));
      reader = answer.body.getReader();
    },
    tell: (stream, msg, event_id = null) =>
      streams[stream].enqueue(new TextEncoder().encode(`data: ${JSON.stringify({ msg, event_id })}\n\n`)),
    hear: async () => JSON.parse(decoder.decode((await reader.read()).value).slice("data: ".length)),
  };
}

const moment = () => new Promise((go) => setTimeout(go, 20));

async function heard(here, ...expected) {
  for (const [msg, event_id = null] of expected) assert.deepEqual(await here.hear(), { msg, event_id });
}

test("what is asked for as the stream ends is answered by the next one, and the page hears of no end", async () => {
  const here = page();
  await here.ask("a");
  await here.open();
  await here.ask("b");
  await moment();
  here.tell(0, "process_completed", "a");
  here.tell(0, "close_stream");
  await heard(here, ["process_completed", "a"]);
  await moment();
  here.tell(1, "process_completed", "b");
  here.tell(1, "close_stream");
  await heard(here, ["process_completed", "b"], ["close_stream"]);
});

test("what is asked for after the end was told is known to the page when it has noticed the end", async () => {
  const here = page();
  await here.ask("a");
  await here.open();
  await moment();
  here.tell(0, "process_completed", "a");
  here.tell(0, "close_stream");
  await heard(here, ["process_completed", "a"], ["close_stream"]);
  let known = false;
  const asking = here.ask("b").then(() => (known = true));
  await moment();
  assert.equal(known, false);
  here.leaves.abort();
  await asking;
});

test("an answer may come before the page knows what was asked for", async () => {
  const here = page();
  await here.open();
  await moment();
  here.tell(0, "process_completed", "a");
  await heard(here, ["process_completed", "a"]);
  await here.ask("a");
  here.tell(0, "close_stream");
  await heard(here, ["close_stream"]);
  assert.equal(here.streams.length, 1);
});

test("a message that comes in pieces is told whole", async () => {
  const here = page();
  await here.ask("a");
  await here.open();
  await moment();
  const whole = new TextEncoder().encode('data: {"msg":"process_completed","event_id":"a","output":"é"}\n\n');
  for (const byte of whole) here.streams[0].enqueue(new Uint8Array([byte]));
  assert.deepEqual(await here.hear(), { msg: "process_completed", event_id: "a", output: "é" });
});

test("a stream that is refused is an error", async () => {
  const here = page({ status: 404 });
  await here.open();
  await assert.rejects(here.hear());
});
