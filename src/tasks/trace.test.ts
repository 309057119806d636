import type { Span } from "@opentelemetry/api";
import { expect, test } from "vitest";
import { failSpan } from "./trace.ts";

test("an error is recorded on its span without secrets", () => {
  const recorded: unknown[] = [];
  const note = (...given: unknown[]) => void recorded.push(given);
  const span = {
    isRecording: () => true,
    setAttribute: note,
    recordException: note,
    setStatus: note,
  };
  const message = "login failed with Bearer abc123def456 at postgres://ada:hunter2@db/shop";
  failSpan(span as unknown as Span, {
    code: "handler_failed",
    message,
    stack: `Error: ${message}\n  at a.ts`,
  });
  const text = JSON.stringify(recorded);
  expect(recorded).toHaveLength(3);
  expect(text).toContain(
    "login failed with Bearer [redacted] at postgres://ada:[redacted]@db/shop",
  );
  expect(text).not.toMatch(/abc123def456|hunter2/);
});
