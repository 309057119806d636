import { describe, expect, test } from "vitest";
import type { ReferredFiles } from "../steps/model-calls.ts";
import { withBytes, withReferences } from "./files.ts";

const url = "stored:1";
const bytes = Buffer.from("bytes");
let reads = 0;
const files: ReferredFiles = {
  pattern: /^stored:\d+$/,
  async read(address) {
    reads++;
    return address === "stored:2" ? Buffer.alloc(20 * 1024 * 1024) : bytes;
  },
};
const asked = (...content: object[]) => ({
  temperature: 1,
  prompt: [
    { role: "system", content: "be kind" },
    { role: "user", content: [{ type: "text", text: "look" }, ...content] },
  ],
});

describe("files in prompts", () => {
  test("become bytes, in the form of the version that the part is of", async () => {
    const given = asked(
      { type: "file", mediaType: "image/png", data: new URL(url) },
      { type: "file", mediaType: "image/png", data: { type: "url", url: new URL(url) } },
    );
    reads = 0;
    expect(await withBytes(given as never, files)).toEqual(
      asked(
        { type: "file", mediaType: "image/png", data: bytes },
        { type: "file", mediaType: "image/png", data: { type: "data", data: bytes } },
      ),
    );
    expect(reads).toBe(1);
  });

  test("stay as they are if they aren't stored here", async () => {
    const given = asked(
      { type: "file", data: new URL("https://example.com/a.png") },
      { type: "file", data: "c3RvcmVkOjE=" },
      { type: "file", data: bytes },
      { type: "text", text: url },
    );
    expect(await withBytes(given as never, files)).toBe(given);
    const without = { abortSignal: undefined };
    expect(await withBytes(without, files)).toBe(without);
  });

  test("that are too many for one call are refused", async () => {
    const large = { type: "file", data: new URL("stored:2") };
    await expect(withBytes(asked(large, large) as never, files)).rejects.toMatchObject({
      code: "payload_too_large",
    });
  });

  test("are named to the AI SDK beside what the model takes itself", async () => {
    const own = { "image/*": [/^https:/], "*/*": [/^gs:/] };
    expect(await withReferences(Promise.resolve(own), files)).toEqual({
      "image/*": [/^https:/],
      "*/*": [/^gs:/, files.pattern],
    });
    expect(await withReferences(undefined, files)).toEqual({ "*/*": [files.pattern] });
  });
});
