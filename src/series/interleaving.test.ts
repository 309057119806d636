import { describe, expect, test } from "vitest";
import { eventLoopTurns, movableClock } from "../base/contract/movable-clock.ts";
import { dayMs, minuteMs } from "../base/durations.ts";
import { FlotillaError } from "../base/errors.ts";
import { uuidv7 } from "../base/ids.ts";
import { seededRandom } from "../base/random.ts";
import type { Database, Row } from "../store/database.ts";
import { migrate } from "../store/migrate.ts";
import { sql, type Statement, table } from "../store/sql.ts";
import { memoryDatabase } from "../store/sqlite/inline.ts";
import { countOf, parseCounts } from "./counts.ts";
import { createSeriesLeader } from "./leader.ts";
import { createRecorder } from "./recorder.ts";
import type { SeriesRow } from "./sql.ts";
import { createSeriesWriter } from "./writer.ts";

const subject = "task:mail";
const pods = ["pod-1", "pod-2", "pod-3"];
const leaders = 3;
const steps = 120;

/** A write on its way to the store. It may land at any later time, twice, or with its answer lost. */
type Underway = {
  readonly from: "pod" | "leader";
  readonly statements: readonly Statement[];
  readonly answer: (tables: Row[][]) => void;
  readonly lose: () => void;
};

/** Pods that count and several leaders that fold at once, over a store that writes reach in any order. */
async function simulate(seed: number) {
  const random = seededRandom(seed);
  const below = (max: number) => random.uint32() % max;
  const clock = movableClock();
  const database = memoryDatabase(clock);
  await migrate(database);
  let underway: Underway[] = [];
  const landed: Underway[] = [];
  /** The rows of pods that have once been stored. */
  const accepted = new Set<string>();
  let counted = 0;

  const slow = (from: Underway["from"]): Database => ({
    ...database,
    write: (statements) =>
      new Promise((answer, reject) => {
        const lose = () => reject(new FlotillaError("unknown_outcome", "lost, as ordered"));
        underway.push({ from, statements, answer, lose });
      }),
  });
  const total = async () => {
    const rows = await database.read(
      sql`select counts from ${table("series")} where subject = ${subject}`,
    );
    const counts = rows.map((row) => parseCounts(row["counts"]).counts["completed"] ?? 0);
    return counts.reduce((all, each) => all + each, 0);
  };
  const closedTo = async () => {
    const [row] = await database.read(sql`select closed_to from ${table("series_fold")}`);
    return Number(row?.["closed_to"] ?? 0);
  };

  const land = async (write: Underway): Promise<Row[][]> => {
    const [before, closed] = [await total(), await closedTo()];
    const tables = await database.write(write.statements);
    const change = (await total()) - before;
    // A pod's minute counts once, and a fold changes no sum.
    const fresh = rowsIn(write.from === "pod" ? write.statements : []).filter(
      (row) => row.subject === subject && row.at > closed && !accepted.has(`${row.at} ${row.pod}`),
    );
    for (const row of fresh) accepted.add(`${row.at} ${row.pod}`);
    const sums = fresh.map(({ counts }) => parseCounts(counts).counts["completed"]!);
    expect(change).toBe(sums.reduce((all, each) => all + each, 0));
    return tables;
  };

  const writers = pods.map((podId) => {
    const recorder = createRecorder();
    const storeNowMs = () => clock.now();
    const parts = { podId, database: slow("pod"), clock, recorder, storeNowMs };
    return { recorder, ...createSeriesWriter(parts) };
  });
  const leading = Array.from({ length: leaders }, () => {
    const leader = createSeriesLeader({
      database: slow("leader"),
      clock,
      ids: uuidv7(clock, random),
    });
    return { leader, isPassing: false };
  });
  const lead = (each: (typeof leading)[number]) => {
    if (each.isPassing) return;
    each.isPassing = true;
    void each.leader.pass().finally(() => (each.isPassing = false));
  };
  const deliver = async (write: Underway) => {
    underway = underway.filter((each) => each !== write);
    const tables = await land(write);
    landed.push(write);
    if (below(5) === 0) write.lose();
    else write.answer(tables);
  };

  for (let step = 0; step < steps; step++) {
    const writer = writers[below(pods.length)]!;
    switch (below(8)) {
      case 0:
      case 1: {
        const completed = 1 + below(9);
        counted += completed;
        countOf(writer.recorder.tally("task", "mail"), "completed", completed);
        break;
      }
      case 2:
        await clock.advance(below(20) === 0 ? dayMs : below(2 * minuteMs));
        for (const each of writers) each.tick();
        break;
      case 3:
        lead(leading[below(leaders)]!);
        break;
      case 4:
        // A packet that was on its way for long, though its sender gave up.
        if (landed.length > 0) await land(landed[below(landed.length)]!);
        break;
      default:
        if (underway.length > 0) await deliver(underway[below(underway.length)]!);
    }
    await eventLoopTurns(2);
  }
  const before = await total();
  for (let round = 0; round < 50; round++) {
    if (round % 10 === 0) {
      await clock.advance(10 * minuteMs);
      for (const each of leading) lead(each);
    }
    await eventLoopTurns(2);
    for (const write of underway.filter(({ from }) => from === "leader")) await deliver(write);
  }
  const [left] = await database.read(
    sql`select count(*) as rows from ${table("series")}
      where pod <> '' and at <= ${clock.now() - 20 * minuteMs}`,
  );
  const result = { before, after: await total(), counted, left: Number(left!["rows"]), accepted };
  for (const write of underway) write.lose();
  await eventLoopTurns(2);
  await database.close();
  return result;
}

/** The rows that a pod's write brings. */
function rowsIn(statements: readonly Statement[]): SeriesRow[] {
  return statements.flatMap(({ parts }) =>
    parts.flatMap((part) => {
      if (typeof part !== "object" || part === null || !("rows" in part)) return [];
      return part.rows.map(([span, at, of, pod, counts]) => {
        return { span, at, subject: of, pod, counts } as SeriesRow;
      });
    }),
  );
}

describe("series under leaders that change in the middle of a fold", () => {
  test.each(Array.from({ length: 40 }, (_, seed) => seed + 1))(
    "count every minute of every pod once, with seed %d",
    async (seed) => {
      const { before, after, counted, left, accepted } = await simulate(seed);
      expect(after).toBe(before);
      expect(after).toBeLessThanOrEqual(counted);
      expect(accepted.size).toBeGreaterThan(0);
      expect(left).toBe(0);
    },
  );
});
