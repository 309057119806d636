import { describe, expect, test } from "vitest";
import { parked } from "../sql/task-state.ts";
import type { CapablePod, Standing, WhyKnown } from "./evidence.ts";
import { decideVerdict } from "./verdict.ts";

const standing: Standing = {
  taskId: "task-1",
  name: "mail",
  tenant: "default",
  status: "pending",
  isRun: false,
  nowMs: 1_000,
  parked: parked.ready,
  runAtMs: 0,
  updatedAtMs: 0,
  scheduledAtMs: null,
  failures: 0,
  maxAttempts: null,
  snoozes: 0,
  deaths: 0,
  cancelRequested: false,
  claim: null,
  waitsForSlot: false,
  signal: null,
  waitsForChildren: false,
  isSleeping: false,
  wasClaimed: false,
  setAside: null,
  version: null,
};
const known: WhyKnown = {
  standing,
  lateness: null,
  dependencies: { total: 0, open: 0, failed: 0, tasks: [] },
  pauses: [],
  noWorker: null,
  isPodUp: true,
  limits: [],
  throttledBy: null,
  pods: [],
  queued: { ahead: 0, isMore: false },
};
const pause = { name: "mail", sinceMs: 5, reason: null, by: null };
const noWorker = { name: "mail", version: null, livePods: 0, pods: [] };
const limit = { scope: "key/mail/a", limit: 1, running: 1, blocked: 0, holders: [] };
const throttledBy = {
  name: "api",
  key: "",
  limit: 1,
  inFlight: 1,
  waiting: 1,
  ahead: 0,
  aboutMs: null,
};
const fullPod: CapablePod = { podId: "pod-1", held: 2, holds: 2, reasons: [] };

const verdictOn = (more: Partial<WhyKnown>, row: Partial<Standing> = {}) =>
  decideVerdict({ ...known, ...more, standing: { ...standing, ...row } }).reasons;
const codesOf = (more: Partial<WhyKnown>, row: Partial<Standing> = {}) =>
  verdictOn(more, row).map(({ code }) => code);

describe("a verdict", () => {
  test("has a reason whatever the row says, with a sentence, and a command where there is advice", () => {
    for (const state of Object.values(parked)) {
      for (const isRun of [true, false]) {
        for (const deaths of [0, 3]) {
          const reasons = verdictOn({}, { parked: state, isRun, deaths });
          expect(reasons.length).toBeGreaterThan(0);
          for (const { sentence, advice, command } of reasons) {
            expect(sentence).not.toBe("");
            const advised = advice === null ? "flotilla" : command;
            expect(advised ?? "flotilla").toMatch(/^flotilla/);
          }
        }
      }
    }
  });

  test("lists what holds a task back that could be claimed, from what lasts to what passes", () => {
    const all = { pauses: [pause], limits: [limit], throttledBy, pods: [fullPod] };
    expect(codesOf(all, { deaths: 2 })).toEqual([
      "paused",
      "limit_reached",
      "throttled",
      "must_run_alone",
      "no_free_pod",
      "queued",
    ]);
    // Without a worker the capacity of pods says nothing.
    expect(codesOf({ ...all, noWorker })).toEqual([
      "paused",
      "no_worker",
      "limit_reached",
      "throttled",
      "queued",
    ]);
  });

  test("tells one that is parked only of what will still be there", () => {
    const all = { pauses: [pause], noWorker, limits: [limit], throttledBy, pods: [fullPod] };
    expect(codesOf(all, { parked: parked.untilDue })).toEqual(["not_due", "paused", "no_worker"]);
    expect(codesOf(all, { parked: parked.setAside })).toEqual(["set_aside", "paused", "no_worker"]);
  });

  test("is about what runs or has ended alone", () => {
    const all = { pauses: [pause], noWorker, limits: [limit] };
    const claim = { podId: "pod-1", sinceMs: 5 };
    expect(codesOf(all, { status: "claimed", claim })).toEqual(["running"]);
    for (const status of ["completed", "failed", "cancelled"] as const) {
      expect(codesOf(all, { status })).toEqual(["ended"]);
    }
    expect(verdictOn({}, { status: "failed" })[0]!.command).toBe("flotilla tasks retry task-1");
    expect(verdictOn({}, { status: "failed", isRun: true })[0]!.command).toBe(
      "flotilla runs resume task-1",
    );
  });

  test("counts a pod as free unless it is full, stopping, or out of slots for this name", () => {
    const slots = { code: "slots", text: 'slots of "mail" used' } as const;
    const others = { code: "slots", text: 'slots of "post" used' } as const;
    const isBusy = (pod: Partial<CapablePod>) =>
      codesOf({ pods: [{ ...fullPod, held: 0, ...pod }] }).includes("no_free_pod");
    expect(isBusy({})).toBe(false);
    expect(isBusy({ held: 2 })).toBe(true);
    expect(isBusy({ reasons: [slots] })).toBe(true);
    expect(isBusy({ reasons: [others] })).toBe(false);
    expect(isBusy({ reasons: [{ code: "event_loop", text: "late" }] })).toBe(false);
    expect(isBusy({ reasons: [{ code: "draining", text: "draining" }] })).toBe(true);
    expect(codesOf({ pods: [] })).toEqual(["queued"]);
  });

  test("quotes what a shell would read otherwise", () => {
    const [reason] = verdictOn({ limits: [{ ...limit, scope: "key/mail/it's; rm -rf $HOME" }] });
    expect(reason!.command).toBe(`flotilla limits set 'key/mail/it'\\''s; rm -rf $HOME' 2`);
  });
});
