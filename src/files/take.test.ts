import { expect, test } from "vitest";
import { takeFiles } from "./take.ts";

const photo = { type: "file", mediaType: "image/png", url: "data:image/png;base64,YWJj" };

test.each([[null], [undefined], ["text"], [7], [[]]])(
  "what is no part, such as %o, is left to the check of messages",
  (part) => {
    expect(takeFiles([part])).toBeUndefined();
    const taken = takeFiles([part, photo])!;
    expect(taken.parts[0]).toBe(part);
    expect(taken.inline).toMatchObject([{ mediaType: "image/png" }]);
  },
);
