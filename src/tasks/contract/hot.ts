import { countStep, toStoredRedrive } from "../../dead-letters/redrive.ts";
import { readLinks } from "../../links/sql.ts";
import { listFirings } from "../../schedules/sql.ts";
import {
  discardTasks,
  failedAfter,
  failedSince,
  failedTasks,
  stepTasks,
  takeStep,
} from "../../dead-letters/sql.ts";
import {
  type Candidate,
  selectCandidates,
  unblockAfter,
  limitedPairs,
  claimLimited,
} from "../sql/concurrency.ts";
import { blockedScopes, unneededLimits } from "../sql/limits.ts";
import { readPods } from "../../pods/sql.ts";
import type { Statement } from "../../store/sql.ts";
import {
  countReady,
  namesWaiting,
  otherDepths,
  readyDepth,
  retryTask,
  tasksInClaimOrder,
} from "../sql/inspect.ts";
import { hasMoreAwaiting, listAwaiting } from "../sql/signals.ts";
import { parked } from "../sql/task-state.ts";
import {
  countAhead,
  countHeldBy,
  type QueuePlace,
  readDependencyStates,
  readLateness,
  readSlotHolders,
  readStanding,
} from "../sql/why.ts";
import {
  claimOldest,
  claimReserved,
  claimTasks,
  levelsInUse,
  readAhead,
  releaseCall,
  reserveAlone,
  unparkDue,
} from "../sql/claim.ts";
import {
  type Finish,
  finishTasks,
  insertFinishFollowUps,
  forgetEarlierSnoozes,
  readTaskStates,
  noteFinishes,
  saveProgress,
} from "../sql/finish.ts";
import {
  findKeys,
  findOwn,
  findReplaced,
  linkTasks,
  lockHolders,
  noteReplaced,
  releaseKeys,
  replaceHolders,
  trimReplaced,
  undoUnlessStored,
} from "../sql/enqueue.ts";
import {
  claimsOf,
  deleteFinished,
  insertRecoveryFollowUps,
  noteRecovery,
  recoverTasks,
  sweep,
} from "../sql/recover.ts";
import { type RunFinish, storeRuns } from "../sql/runs.ts";
import {
  insertDependencies,
  getParents,
  missingDependencies,
  dependenciesOf,
  wakeDependents,
  wakeDependentsOfCall,
} from "../sql/dependencies.ts";

const call = { podId: "pod", call: 7, names: ["a", "b"], limit: 10, held: ["x"] };
const pod = { podId: "pod", birthMs: 0, status: "up", beat: 1, passes: 0 } as const;
const finish: Finish = {
  taskId: "x",
  token: 1,
  status: "pending",
  result: null,
  error: null,
  counted: 1,
  delayMs: 5,
  wake: 0,
  event: { type: "retry", attempt: 1, detail: null },
};
const kept = { completed: 1_000, failed: 2_000, cancelled: 3_000 };
const followUp = { taskId: "y", failedId: "x", token: 1, name: "a:failed", payload: "1" };
const orphans = [{ taskId: "x", token: 1, pod }];
const key = {
  taskId: "x",
  tenant: "default",
  name: "a",
  payload: "1",
  priority: 0,
  delayMs: 0,
  maxAttempts: null,
  trace: null,
  key: "k",
};

const origin = { id: "y", what: "run" } as const;

const letter = {
  taskId: "x",
  name: "a",
  tenant: "default",
  group: "g",
  code: "c",
  message: "m",
  failures: 1,
  deaths: 0,
  failedAtMs: 1,
  redriveId: null,
  token: 1,
};
const redrive = toStoredRedrive({ redrive_id: "r", filter: "{}", state: "running", reason: null });

const candidates: Candidate[] = [
  { taskId: "x", tenant: "acme", scope: "key/a/k", scopeLimit: 2 },
  { taskId: "y", tenant: "acme", scope: null, scopeLimit: 1 },
];
const limited = { scope: "key/a/k" };

const flows = new Map([["a", 2]]);

