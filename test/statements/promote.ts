import * as moved from "../../src/promote/logs/sql.ts";
import * as promote from "../../src/promote/sql.ts";
import type { CopiedTable } from "../../src/promote/tables.ts";
import { noStatement, type RoomStatements, sqlFile } from "./examples.ts";

const events: CopiedTable = {
  name: "task_event",
  columns: [
    { name: "task_id", type: "text", place: 1 },
    { name: "seq", type: "integer", place: 2 },
    { name: "at", type: "bigint", place: 0 },
    { name: "detail", type: "text", place: 0 },
  ],
  get key() {
    return this.columns.slice(0, 2);
  },
};
const range = { after: ["task-1", "3"], last: ["task-9", "1"] };
const holder = { holder: "holder-1", host: "host-1" };

export const promoteStatements: RoomStatements = {
  "src/promote/sql.ts": sqlFile(promote, {
    readSizes: () => [
      promote.readSizes(events, {}, 1_000),
      promote.readSizes(events, { after: range.after }, 1_000),
    ],
    readRows: () => promote.readRows(events, range),
    countRows: () => promote.countRows("task"),
    hasRows: () => promote.hasRows("task"),
    findFilled: () => promote.findFilled(["task", "session"]),
    findUnstorable: () => promote.findUnstorable(events),
    insertCopied: () =>
      promote.insertCopied(events, [["task-1", "4", "1800000000000", null]], holder.holder),
    digestRange: () => promote.digestRange(events, range),
    deleteCopied: () => promote.deleteCopied(events, 5_000, holder.holder),
    analyzeTable: () => promote.analyzeTable("task"),
    readSingles: () => promote.readSingles(),
    toSingles: noStatement,
    setSingles: () =>
      promote.setSingles(
        { place: "sql", clusterId: "cluster-1", secret: "secret-1" },
        holder.holder,
      ),
    readPromotion: () => promote.readPromotion(),
    toPromotion: noStatement,
    beginPromotion: () =>
      promote.beginPromotion({
        promotionId: "promotion-1",
        sourceId: "cluster-1",
        source: "sqlite:app.db",
        logs: 8,
        createdAtMs: 1_800_000_000_000,
      }),
    takePromotion: () =>
      promote.takePromotion("promotion-1", holder, { forMs: 30_000, gone: "holder-0" }),
    saveCopied: () =>
      promote.saveCopied(holder.holder, { task: { rows: 3, done: true } }, { forMs: 30_000 }),
    releasePromotion: () => promote.releasePromotion(holder.holder),
    finishPromotion: () => promote.finishPromotion(holder.holder),
    forgetPromotion: () => promote.forgetPromotion(holder.holder),
  }),
  "src/promote/logs/sql.ts": sqlFile(moved, {
    readMove: () => moved.readMove(),
    toMove: noStatement,
    beginMove: () =>
      moved.beginMove({ moveId: "move-1", clusterId: "cluster-1", to: "nats", logs: 8 }),
    takeMove: () => moved.takeMove(holder, { forMs: 30_000, gone: "holder-0" }),
    keepMove: () => [
      moved.keepMove(holder.holder, { forMs: 30_000 }),
      moved.keepMove(holder.holder, { forMs: 30_000, lives: [] }),
    ],
    isMoveHeld: noStatement,
    releaseMove: () => moved.releaseMove(holder.holder),
    finishMove: () => moved.finishMove(holder.holder),
  }),
};
