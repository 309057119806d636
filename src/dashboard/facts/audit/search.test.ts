import { describe, expect, test } from "vitest";
import { auditQuery, auditSearchIn, localMinuteText, momentOf } from "./search.ts";

describe("the filter of the audit", () => {
  test("is what the address says, and nothing that it can't be", () => {
    const since = "2026-11-18T00:00:00.000Z";
    expect(auditSearchIn({ actor: "key/ops", since, cursor: "1.a" })).toEqual({
      actor: "key/ops",
      since,
      cursor: "1.a",
    });
    const bad = {
      actor: "x".repeat(10_000),
      action: "",
      subject: 5,
      since: "yesterday",
      until: "-000001-01-01T00:00:00Z",
      payload: "y",
      ["__proto__"]: "z",
    };
    expect(auditSearchIn(bad)).toEqual({});
  });

  test("becomes the query of the route, with times as milliseconds", () => {
    const search = auditSearchIn({ subject: "mail", since: "2026-11-18T00:00:00Z" });
    expect(auditQuery(search)).toEqual({
      subject: "mail",
      sinceMs: Date.parse("2026-11-18T00:00:00Z"),
    });
    expect(auditQuery({})).toEqual({});
  });

  test("shows a time as the field of the browser has it, and takes it back", () => {
    const text = "2026-11-18T09:05:00.000Z";
    const shown = localMinuteText(text);
    expect(shown).toMatch(/^2026-11-1[789]T\d\d:\d\d$/);
    expect(momentOf(shown)).toBe(Date.parse(text));
    expect(localMinuteText(undefined)).toBe("");
    expect(localMinuteText("never")).toBe("");
  });
});
