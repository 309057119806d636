import * as deadLetters from "../../src/dead-letters/sql.ts";
import { entry } from "./audit.ts";
import { type RoomStatements, sqlFile } from "./examples.ts";

const deadLetter = {
  taskId: "task-1",
  name: "mail",
  tenant: "default",
  group: "group-1",
  code: "internal",
  message: "refused",
  failures: 3,
  deaths: 0,
  failedAtMs: 10,
  redriveId: null,
  token: 3,
};
const redrive = {
  redriveId: "redrive-1",
  selection: { all: true },
  state: "running",
  reason: null,
  step: 1,
  stepSize: 1,
  stepTaken: 1,
  maxStep: 100,
  fromStart: false,
  forgottenSteps: 0,
  taken: 1,
  succeeded: 1,
  failed: 0,
  failedOtherwise: 0,
  gone: 0,
  remaining: 5,
  revision: 2,
  createdAtMs: 1,
  updatedAtMs: 2,
} as const;
const step = { taken: 1, open: 0, succeeded: 1, failed: 0, failedOtherwise: 0, gone: 0 };
const write = { redrive, step, writeId: "write-1" };
const seenGroup = { group: "g2-1", firstAtMs: 10, lastAtMs: 20 };
const reason = { code: "same_error", message: "refused" } as const;

export const deadLetterStatements: RoomStatements = {
  "src/dead-letters/sql.ts": sqlFile(deadLetters, {
    readGroupSecret: () => deadLetters.readGroupSecret(),
    failedAfter: () => deadLetters.failedAfter({ atMs: 10, taskId: "task-1" }, 10),
    manyFailed: () => deadLetters.manyFailed(),
    failedSince: () => deadLetters.failedSince(10, 5, 100),
    failedTasks: () => deadLetters.failedTasks(["task-1"]),
    insertRedrive: () =>
      deadLetters.insertRedrive(
        "redrive-1",
        { all: true },
        { maxStep: 100, fromStart: true },
        entry,
      ),
    getRedrive: () => deadLetters.getRedrive("redrive-1"),
    listRedrives: () => [deadLetters.listRedrives(10), deadLetters.listRedrives(10, "redrive-1")],
    openRedrives: () => deadLetters.openRedrives(),
    stepTasks: () => deadLetters.stepTasks(redrive),
    takeStep: () => [
      ...deadLetters.takeStep(write, [deadLetter], { size: 2, remaining: 3 }),
      ...deadLetters.takeStep(
        { ...write, redrive: { ...redrive, fromStart: true } },
        [deadLetter],
        { size: 2, remaining: 3 },
      ),
    ],
    stopRedrive: () => deadLetters.stopRedrive(write, reason),
    cancelRedrive: () => deadLetters.cancelRedrive("redrive-1", reason, entry),
    endRedrive: () => deadLetters.endRedrive(write, "done"),
    pruneRedrives: () => deadLetters.pruneRedrives(60_000),
    getGroups: () => deadLetters.getGroups(["g2-1"]),
    closedGroups: () => deadLetters.closedGroups(),
    insertGroups: () => deadLetters.insertGroups([seenGroup]),
    returnGroups: () => deadLetters.returnGroups([{ group: "g2-1", stateAtMs: 15, backAtMs: 20 }]),
    keepGroups: () => deadLetters.keepGroups(["g2-1"]),
    oldGroups: () => deadLetters.oldGroups(60_000, 10),
    pruneGroups: () => deadLetters.pruneGroups(["g2-1"], 60_000),
    changeGroup: () => [
      ...deadLetters.changeGroup({ ...seenGroup, state: "resolved", untilMs: null }, entry),
      ...deadLetters.changeGroup({ ...seenGroup, state: "ignored", untilMs: 99 }, entry),
    ],
    discardTasks: () => deadLetters.discardTasks([deadLetter], "write-1", entry),
  }),
};
