import { describe, expect, test } from "vitest";
import { decideMove, type MoveFacts } from "./decide-move.ts";

const places = ["sql", "nats"] as const;
const metas = [undefined, "prepared", "moving", "live", "closed"] as const;
const moves = [
  undefined,
  ...places.flatMap((to) => [{ to, state: "copying" } as const, { to, state: "done" } as const]),
];

function decided(to: "sql" | "nats", facts: MoveFacts): string {
  try {
    return decideMove(to, facts);
  } catch (error) {
    return /finish that first/.test(String(error)) ? "unfinished" : "differ";
  }
}

/** What each step of a promotion leaves behind, in order. */
const runs = {
  nats: [
    { place: "sql", meta: undefined, step: "prepare" },
    { place: "sql", meta: "moving", step: "prepare" },
    { place: "nats", meta: "moving", step: "open" },
    { place: "nats", meta: "live", step: "finish" },
  ],
  sql: [
    { place: "nats", meta: "live", step: "close" },
    { place: "nats", meta: "closed", step: "empty" },
    { place: "sql", meta: "closed", step: "finish" },
  ],
} as const;

describe("a promotion of logs", () => {
  test.each(places)("to %s goes on from whatever an earlier run has left", (to) => {
    const move = { to, state: "copying" } as const;
    for (const { place, meta, step } of runs[to]) {
      expect(decided(to, { place, meta, move })).toBe(step);
    }
    const last = runs[to].at(-1)!;
    expect(decided(to, { ...last, move: { to, state: "done" } })).toBe("already");
  });

  test.each(places)("to %s isn't mixed with one to the other place that was begun", (to) => {
    const other = to === "nats" ? "sql" : "nats";
    const move = { to: other, state: "copying" } as const;
    const changed = other === "nats" ? runs.nats.slice(2) : runs.sql.slice(1);
    for (const facts of changed) expect(decided(to, { ...facts, move })).toBe("unfinished");
  });

  test("comes back from one that was done, and goes there again", () => {
    const done = (to: "sql" | "nats") => ({ to, state: "done" }) as const;
    expect(decided("sql", { place: "nats", meta: "live", move: done("nats") })).toBe("close");
    expect(decided("nats", { place: "sql", meta: "closed", move: done("sql") })).toBe("prepare");
  });

  test("is refused where database and streams don't say the same, and never takes logs from where they are", () => {
    for (const place of places) {
      for (const meta of metas) {
        for (const move of moves) {
          const there = decided("nats", { place, meta, move });
          const back = decided("sql", { place, meta, move });
          // Streams are made anew only while the database has the logs and no pod takes the streams.
          const mayMake = place === "sql" && meta !== "live";
          expect(there !== "prepare" || mayMake).toBe(true);
          // The place of logs is moved back only once no pod takes the streams.
          const mayReturn = place === "nats" && meta === "closed";
          expect(back !== "empty" || mayReturn).toBe(true);
          const differ = place === "sql" && meta === "live";
          expect(differ && [there, back].includes("already")).toBe(false);
        }
      }
    }
    expect(decided("nats", { place: "sql", meta: "live", move: undefined })).toBe("differ");
    expect(decided("sql", { place: "nats", meta: undefined, move: undefined })).toBe("differ");
  });

  test("names the cause that there may be, and a back-up only where one was restored", () => {
    const refused = (facts: Omit<MoveFacts, "move">, to: "sql" | "nats" = "sql") => {
      try {
        return decideMove(to, { ...facts, move: undefined });
      } catch (error) {
        return String(error);
      }
    };
    const elsewhere = refused({ place: "nats", meta: undefined });
    expect(elsewhere).toMatch(/give this command the `nats` of the pods/);
    const unmade = refused({ place: "nats", meta: "prepared" });
    expect(unmade).toMatch(/start a pod/);
    expect(`${elsewhere} ${unmade}`).not.toContain("back-up");
    expect(refused({ place: "nats", meta: "moving" })).toMatch(/back-up of another time/);
    expect(refused({ place: "sql", meta: "live" }, "nats")).toMatch(/from a back-up of before/);
  });
});
