import type { StoredBulk } from "../../src/bulk/bulk.ts";
import * as bulks from "../../src/bulk/sql.ts";
import { entry } from "./audit.ts";
import { type RoomStatements, sqlFile } from "./examples.ts";

const bulk: StoredBulk = {
  bulkId: "bulk-1",
  action: "cancel",
  filter: { name: "mail", status: "pending" },
  fromStart: false,
  signal: null,
  as: null,
  state: "running",
  matched: 10,
  isExact: true,
  done: 0,
  skipped: 0,
  refused: 0,
  lastTaskId: null,
  createdBy: "key/web",
  reason: null,
  createdAtMs: 1,
  updatedAtMs: 2,
  revision: 2,
  untilId: "task-9",
  payload: null,
};
const write = {
  bulk,
  seen: [{ taskId: "task-1", status: "pending", token: 2 }],
  lastTaskId: "task-1",
  isLast: true,
};
const on = (given: Partial<StoredBulk>) => ({
  ...write,
  bulk: { ...bulk, filter: { name: "mail" }, ...given },
});

export const bulkStatements: RoomStatements = {
  "src/bulk/sql.ts": sqlFile(bulks, {
    insertBulk: () =>
      bulks.insertBulk(
        "bulk-1",
        {
          action: "signal",
          filter: { name: "order" },
          options: { signal: "paid" },
          payload: "{}",
          reason: "paid by hand",
          createdBy: "key/web",
          matched: 3,
          isExact: true,
        },
        entry,
      ),
    getBulk: () => bulks.getBulk("bulk-1"),
    listBulks: () => [bulks.listBulks(10), bulks.listBulks(10, "bulk-1")],
    openBulks: () => bulks.openBulks(),
    stopBulk: () => bulks.stopBulk("bulk-1", entry),
    pruneBulks: () => bulks.pruneBulks(60_000),
    walkMatching: () => [
      bulks.walkMatching(
        { action: "cancel", filter: { tenant: "acme", from: "a", to: "b" }, as: null, after: "" },
        10_000,
        500,
      ),
      bulks.walkMatching(
        {
          action: "retry",
          filter: { group: "g2-79ef601d010c6cb2", status: "failed" },
          as: null,
          after: "task-1",
          until: { taskId: "task-9", atMs: 10 },
        },
        2_000,
        500,
      ),
      bulks.walkMatching(
        {
          action: "cancel",
          filter: { name: "mail", sinceMs: 1, untilMs: 2, payload: { "order.id": 7 } },
          as: null,
          after: "",
        },
        2_000,
        500,
      ),
      bulks.walkMatching(
        {
          action: "resume",
          filter: { name: "order", at: "charge", setAside: true },
          as: 3,
          after: "",
        },
        10_000,
        500,
      ),
    ],
    checkMatching: () => [
      bulks.checkMatching(
        { action: "cancel", filter: { session: "session-1", name: "mail" }, as: null, after: "" },
        ["task-1", "task-2"],
        500,
      ),
      bulks.checkMatching(
        { action: "cancel", filter: { ids: ["task-1"], version: 2 }, as: null, after: "" },
        ["task-1"],
        500,
      ),
    ],
    readOutcomes: () => [
      bulks.readOutcomes({ ...bulk, filter: { tenant: "acme" } }, ["task-1", "task-2"]),
      bulks.readOutcomes({ ...bulk, action: "signal" }, ["task-1"]),
    ],
    writeBatch: () => [
      ...bulks.writeBatch(write),
      ...bulks.writeBatch(
        on({
          filter: { name: "mail", key: "k", pod: "pod-1", sinceMs: 1, payload: { "order.id": 7 } },
        }),
      ),
      ...bulks.writeBatch(on({ filter: { ids: ["task-1", "task-2"], version: 2 } })),
      ...bulks.writeBatch({ ...write, seen: [], isLast: false }),
      ...bulks.writeBatch(on({ action: "retry" })),
      ...bulks.writeBatch(on({ action: "retry", fromStart: true })),
      ...bulks.writeBatch(on({ action: "delete" })),
      ...bulks.writeBatch(on({ action: "signal", signal: "paid", payload: "{}" })),
      ...bulks.writeBatch(on({ action: "resume" })),
      ...bulks.writeBatch(on({ action: "resume", as: 3 })),
    ],
  }),
};
