import * as schedules from "../../src/schedules/sql.ts";
import { entry } from "./audit.ts";
import { type RoomStatements, sqlFile } from "./examples.ts";
import { plainTask } from "./tasks.ts";

const seen = { scheduleId: "nightly", createdAtMs: 1, updatedAtMs: 2 };
const definition = {
  scheduleId: "nightly",
  name: "report",
  pattern: "0 3 * * *",
  zone: "UTC",
  payload: "null",
  options: "{}",
  missed: "once",
};
const move = {
  scheduleId: "nightly",
  seen: { nextAtMs: 10, revision: 1 },
  mark: "mark-1",
  afterMs: 10,
  nextAtMs: 20,
  lastAtMs: 10,
  error: null,
  tasks: [
    { ...plainTask, scheduledAtMs: 10, origin: { id: "nightly", what: "schedule" as const } },
  ],
};

export const scheduleStatements: RoomStatements = {
  "src/schedules/sql.ts": sqlFile(schedules, {
    readDue: () => schedules.readDue(1_000, 10),
    moveSchedules: () => schedules.moveSchedules([move]),
    insertFired: () => schedules.insertFired([move]),
    linkFired: () => schedules.linkFired([move]),
    putSchedule: () => [
      schedules.putSchedule(definition, undefined),
      schedules.putSchedule(definition, { ...seen, payload: "{}" }, "mark-1"),
    ],
    getSchedules: () => schedules.getSchedules(["nightly"]),
    listSchedules: () => schedules.listSchedules("", 10),
    listFirings: () => [
      schedules.listFirings("nightly", { before: undefined, count: 51 }),
      schedules.listFirings("nightly", { before: "task-9", count: 51 }),
    ],
    pauseSchedule: () => schedules.pauseSchedule(seen, "mark-1"),
    resumeSchedule: () => schedules.resumeSchedule(seen, "mark-1"),
    removeSchedule: () => schedules.removeSchedule(seen, "{}", entry),
    entryOfChange: () => schedules.entryOfChange("nightly", "mark-1", { after: "{}" }, entry),
    fireSchedule: () => schedules.fireSchedule(seen, plainTask, entry),
  }),
};
