import { describe, expect, test } from "vitest";
import { planning, planningOnSqlite } from "../store/contract/planning.ts";
import { type BulkAction, bulkActions, toStoredBulk } from "./bulk.ts";
import { type BulkWalk, checkMatching, readOutcomes, walkMatching, writeBatch } from "./sql.ts";

const stored = toStoredBulk({
  bulk_id: "b",
  filter: '{"name":"a"}',
  options: '{"signal":"go","as":1}',
  payload: "null",
  cursor_id: "",
  revision: 1,
});
const batchOf = (action: BulkAction) =>
  writeBatch({
    bulk: { ...stored, action },
    seen: [{ taskId: "x", status: "failed", token: 1 }],
    lastTaskId: "x",
    isLast: false,
  });
const until = { taskId: "z", atMs: 1 };
const walks: Record<string, { walk: BulkWalk; index: string }> = {
  "of a name": {
    walk: { action: "cancel", filter: { name: "a" }, as: null, after: "x", until },
    index: "task_id>? AND task_id<?",
  },
  "of failed tasks": {
    walk: { action: "retry", filter: { status: "failed" }, as: null, after: "x", until },
    index: "flotilla_task_failed (",
  },
  "of a value of payloads": {
    walk: {
      action: "cancel",
      filter: { name: "a", sinceMs: 1, untilMs: 2, payload: { id: 7 } },
      as: null,
      after: "",
      until,
    },
    index: "task_id>? AND task_id<?",
  },
  "of a version of a flow": {
    walk: { action: "cancel", filter: { name: "a", version: 2 }, as: null, after: "x", until },
    index: "flotilla_task_run (",
  },
  "of the runs of a flow": {
    walk: { action: "cancel", filter: { name: "a", at: "b" }, as: null, after: "x", until },
    index: "flotilla_task_run (",
  },
};

describe("a bulk finds its tasks by an index", () => {
  const sqliteStepsOf = planningOnSqlite();
  const fill = (status: string) => `insert into flotilla.task (name, status)
    select 'a', '${status}' from generate_series(1, 5000)`;
  const planOf = planning([fill("completed"), "analyze flotilla.task", fill("pending")]);

  test.each(bulkActions)("on SQLite for a batch of %s", (action) => {
    for (const statement of batchOf(action)) {
      const scans = sqliteStepsOf(statement).filter((step) =>
        /^SCAN (flotilla_task|task)\b/.test(step),
      );
      expect(scans).toEqual([]);
    }
  });

  test.each(bulkActions)("on Postgres for a batch of %s", async (action) => {
    for (const statement of batchOf(action)) {
      expect(await planOf(statement)).not.toMatch(/Seq Scan on task\b/);
    }
  });

  test.each(Object.entries(walks))("on SQLite for a walk %s", (_, { walk, index }) => {
    const steps = sqliteStepsOf(walkMatching(walk, 10_000, 500));
    expect(steps.filter((step) => /^(?:SCAN|SEARCH) flotilla_task\b/.test(step)).join()).toContain(
      index,
    );
    expect(steps.filter((step) => /^SCAN flotilla_task\b/.test(step))).toEqual([]);
  });

  test("for tasks that are known by their ids, and for what became of them", async () => {
    const { walk } = walks["of a name"]!;
    for (const statement of [
      checkMatching(walk, ["x", "y"], 500),
      checkMatching({ ...walk, filter: { ids: ["x", "y"] } }, ["x", "y"], 500),
      readOutcomes(stored, ["x", "y"]),
      readOutcomes({ ...stored, action: "signal" }, ["x", "y"]),
    ]) {
      const scans = sqliteStepsOf(statement).filter((step) =>
        /^SCAN (?:flotilla_task(?:_event|_signal)?|task|event|sent)\b/.test(step),
      );
      expect(scans).toEqual([]);
      expect(await planOf(statement)).not.toMatch(/Seq Scan on task\b/);
    }
  });
});