type Given = Partial<Omit<RunFinish, "run">> & { readonly run?: Partial<RunFinish["run"]> };

function runStatements(given: readonly Given[]): Statement[] {
  const finishes = given.map((each, at): RunFinish => ({
    ...finish,
    ...each,
    taskId: `x${at}`,
    event: null,
    run: {
      seq: 1,
      version: 1,
      cursor: "a",
      state: "{}",
      intent: null,
      waiting: null,
      stoppedAt: null,
      failures: 0,
      moved: true,
      stepped: false,
      forgets: [],
      trace: null,
      park: { for: "time", untilMs: null },
      events: [{ type: "complete", attempt: 1, detail: "{}" }],
      children: [],
      cancelsChildren: false,
      takes: [],
      ...each.run,
    },
  }));
  const { statements, after } = storeRuns("pod", finishes);
  return [...statements, ...after];
}

/** What runs for every task, or for every beat, and so must never read the whole table. */
const place: QueuePlace = {
  taskId: "x",
  name: "a",
  tenant: "t1",
  priority: 3,
  createdAtMs: 5,
  deaths: 0,
  parked: parked.ready,
  blockedBy: "key/a/k",
};
/** One in each line of tasks that are claimed in order. */
const places: readonly QueuePlace[] = [
  place,
  { ...place, deaths: 2 },
  { ...place, parked: parked.limited },
  { ...place, parked: parked.limited, deaths: 2 },
  { ...place, parked: parked.blocked },
];

