import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { commented, type Yaml, yamlDocument } from "./yaml.ts";

const text = fc.oneof(
  fc.string({ unit: "grapheme" }),
  fc.string({ unit: fc.constantFrom("a", " ", "\n", "#", ":", "-", "\u0085", "\u007f", "'", '"') }),
  fc.constantFrom("true", "No", "null", "1e3", "0x10", "~", "- a", "a: b", "a\n\nb\n", "12:30"),
);
const values = fc.letrec<{ value: Yaml }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    text,
    fc.integer(),
    fc.boolean(),
    fc.array(tie("value"), { maxLength: 4 }),
    fc.dictionary(
      text.filter((key) => key !== "__proto__"),
      tie("value"),
      { maxKeys: 4 },
    ),
  ),
})).value;

describe("YAML that is written", () => {
  test("is read as what it was written from", () => {
    fc.assert(
      fc.property(fc.dictionary(fc.constantFrom("a", "b", "c d"), values), (document) => {
        expect(parse(yamlDocument(document))).toEqual(document);
      }),
    );
  });

  test("has comments that change nothing, and leaves out what is undefined", () => {
    const written = yamlDocument(
      {
        plain: commented("Why it is so.\n\nAnd more.", [commented("First.", { a: 1 }), "b"]),
        absent: undefined,
        block: "one\n\n  two $x\n",
      },
      "At the top.",
    );
    expect(written).toBe(`# At the top.
# Why it is so.
#
# And more.
plain:
# First.
- a: 1
- b
block: |
  one

    two $x
`);
    expect(parse(written)).toEqual({ plain: [{ a: 1 }, "b"], block: "one\n\n  two $x\n" });
  });
});
