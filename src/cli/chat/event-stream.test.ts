import { expect, test } from "vitest";
import { parseEventStream } from "./chat.ts";

const text =
  ':\n\nid: 3\nevent: entries\ndata: {"a":"ü👩"}\n\n: alive\n\nevent: state\r\ndata: 1\r\ndata: 2\r\n\r\ndata:x\n\nevent: cut\ndata: off';
const events = [
  { type: "entries", data: '{"a":"ü👩"}' },
  { type: "state", data: "1\n2" },
  { type: "message", data: "x" },
];

async function read(pieces: Uint8Array[]) {
  const found = [];
  for await (const event of parseEventStream(pieces)) found.push(event);
  return found;
}

test("events are the same however the bytes are cut, and one that isn't whole is none", async () => {
  const bytes = new TextEncoder().encode(text);
  expect(await read([bytes])).toEqual(events);
  for (let size = 1; size < 9; size++) {
    const pieces: Uint8Array[] = [];
    for (let at = 0; at < bytes.length; at += size) pieces.push(bytes.slice(at, at + size));
    expect(await read(pieces)).toEqual(events);
  }
});
