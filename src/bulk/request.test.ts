import { describe, expect, test } from "vitest";
import type { BulkRequest } from "./bulk.ts";
import { checkBulkRequest } from "./request.ts";

const limits = { maxPayloadBytes: 1_000 };
const check = (request: unknown) => checkBulkRequest(request as BulkRequest, limits);
const refusal = (request: unknown): string => {
  try {
    check(request);
  } catch (error) {
    return (error as Error).message;
  }
  return "";
};

describe("a request of a bulk", () => {
  test("with an empty filter is refused, and says what to give", () => {
    for (const filter of [{}, { name: undefined }]) {
      expect(refusal({ action: "cancel", filter })).toContain("the filter is empty");
    }
    expect(refusal({ action: "cancel" })).toContain("must be an object");
  });

  test("with what its action doesn't take is refused", () => {
    const filter = { name: "mail" };
    expect(refusal({ action: "stop", filter })).toContain("cancel, retry, delete, signal, resume");
    expect(refusal({ action: "cancel", filter, fromStart: true })).toContain("fromStart");
    expect(refusal({ action: "retry", filter, fromStart: 1 })).toContain("true or false");
    expect(refusal({ action: "signal", filter })).toContain("signal must be its name");
    expect(refusal({ action: "signal", filter, signal: "a b" })).toContain("its name");
    expect(refusal({ action: "resume", filter, as: 0 })).toContain("as must be");
    expect(refusal({ action: "resume", filter: { at: "x" }, as: 1 })).toContain("give its name");
    expect(refusal({ action: "cancel", filter, reason: "" })).toContain("reason");
    const payload = "x".repeat(2_000);
    expect(refusal({ action: "signal", filter, signal: "go", payload })).toContain("1000");
  });

  test("with a filter of unknown fields, of hostile text or of the wrong status is refused", () => {
    const cancel = (filter: unknown) => refusal({ action: "cancel", filter });
    expect(cancel({ nme: "mail" })).toContain("did you mean `name`?");
    expect(cancel({ "payload.__proto__": "x" })).toContain("unknown option");
    expect(cancel({ name: "x".repeat(10_000) })).toContain("filter.name must be 1 to 200");
    expect(cancel({ name: "a\u0000" })).toContain("databases can store");
    expect(cancel({ name: { $ne: 1 } })).toContain("filter.name");
    expect(cancel({ status: "failed" })).toContain("pending or claimed, not failed");
    expect(cancel({ status: "gone" })).toContain("filter.status");
    expect(cancel({ setAside: false })).toContain("left out");
    expect(cancel({ group: "g2-79ef601d010c6cb2" })).toContain("only failed tasks");
    expect(refusal({ action: "retry", filter: { group: "g1-79ef601d010c6cb2" } })).toContain(
      "no group of this release",
    );
    expect(refusal({ action: "retry", filter: { setAside: true } })).toContain("set aside");
    expect(refusal({ action: "delete", filter: { state: "delayed" } })).toContain(
      "those that are delayed are pending",
    );
    expect(cancel({ state: "odd" })).toContain("filter.state");
    expect(refusal({ action: "retry", filter: { pod: "p" } })).toContain(
      "those of a pod are claimed",
    );
    expect(cancel({ session: "s", run: "r" })).toContain("session and run can't be combined");
    expect(cancel({ payload: { id: 7 } })).toContain("payload needs `name` and `sinceMs`");
    const withPayload = (payload: unknown) => cancel({ name: "a", sinceMs: 0, payload });
    expect(withPayload({})).toContain("1 to 5 paths");
    expect(withPayload(JSON.parse('{"id":7,"__proto__":1}'))).toContain("must be a path");
    expect(withPayload({ [Array.from({ length: 50 }, () => "a").join(".")]: 1 })).toContain(
      "must be a path of 1 to 5 names",
    );
    expect(withPayload({ "a'b": 1 })).toContain("must be a path");
    expect(withPayload({ id: 2 ** 53 })).toContain("within 2^53");
    expect(cancel({ sinceMs: "yesterday" })).toContain("filter.sinceMs");
    expect(cancel({ version: -1 })).toContain("filter.version must be");
    const many = Array.from({ length: 1_001 }, (_, at) => `id-${at}`);
    for (const ids of [[], many, "id", { 0: "id" }])
      expect(cancel({ ids })).toContain("filter.ids must be 1 to 1000 ids");
    for (const id of ["", 7, "x".repeat(501), "a\u0000"])
      expect(cancel({ ids: ["a", id] })).toContain("each of filter.ids must be");
    expect(cancel({ ids: ["a"], session: "s" })).toContain("session and ids can't be combined");
  });

  test("is the same text in whichever order its filter was given", () => {
    const one = check({ action: "cancel", filter: { tenant: "acme", name: "mail", run: "r" } });
    const other = check({ action: "cancel", filter: { run: "r", name: "mail", tenant: "acme" } });
    expect(JSON.stringify(one)).toBe(JSON.stringify(other));
    const ids = (...given: string[]) => check({ action: "cancel", filter: { ids: given } }).filter;
    expect(ids("b", "a", "b")).toEqual({ ids: ["a", "b"] });
  });

  test("is stored with what it needs alone", () => {
    expect(check({ action: "cancel", filter: { name: "mail", status: undefined } })).toEqual({
      action: "cancel",
      filter: { name: "mail" },
      options: {},
      payload: null,
      reason: null,
    });
    expect(check({ action: "retry", filter: { group: "g2-79ef601d010c6cb2" } }).filter).toEqual({
      group: "g2-79ef601d010c6cb2",
      status: "failed",
    });
    expect(check({ action: "signal", filter: { at: "x" }, signal: "go" }).payload).toBe("null");
  });
});
