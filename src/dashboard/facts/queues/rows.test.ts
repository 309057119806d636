import { describe, expect, test } from "vitest";
import {
  holdersFilter,
  rowsOnPage,
  pauseOfAll,
  queueRows,
  queueSearchIn,
  scopeParts,
} from "./rows.ts";

const counts = {
  ready: 0,
  delayed: 0,
  waiting: 0,
  blocked: 0,
  alone: 0,
  running: 0,
  failed: 0,
  oldestMs: 0,
  paused: false,
};
const pause = (name: string) => ({ name, sinceMs: 1, reason: "the API is down", by: "key/ops" });
const depth = {
  mail: { ...counts, ready: 2 },
  Embed: { ...counts, running: 1 },
  report: { ...counts, failed: 3, blocked: 1 },
};

describe("the names of queues", () => {
  const namesOf = (search = {}, pauses = [pause("*"), pause("idle"), pause("mail")]) =>
    queueRows(depth, pauses, search).map(({ name }) => name);

  test("are those with tasks and those that are paused, in a steady order", () => {
    expect(namesOf()).toEqual(["Embed", "idle", "mail", "report"]);
    const [, idle, mail, report] = queueRows(depth, [pause("idle"), pause("mail")], {});
    expect(idle).toEqual({ name: "idle", counts, pause: pause("idle") });
    expect(mail).toMatchObject({ counts: { ready: 2 }, pause: { by: "key/ops" } });
    expect(report!.pause).toBeUndefined();
  });

  test("are found by a part of the name, and by what is the matter", () => {
    expect(namesOf({ name: "M" })).toEqual(["Embed", "mail"]);
    expect(namesOf({ only: "paused" })).toEqual(["idle", "mail"]);
    expect(namesOf({ only: "waiting" })).toEqual(["mail", "report"]);
    expect(namesOf({ only: "running" })).toEqual(["Embed"]);
    expect(namesOf({ only: "blocked" })).toEqual(["report"]);
    expect(namesOf({ only: "failed", name: "mail" })).toEqual([]);
    expect(namesOf({ name: "__proto__" })).toEqual([]);
  });

  test("may be called as what objects have", () => {
    const odd = queueRows(Object.fromEntries([["constructor", counts]]), [pause("__proto__")], {});
    expect(odd.map(({ name }) => name)).toEqual(["__proto__", "constructor"]);
    expect(odd[0]!.counts).toEqual(counts);
  });

  test("know the pause of everything apart from their own", () => {
    expect(pauseOfAll([pause("mail"), pause("*")])).toEqual(pause("*"));
    expect(pauseOfAll([pause("mail")])).toBeUndefined();
  });

  test("come in pages, of which one that isn't there is the last", () => {
    const many = Array.from({ length: 120 }, (_, at) => at);
    expect(rowsOnPage(many, undefined)).toMatchObject({ from: 0, page: 1, lastPage: 3 });
    expect(rowsOnPage(many, "3").rows).toEqual(many.slice(100));
    expect(rowsOnPage(many, "999999")).toMatchObject({ from: 100, page: 3 });
    expect(rowsOnPage([], "2")).toEqual({ rows: [], from: 0, page: 1, lastPage: 1 });
  });
});

describe("the address of the queues", () => {
  test("says what is shown", () => {
    const search = { name: "mail", only: "paused", page: "2", scope: "tenant/acme" };
    expect(queueSearchIn(search)).toEqual(search);
    expect(queueSearchIn({ page: "1" })).toEqual({});
  });

  test("counts for nothing where it can't be", () => {
    const bad = { name: "x".repeat(10_000), only: "__proto__", page: "-1", scope: 5, more: "y" };
    expect(queueSearchIn(bad)).toEqual({});
    expect(queueSearchIn({ page: "1e9", name: "" })).toEqual({});
  });
});

describe("a limit's scope", () => {
  test("has a kind, and tells which tasks hold its slots", () => {
    expect(scopeParts("key/mail/ada/b")).toEqual({ kind: "key", of: "mail/ada/b" });
    expect(scopeParts("odd")).toEqual({ kind: "limit", of: "odd" });
    expect(holdersFilter("tenant/a/b")).toEqual({ status: "claimed", tenant: "a/b" });
    expect(holdersFilter("queue/gpu")).toEqual({ status: "claimed", scope: "queue/gpu" });
  });
});
