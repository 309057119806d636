import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { decideGroups, standingOf, type StoredGroup } from "./groups.ts";
import { openIndex } from "./index.ts";

const hourMs = 3_600_000;
const row = (fields: Partial<StoredGroup> = {}): StoredGroup => ({
  group: "g",
  state: "open",
  stateAtMs: null,
  untilMs: null,
  firstAtMs: 10,
  cameBackAtMs: null,
  updatedAtMs: 10,
  nowMs: 1_000,
  ...fields,
});
const seen = { group: "g", firstAtMs: 50, lastAtMs: 600 };
const failedAt =
  (...times: number[]) =>
  (_: string, afterMs: number) =>
    times.find((atMs) => atMs > afterMs);

describe("how a group stands", () => {
  test.each<[string, Partial<StoredGroup>, object]>([
    ["open", {}, { state: "open", stateAtMs: null, cameBackAtMs: null }],
    [
      "open since it came back",
      { stateAtMs: 700, cameBackAtMs: 600 },
      { state: "open", stateAtMs: 700, cameBackAtMs: 600 },
    ],
    [
      "resolved after its last failure",
      { state: "resolved", stateAtMs: 600 },
      { state: "resolved", stateAtMs: 600, cameBackAtMs: null },
    ],
    [
      "resolved before a failure",
      { state: "resolved", stateAtMs: 599 },
      { state: "open", stateAtMs: 600, cameBackAtMs: 600 },
    ],
    [
      "ignored before two failures",
      { state: "ignored", stateAtMs: 100 },
      { state: "open", cameBackAtMs: 500 },
    ],
    [
      "ignored until a time that hasn't come",
      { state: "ignored", stateAtMs: 100, untilMs: 1_001 },
      { state: "ignored", untilMs: 1_001, cameBackAtMs: null },
    ],
    [
      "ignored until a time that has come",
      { state: "ignored", stateAtMs: 100, untilMs: 1_000 },
      { state: "open", stateAtMs: 1_000, untilMs: null, cameBackAtMs: null },
    ],
  ])("%s", (_, fields, standing) => {
    expect(standingOf(row(fields), seen, failedAt(500, 600))).toMatchObject({
      ...standing,
      firstSeenMs: 10,
    });
  });

  test("without a row it is open, since the first failure that is there", () => {
    expect(standingOf(undefined, seen, failedAt())).toMatchObject({
      state: "open",
      firstSeenMs: 50,
    });
  });
});

describe("what the leader writes of groups", () => {
  const decide = (stored: StoredGroup | undefined) =>
    decideGroups([seen], new Map(stored ? [["g", stored]] : []), failedAt(500, 600));

  test("is a row for a new one, and nothing for one that is known", () => {
    expect(decide(undefined)).toEqual({ fresh: [seen], returned: [], kept: [] });
    expect(decide(row())).toEqual({ fresh: [], returned: [], kept: [] });
  });

  test("opens one that failed after it was resolved, with the state that was seen", () => {
    expect(decide(row({ state: "resolved", stateAtMs: 100 })).returned).toEqual([
      { group: "g", stateAtMs: 100, backAtMs: 500 },
    ]);
    expect(decide(row({ state: "resolved", stateAtMs: 600 })).returned).toEqual([]);
    expect(decide(row({ state: "ignored", stateAtMs: 100, untilMs: 2_000 })).returned).toEqual([]);
  });

  test("keeps one that still fails, once a day", () => {
    expect(decide(row({ nowMs: 10 + 24 * hourMs })).kept).toEqual(["g"]);
    expect(decide(row({ nowMs: 9 + 24 * hourMs })).kept).toEqual([]);
  });
});

describe("the index of failed tasks", () => {
  const failed = (taskId: string, group: string, failedAtMs: number, tenant = "default") => ({
    taskId,
    name: "mail",
    tenant,
    group,
    code: "internal",
    message: "boom",
    failures: 1,
    deaths: 0,
    failedAtMs,
    redriveId: null,
    token: 1,
  });

  test("counts failures by the hour, of the groups and the tenant that are wanted", () => {
    const index = openIndex();
    const endMs = 100 * hourMs;
    index.put([
      failed("1", "g", endMs - 1),
      failed("2", "g", endMs - hourMs),
      failed("3", "g", endMs - hourMs - 1, "acme"),
      failed("4", "g", endMs - 24 * hourMs),
      failed("5", "g", endMs - 24 * hourMs - 1),
      failed("6", "g", endMs),
      failed("7", "other", endMs - 1),
    ]);
    const trend = [...index.trends(["g"], { endMs }).get("g")!];
    expect(trend).toHaveLength(24);
    expect([trend[0], trend[22], trend[23]]).toEqual([1, 1, 2]);
    expect(trend.reduce((sum, each) => sum + each, 0)).toBe(4);
    const ofAcme = index.trends(["g", "none"], { endMs, tenant: "acme" });
    expect([ofAcme.get("g")![22], ofAcme.get("none")!.length]).toEqual([1, 24]);
    index.drop(["1"]);
    expect(index.trends(["g"], { endMs }).get("g")![23]).toBe(1);
    index.close();
  });

  test("gives groups with new failures once, and again if they are given back", () => {
    const index = openIndex();
    index.put([failed("1", "g", 10), failed("2", "h", 20), failed("3", "g", 30)]);
    expect(index.takeTouched(1)).toEqual(["g"]);
    expect(index.takeTouched(9)).toEqual(["h"]);
    expect(index.takeTouched(9)).toEqual([]);
    index.touch(["h"]);
    index.put([failed("4", "g", 40)]);
    expect(index.takeTouched(9).toSorted()).toEqual(["g", "h"]);
    expect(index.times("g")).toEqual({ firstAtMs: 10, lastAtMs: 40 });
    expect(index.times("none")).toBeUndefined();
    expect([index.firstAfter("g", 10), index.firstAfter("g", 40)]).toEqual([30, undefined]);
    index.close();
  });

  test("gives the groups of a file that an earlier process has left", () => {
    const folder = mkdtempSync(join(tmpdir(), "flotilla-groups-"));
    const path = join(folder, "failed.db");
    const left = openIndex(path);
    left.put([failed("1", "g", 10)]);
    left.close();
    const index = openIndex(path);
    expect(index.takeTouched(9)).toEqual(["g"]);
    expect(index.takeTouched(9)).toEqual([]);
    index.close();
    rmSync(folder, { recursive: true, force: true });
  });
});
