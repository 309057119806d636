import { expect, test } from "vitest";
import { storedText } from "../../../store/codec/codec.ts";
import { encryption } from "../../../store/codec/encryption.ts";
import { createBodies } from "./bodies.ts";

const textWith = (byte: number) =>
  storedText(encryption({ keys: { k: Buffer.alloc(32, byte).toString("base64") } }), () => {});
const plain = Buffer.from('{"secret":1}');

test("are as they were made without a codec", () => {
  const { bodyOf, opened } = createBodies(undefined);
  expect(bodyOf(0, "r1", () => plain)).toBe(plain);
  expect(opened(plain)).toBe(plain);
});

test("hold nothing in plain text with one, and are read by it", () => {
  const { bodyOf, opened } = createBodies(textWith(1));
  const body = bodyOf(0, "r1", () => plain);
  expect(Buffer.from(body).toString()).not.toContain("secret");
  expect(Buffer.from(opened(body)).toString()).toBe('{"secret":1}');
  // What was stored before there was a codec.
  expect(opened(plain)).toBe(plain);
});

test("of a message that is sent again are the same bytes, and of another others", () => {
  const { bodyOf } = createBodies(textWith(1));
  const first = bodyOf(0, "r1", () => plain);
  expect(bodyOf(0, "r1", () => plain)).toBe(first);
  expect(bodyOf(1, "r1", () => plain)).not.toEqual(first);
  expect(bodyOf(0, "r2", () => plain)).not.toEqual(first);
});

test("can't be read without the codec that wrote them, and say so", () => {
  const body = createBodies(textWith(1)).bodyOf(0, "r1", () => plain);
  for (const other of [undefined, textWith(2)]) {
    expect(() => createBodies(other).opened(body)).toThrow(/configure the codec that wrote it/);
  }
});
