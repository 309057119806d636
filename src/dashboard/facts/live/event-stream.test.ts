import { expect, test } from "vitest";
import { ExactNumber } from "../exact-json.ts";
import { createEventReader } from "./event-stream.ts";

const text = [
  ":\n\n",
  'id: 7\nevent: entries\ndata: {"entries":["é😀"]}\n\n',
  'event: state\r\ndata:{"id":12345678901234567890}\r\n\r\n',
  "event: broken\ndata: {\n\n",
  "data: []\ndata:\n\n",
  "event: cut\ndata: {}",
].join("");

test("server-sent events are read wherever the network cuts them", () => {
  const bytes = new TextEncoder().encode(text);
  for (let size = 1; size <= bytes.length; size++) {
    const reader = createEventReader();
    const events = [];
    for (let at = 0; at < bytes.length; at += size)
      events.push(...reader.push(bytes.subarray(at, at + size)));
    expect(events).toEqual([
      { type: "entries", value: { entries: ["é😀"] } },
      { type: "state", value: { id: new ExactNumber("12345678901234567890") } },
      { type: "message", value: [] },
    ]);
  }
});
