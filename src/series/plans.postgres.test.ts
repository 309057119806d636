import { describe, expect, test } from "vitest";
import { hourMs, minuteMs } from "../base/durations.ts";
import { planning, planningOnSqlite } from "../store/contract/planning.ts";
import {
  foldedBetween,
  listSubjects,
  minutesBefore,
  readFold,
  readMinutes,
  readSeries,
  storeFold,
  unfoldedUpTo,
} from "./sql.ts";

const row = { span: minuteMs, at: 0, subject: "task:name-1", pod: "pod-1", counts: "{}" };
const fold = { foldId: "b", lastFold: "a", puts: [{ ...row, pod: "" }], deletes: [row] };
const spans = [minuteMs, hourMs] as const;
const reads = {
  "what is left to fold": unfoldedUpTo(1_000_000, 2_000),
  "old minutes": minutesBefore(1_000_000, 2_000),
  "what is folded into": foldedBetween(minuteMs, 0, minuteMs),
  "the counts of a subject": readSeries("task:name-1", { fromMs: 0, toMs: 1, spans }),
  "the last minutes of many subjects": readMinutes(["task:name-1", "task:name-2"], 60_000),
  "the state of folding": readFold(),
  subjects: listSubjects({ kind: "task", limit: 50 }),
  "the deletion of what was folded": storeFold(fold)[2]!,
};

describe("of a full table of series, Postgres", () => {
  const planOf = planning([
    `insert into flotilla.series (span, at, subject, pod, counts)
      select 60000, minute * 60000, 'task:name-' || name, '', '{}'
      from generate_series(1, 1440) minute, generate_series(1, 50) name`,
    "analyze flotilla.series",
  ]);

  test.each(Object.entries(reads))("reads %s by an index", async (_, statement) => {
    expect(await planOf(statement)).not.toMatch(/Seq Scan on series\b/);
  });
});

describe("of a table of series, SQLite", () => {
  const planOf = planningOnSqlite();

  test.each(Object.entries(reads))("reads %s by an index", (_, statement) => {
    expect(
      planOf(statement).filter((step) =>
        /^SCAN (?:flotilla_)?(?:series|stored|counted)\b/.test(step),
      ),
    ).toEqual([]);
  });
});
