import { describe, expect, test } from "vitest";
import type { TaskFacts } from "../api.ts";
import { possibleActs, remarkOf } from "./remark.ts";

const nowMs = 1_000_000;
const pending = {
  status: "pending",
  setAside: null,
  paused: false,
  noWorker: false,
  waitsFor: [],
  blockedBy: null,
  throttledBy: null,
  runAtMs: 0,
  failures: 0,
  error: null,
  cancelRequested: false,
  flowVersion: null,
};
const task = (more: object) => ({ ...pending, ...more }) as unknown as TaskFacts;

describe("the remark on a task", () => {
  test.each([
    [{ setAside: { message: "its input has changed" } }, "set aside: its input has changed"],
    [{ paused: true, noWorker: true }, "its name is paused"],
    [{ noWorker: true }, "no live pod has a handler for it"],
    [{ waitsFor: ["a", "b"] }, "depends on 2 tasks"],
    [{ blockedBy: "tenant/acme" }, "at the limit tenant/acme"],
    [
      { throttledBy: { name: "openai", ahead: 12, aboutMs: 42_000 } },
      "throttled by openai, 12 ahead, about 42 s",
    ],
    [{ throttledBy: { name: "api", ahead: 0, aboutMs: null } }, "throttled by api, 0 ahead"],
    [{ runAtMs: nowMs + 60_000 }, "due in 1 min"],
    [
      { runAtMs: nowMs + 2_000, failures: 1, error: { message: "broken" } },
      "due in 2.0 s, retries after broken",
    ],
    [{}, undefined],
    [{ status: "claimed", failures: 2 }, "attempt 3"],
    [{ status: "claimed", cancelRequested: true }, "is asked to stop"],
    [{ status: "failed", error: { message: "no such user" } }, "no such user"],
    [{ status: "completed" }, undefined],
    [{ status: "cancelled" }, undefined],
  ])("%j says %s", (more, text) => {
    expect(remarkOf(task(more), nowMs)?.text).toBe(text);
  });
});

describe("what may be done to a task", () => {
  test("follows from its status", () => {
    const acts = (more: object) =>
      Object.entries(possibleActs(task(more))).flatMap(([act, isIt]) => (isIt ? [act] : []));
    expect(acts({})).toEqual(["cancel"]);
    expect(acts({ setAside: { message: "" } })).toEqual(["cancel", "resume"]);
    expect(acts({ status: "claimed" })).toEqual(["cancel"]);
    expect(acts({ status: "claimed", cancelRequested: true })).toEqual([]);
    expect(acts({ status: "failed" })).toEqual(["retry"]);
    expect(acts({ status: "cancelled" })).toEqual(["retry"]);
    expect(acts({ status: "failed", flowVersion: 1 })).toEqual([]);
    expect(acts({ status: "completed" })).toEqual([]);
  });
});
