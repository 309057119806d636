import { beat, finishPass, markLeft, markDown } from "../../src/pods/sql.ts";
import { cancelTask, retryTask } from "../../src/tasks/sql/inspect.ts";
import {
  claimOldest,
  claimReserved,
  claimTasks,
  levelsInUse,
  readAhead,
  releaseCall,
  reserveAlone,
  unparkDue,
} from "../../src/tasks/sql/claim.ts";
import { insertTasks } from "../../src/tasks/sql/enqueue.ts";
import {
  type Finish,
  finishTasks,
  readTaskStates,
  noteFinishes,
  saveProgress,
} from "../../src/tasks/sql/finish.ts";
import {
  claimsOf,
  deleteFinished,
  noteRecovery,
  recoverTasks,
} from "../../src/tasks/sql/recover.ts";
import type { Statement } from "../../src/store/sql.ts";

const podId = "pod-of-this-version";
const names = ["worked"];

/** What a pod of the present version sends while it works, so that later versions can be tried with it. */
export function workOf(): Statement[] {
  const claim = (call: number) => ({ podId, call, names, limit: 1 });
  const silent = { podId, birthMs: 0, status: "up", beat: 1, passes: 0 } as const;
  const orphans = [{ taskId: "worked-2", token: 1, pod: silent }];
  const levels = [{ name: "worked", priority: 0 }];
  return [
    beat(podId, "{}", 0),
    insertTasks([newTask("worked-1")]),
    unparkDue(),
    readAhead(names),
    claimTasks(claim(1)),
    saveProgress([{ taskId: "worked-1", token: 1, runSeq: 0, value: '"half"' }]),
    readTaskStates(["worked-1"]),
    noteFinishes(podId, [finish("worked-1")]),
    finishTasks([finish("worked-1")]),
    insertTasks([newTask("worked-2")]),
    levelsInUse(names),
    claimOldest(claim(2), levels),
    claimsOf([podId], 10),
    noteRecovery(orphans),
    recoverTasks(orphans),
    ...cancelTask("worked-2", "request-0"),
    ...retryTask("worked-2", "request-1"),
    claimTasks(claim(3)),
    ...releaseCall(podId, 3),
    reserveAlone(podId, names),
    claimReserved(claim(4), "worked-2"),
    finishTasks([{ ...finish("worked-2"), token: 6 }]),
    ...deleteFinished(["worked-2"], { completed: -1_000, failed: -1_000, cancelled: -1_000 }),
    finishPass(podId),
    markDown([silent]),
    markLeft(podId),
  ];
}

function newTask(taskId: string) {
  return {
    taskId,
    tenant: "default",
    name: "worked",
    payload: "1",
    priority: 0,
    delayMs: 0,
    maxAttempts: null,
    key: null,
    trace: null,
  };
}

function finish(taskId: string): Finish {
  return {
    taskId,
    token: 1,
    status: "completed",
    result: '{"doubled":2}',
    error: null,
    counted: 0,
    delayMs: null,
    wake: null,
    event: { type: "noted", attempt: 1, detail: null },
  };
}
