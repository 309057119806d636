import type { Span } from "@opentelemetry/api";
import { expect, test } from "vitest";
import { createRedactor, shareRedactor } from "../redaction/redactor.ts";
import { failSpan } from "./trace.ts";

function recordingSpan() {
  const recorded: unknown[] = [];
  const note = (...given: unknown[]) => void recorded.push(given);
  const span = {
    isRecording: () => true,
    setAttribute: note,
    recordException: note,
    setStatus: note,
  };
  return { recorded, span: span as unknown as Span };
}

test("an error is recorded on its span without secrets", () => {
  const { recorded, span } = recordingSpan();
  const message = "login failed with Bearer abc123def456 at postgres://ada:hunter2@db/shop";
  failSpan(span, {
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

test("an error is recorded without what the configs in use hide, and no longer once they aren't", () => {
  const ends = [
    shareRedactor(createRedactor([/\bMINE-\d{6}\b/])),
    shareRedactor(createRedactor([/\bYOURS-\d{6}\b/])),
  ];
  const shown = () => {
    const { recorded, span } = recordingSpan();
    const message = "no MINE-123456, no YOURS-123456, no Bearer abc123def456";
    failSpan(span, { code: "handler_failed", message, stack: `Error: ${message}` });
    return JSON.stringify(recorded);
  };
  expect(shown()).not.toMatch(/MINE-123456|YOURS-123456|abc123def456/);
  ends[0]!();
  expect(shown()).toContain("no MINE-123456, no [redacted], no Bearer [redacted]");
  ends[1]!();
  expect(shown()).toContain("no MINE-123456, no YOURS-123456, no Bearer [redacted]");
});