export const hotStatements: Record<string, Statement | Statement[]> = {
  claimTasks: claimTasks(call),
  "claimTasks, going on": claimTasks({ ...call, from: { priority: 0, createdAt: 1 } }),
  claimOldest: claimOldest(call, [{ name: "a", priority: 3 }]),
  levelsInUse: levelsInUse(["a", "b"]),
  claimReserved: claimReserved(call, "x"),
  unparkDue: unparkDue(),
  pairsAtGate: limitedPairs(["a", "b"], "acme", 10),
  candidatesOf: selectCandidates([{ name: "a", tenant: "acme", count: 10, without: ["x"] }], {
    fromPriority: 100,
  }),
  passGates: claimLimited(call, candidates).statements,
  "passGates, of keys tried twice": claimLimited(call, [
    ...candidates,
    { taskId: "z", tenant: "acme", scope: "key/a/k", scopeLimit: 2 },
  ]).statements,
  "passGates, with stored limits": claimLimited(
    call,
    candidates.map((each) => ({ ...each, isStored: true })),
  ).statements,
  "passGates, alone": claimLimited(call, candidates, { alone: true }).statements,
  "claimTasks, after the gates": claimTasks({ ...call, shared: true, pauses: 1 }),
  freeRoom: unblockAfter([{ status: "completed", delayMs: null, limited }]).freeing,
  "freeRoom, of several": unblockAfter([
    { status: "completed", delayMs: null, limited },
    { status: "failed", delayMs: null, limited },
  ]).freeing,
  blockedScopes: blockedScopes("", 10),
  unneededLimits: unneededLimits("", 10),
  lookAhead: readAhead(["a", "b"]),
  reserveAlone: reserveAlone("pod", ["a", "b"]),
  releaseCall: releaseCall("pod", 7),
  finishTasks: finishTasks([finish]),
  noteFinishes: noteFinishes("pod", [finish]),
  forgetEarlierSnoozes: forgetEarlierSnoozes(["x"]),
  followFinishes: insertFinishFollowUps([{ ...finish, status: "failed", followUp }]),
  followRecovery: insertRecoveryFollowUps([followUp], orphans),
  lookAt: readTaskStates(["x"]),
  saveProgress: saveProgress([{ taskId: "x", token: 1, runSeq: 0, value: "1" }]),
  findKeys: findKeys([key]),
  findOwn: findOwn([key]),
  findReplaced: findReplaced([key]),
  holdHolders: lockHolders([key]),
  noteReplaced: noteReplaced([key], { again: false, needed: [] }),
  "noteReplaced, again": noteReplaced([key], { again: true, needed: [key] }),
  releaseKeys: releaseKeys([key]),
  replaceHolders: replaceHolders([key]),
  trimReplaced: trimReplaced([key]),
  undoUnlessStored: undoUnlessStored([key], [key]),
  linkTasks: linkTasks([{ ...key, origin }]),
  listFirings: listFirings("x5", { before: "x", count: 51 }),
  readLinks: [readLinks("x", "task", 10), readLinks("s", "session", 10)],
  namesWaiting: namesWaiting(),
  readyDepth: readyDepth([{ name: "a", priority: 3 }]),
  countReady: countReady(["a", "b"], 200),
  tasksInLine: tasksInClaimOrder(
    [
      { name: "a", rank: 3 },
      { name: "b", rank: 1 },
    ],
    10_000,
  ),
  otherDepths: otherDepths(),
  countAhead: places.flatMap((place) => countAhead(place, 10_000) ?? []),
  readSlotHolders: [readSlotHolders("key/a/k", 20), readSlotHolders("tenant/t1", 20)],
  listAwaiting: (["until", "since"] as const).flatMap((by) => [
    listAwaiting({ by, atMs: 5, taskId: "x" }, { tenant: undefined, count: 51 }),
    listAwaiting({ by, atMs: 5, taskId: "x" }, { tenant: "t1", count: 51 }),
    hasMoreAwaiting({ by, atMs: 5, taskId: "x" }),
  ]),
  countHeldBy: countHeldBy(["pod", "pod-2"], 10_000),
  readDependencyStates: readDependencyStates("x", 100),
  readStanding: [readStanding("x"), readLateness("x")],
  seePods: readPods(["throttle_report", "session_log"]),
  claimsOf: claimsOf(["pod"], 10),
  recoverTasks: recoverTasks(orphans),
  noteRecovery: noteRecovery(orphans),
  sweep: sweep("x", 10, kept),
  "sweep up to young": sweep("x", 10, kept, { upToYoung: true }),
  wakeWaiters: wakeDependents(["x", "y"]),
  wakeWaitersOfCall: wakeDependentsOfCall("pod", 7),
  beginWaiting: insertDependencies([{ dependencyId: "x", dependentId: "y", place: 0 }]),
  "waits that are missing": missingDependencies(["x"]),
  waitsOf: dependenciesOf(["x"]),
  getParents: getParents("x"),
  deleteFinished: deleteFinished(["x"], kept),
  failedAfter: failedAfter({ atMs: 1, taskId: "x" }, 10),
  failedSince: failedSince(1, 1, 10),
  failedTasks: failedTasks(["x"]),
  stepTasks: stepTasks({ redriveId: "r", step: 1 }),
  retryTask: retryTask("x", "r"),
  takeStep: takeStep({ redrive, step: countStep(0, []), writeId: "w" }, [letter], {
    size: 1,
    remaining: 0,
  }),
  discardTasks: discardTasks([letter], "w"),
  "claimTasks, of flows": claimTasks({ ...call, flows }),
  "claimOldest, of flows": claimOldest({ ...call, flows }, [{ name: "a", priority: 3 }]),
  "claimReserved, of flows": claimReserved({ ...call, flows }, "x"),
  "passGates, of flows": claimLimited({ ...call, flows }, candidates).statements,
  "reserveAlone, of flows": reserveAlone("pod", ["a", "b"], { flows }),
  "storeRuns, going on": runStatements([{ status: "claimed" }]),
  "storeRuns, parked and ended": runStatements([
    { status: "pending", wake: 3 },
    { status: "completed", result: "1" },
  ]),
  "storeRuns, with children": runStatements([
    {
      status: "pending",
      run: {
        children: [{ ...key, isRun: true, origin }],
        park: { for: "children", keys: "x/each/" },
      },
    },
  ]),
  "storeRuns, cancelling and told": runStatements([
    { status: "claimed", run: { cancelsChildren: true, takes: ["s"] } },
  ]),
};
