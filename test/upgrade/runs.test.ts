import { globSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { silentLogger } from "../../src/base/log.ts";
import { until } from "../../src/base/contract/movable-clock.ts";
import { startPod } from "../../src/runtime/start-pod.ts";
import { openStore } from "../../src/store/open.ts";
import { kinds, type Place } from "./places.ts";
import { type Kept, kept, laterTrips, legs, trips } from "./trips.ts";

type Rows = Readonly<Record<string, readonly Readonly<Record<string, string | number | null>>[]>>;

const folder = fileURLToPath(new URL("runs", import.meta.url));
const releases = globSync("*.json", { cwd: folder }).map((file) => file.replace(".json", ""));
const names = Object.keys(kept) as Kept[];

test("the runs of the first release are kept", () => {
  expect(releases).toContain("1");
});

const machines = { "the same flow": trips, "a later version": laterTrips };
const cases = kinds.flatMap(({ dialect, empty }) =>
  releases.flatMap((release) =>
    Object.entries(machines).map(([what, machine]) => ({ dialect, empty, release, what, machine })),
  ),
);

describe.each(cases)(
  "runs of release $release on $dialect under $what",
  ({ dialect, empty, release, machine, what }) => {
    let place: Place;
    beforeEach(async () => {
      place = await empty();
      await (await openStore(place.url)).close();
      await place.exec(inserts(rowsOf(release), dialect));
    });
    afterEach(() => place.remove());

    test("finish, each from where it stood", async () => {
      const calls: string[] = [];
      const hooks = { at: (run: string, at: string) => void calls.push(`${run} ${at}`) };
      await using pod = await startPod({
        store: place.url,
        use: [machine(hooks), legs(hooks)],
        log: silentLogger,
        heartbeatMs: 100,
        deadAfterMs: 500,
        pollMs: 50,
        retentionMs: 3_650 * 24 * 60 * 60_000,
      });
      const ids = new Map(
        rowsOf(release)["task"]!.map((row) => [row["unique_key"], String(row["task_id"])]),
      );
      const run = async (name: Kept) => (await pod.runs.get(ids.get(name)!))!;
      const asking = names.filter((name) =>
        ["new", "retrying", "sleeping", "asking"].includes(name),
      );
      for (const name of [...asking, "told"] as const) {
        await pod.runs.signal(ids.get(name)!, "approval", { by: "bob" }, { id: "kept" });
      }
      for (const name of names) {
        await until(`${name} to end`, async () => (await run(name)).status !== "open");
        expect(await run(name), `${name}`).toMatchObject({ status: kept[name], at: null });
      }

      const done = names.filter((name) => kept[name] === "completed");
      for (const name of done) {
        const booked = `${name}, booked`;
        const output = { booked, paid: `${booked}, paid`, legs: [{}, {}] };
        expect((await run(name)).output, `${name}`).toMatchObject(output);
      }
      // What was stored isn't done again, and whatever ended now has run its finalizer.
      const booked = calls.filter((call) => call.endsWith(" book"));
      expect(booked.toSorted()).toEqual(["new book", "retrying book"]);
      expect(calls).not.toContain("waiting-1 ride");
      const open = names.filter((name) => !["done", "failed", "cancelled"].includes(name));
      const reported = calls.filter((call) => call.endsWith(" report"));
      expect(reported.toSorted()).toEqual(open.map((name) => `${name} report`).toSorted());
      const { thanked = false } = (await run("held")).output as { thanked?: boolean };
      expect(thanked).toBe(what === "a later version");
    });
  },
);

function rowsOf(release: string): Rows {
  return JSON.parse(readFileSync(`${folder}/${release}.json`, "utf8")) as Rows;
}

function inserts(rows: Rows, dialect: string): string {
  const prefix = dialect === "sqlite" ? "flotilla_" : "flotilla.";
  return Object.entries(rows)
    .flatMap(([table, all]) =>
      all.map((row) => {
        const values = Object.values(row).map(literal).join(", ");
        return `insert into ${prefix}${table} (${Object.keys(row).join(", ")}) values (${values});`;
      }),
    )
    .join("\n");
}

function literal(value: string | number | null): string {
  if (value === null) return "null";
  return typeof value === "number" ? String(value) : `'${value.replaceAll("'", "''")}'`;
}
