import { describe, expect, test } from "vitest";
import { contextOfHeaders, contextOfText, textOfContext } from "./trace-context.ts";

const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";
const spanId = "00f067aa0ba902b7";
const parent = `00-${traceId}-${spanId}-01`;

describe("a trace context", () => {
  test.each([
    { form: "with a parent alone", text: parent, flags: 1, state: undefined },
    {
      form: "that isn't sampled",
      text: `00-${traceId}-${spanId}-00`,
      flags: 0,
      state: undefined,
    },
    {
      form: "with a state",
      text: `${parent} congo=t61rcWkgMzE,rojo=00f067 aa0ba902b7`,
      flags: 1,
      state: "congo=t61rcWkgMzE,rojo=00f067 aa0ba902b7",
    },
  ])("$form is read as it was written", ({ text, flags, state }) => {
    const context = contextOfText(text);
    expect(context).toEqual({ traceId, spanId, flags, state });
    expect(textOfContext(context!)).toBe(text);
  });

  test("of a later version is read for what is known of it", () => {
    const later = contextOfText(`cc-${traceId}-${spanId}-01-what-the-future-brings`);
    expect(later).toEqual({ traceId, spanId, flags: 1, state: undefined });
    expect(textOfContext(later!)).toBe(parent);
  });

  test.each([
    null,
    undefined,
    42,
    "",
    "nonsense",
    parent.slice(1),
    parent.toUpperCase(),
    `${parent}-more`,
    `ff-${traceId}-${spanId}-01`,
    `00-${"0".repeat(32)}-${spanId}-01`,
    `00-${traceId}-${"0".repeat(16)}-01`,
    `01-${traceId}-${spanId}-01-${"x".repeat(10_000)}`,
  ])("that isn't valid is none: %j", (text) => {
    expect(contextOfText(text)).toBeUndefined();
  });

  test.each([`${"a=b,".repeat(200)}c=d`, "a=b\nc=d", "ключ=1", "  "])(
    "goes on without a state that isn't valid: %j",
    (tracestate) => {
      expect(contextOfHeaders({ traceparent: parent, tracestate })).toMatchObject({
        traceId,
        state: undefined,
      });
    },
  );

  test("never takes more bytes in a row than its limit", () => {
    const tracestate = `a=${"b".repeat(510)}`;
    const text = textOfContext(contextOfHeaders({ traceparent: parent, tracestate })!);
    expect(text).toHaveLength(parent.length + 1 + 512);
  });
});
