import { describe, expect, test } from "vitest";
import { actions } from "../../../audit/act.ts";
import { actWords, auditActions, auditSubject } from "./entry.ts";

describe("an entry of the audit", () => {
  test("has words for every act that there is", () => {
    expect(auditActions.toSorted()).toEqual([...actions].toSorted());
  });

  test("leads to its subject", () => {
    const of = (action: string, subject: string | null, more: object = {}) =>
      auditSubject({ action, subject, tenant: "default", filter: null, ...more });
    expect(of("tasks.cancel", "t1")).toEqual({ kind: "task", id: "t1" });
    expect(of("runs.retry", "r1")).toEqual({ kind: "run", id: "r1" });
    expect(of("sessions.stop", "s1", { tenant: "acme" })).toEqual({
      kind: "session",
      id: "s1",
      tenant: "acme",
    });
    expect(of("schedules.fire", "nightly")).toEqual({ kind: "schedule", id: "nightly" });
    expect(of("pods.drain", "p1")).toEqual({ kind: "pod", id: "p1" });
    expect(of("limits.set", "tenant/acme")).toEqual({ kind: "limit", id: "tenant/acme" });
    expect(of("names.pause", "mail")).toEqual({ kind: "name", id: "mail" });
    expect(of("names.pause", "*")).toEqual({ kind: "everything" });
    expect(of("throttles.pin", "openai/gpt")).toEqual({
      kind: "throttle",
      id: "openai/gpt",
      key: "",
    });
    const filter = { name: "openai/gpt", key: "eu/1" };
    expect(of("throttles.pin", "openai/gpt/eu/1", { filter })).toEqual({
      kind: "throttle",
      id: "openai/gpt",
      key: "eu/1",
    });
    expect(of("keys.revoke", "k1")).toEqual({ kind: "other", id: "k1" });
    expect(of("tasks.prune", null)).toBeUndefined();
  });

  test("of an act that a later server has is shown by its name, and leads nowhere", () => {
    for (const action of ["moons.launch", "__proto__", "constructor"]) {
      expect(actWords(action)).toBe(`did ${action} to`);
      const entry = { action, subject: "x", tenant: "default", filter: null };
      expect(auditSubject(entry)).toEqual({ kind: "other", id: "x" });
    }
  });
});
