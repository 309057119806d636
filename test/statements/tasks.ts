import { sql, table } from "../../src/store/sql.ts";
import * as claim from "../../src/tasks/sql/claim.ts";
import * as concurrency from "../../src/tasks/sql/concurrency.ts";
import * as dependencies from "../../src/tasks/sql/dependencies.ts";
import * as enqueue from "../../src/tasks/sql/enqueue.ts";
import * as finish from "../../src/tasks/sql/finish.ts";
import * as inherit from "../../src/tasks/sql/inherit-files.ts";
import * as inspect from "../../src/tasks/sql/inspect.ts";
import * as logged from "../../src/tasks/sql/logged.ts";
import * as list from "../../src/tasks/sql/list.ts";
import * as limits from "../../src/tasks/sql/limits.ts";
import * as recover from "../../src/tasks/sql/recover.ts";
import * as runRelations from "../../src/tasks/sql/run-relations.ts";
import * as runs from "../../src/tasks/sql/runs.ts";
import * as signals from "../../src/tasks/sql/signals.ts";
import * as stepChildren from "../../src/tasks/sql/step-children.ts";
import * as steps from "../../src/tasks/sql/steps.ts";
import * as taskState from "../../src/tasks/sql/task-state.ts";
import * as why from "../../src/tasks/sql/why.ts";
import { entry } from "./audit.ts";
import { noStatement, type RoomStatements, sqlFile } from "./examples.ts";

export const plainTask: enqueue.NewTask = {
  taskId: "task-1",
  tenant: "default",
  name: "mail",
  payload: "{}",
  priority: 0,
  delayMs: 0,
  maxAttempts: null,
  key: null,
  trace: null,
};
const withFile: enqueue.NewTask = {
  ...plainTask,
  payload: `{"doc":{"type":"file","url":"flotilla-file:${"ab".repeat(32)}"}}`,
  files: [
    {
      taskId: "task-1",
      tenant: "default",
      hash: "ab".repeat(32),
      from: { kind: "upload", id: "upload-1" },
    },
  ],
};
const keyed: enqueue.NewTask = {
  ...plainTask,
  key: "key-1",
  policy: { onDuplicate: "replace", whileUnfinished: true, forMs: 60_000 },
  scope: "key/mail/acme",
  limited: true,
  depends: 1,
};
const child = {
  ...plainTask,
  taskId: "child-1",
  key: "run-1/charge/0",
  parentId: "run-1",
  place: 0,
};

const taskStep: steps.TaskStep = {
  taskId: "task-1",
  token: 2,
  step: {
    key: "read",
    seq: 3,
    kind: "done",
    inputHash: null,
    value: "1",
    tookMs: 5,
    forgets: false,
  },
};

const inQueue: why.QueuePlace = {
  taskId: "task-1",
  name: "mail",
  tenant: "acme",
  priority: 1,
  createdAtMs: 100,
  deaths: 0,
  parked: taskState.parked.ready,
  blockedBy: "key/mail/acme",
};

const paid = { signalId: "signal-1", name: "paid", payload: "{}" };

const claimCall: claim.ClaimCall = { podId: "pod-1", call: 5, names: ["mail", "order"], limit: 10 };
const fullClaim: claim.ClaimCall = {
  ...claimCall,
  flows: new Map([["order", 2]]),
  maxByName: new Map([["mail", 3]]),
  together: [{ names: ["order"], max: 2 }],
  from: { priority: 1, createdAt: 100 },
  held: ["task-9"],
  pauses: 4,
  shared: true,
};
const levels = [
  { name: "mail", priority: 0 },
  { name: "order", priority: 1 },
];
const inKey = { taskId: "task-1", tenant: "acme", scope: "key/mail/acme", scopeLimit: 2 };
const inTenant = { taskId: "task-2", tenant: "acme", scope: null, scopeLimit: 0 };

const completed: finish.Finish = {
  taskId: "task-1",
  token: 3,
  status: "completed",
  result: "{}",
  error: null,
  counted: 0,
  delayMs: null,
  wake: null,
  event: null,
};
const failed: finish.Finish = {
  ...completed,
  status: "failed",
  error: "{}",
  counted: 1,
  wake: 2,
  hasDependents: true,
  followUp: { taskId: "task-2", failedId: "task-1", token: 3, name: "alarm", payload: "{}" },
  event: { type: "failed", attempt: 1, detail: "{}" },
};
const orphan = {
  taskId: "task-1",
  token: 3,
  pod: { podId: "pod-2", beat: 4, birthMs: 1, status: "up", passes: 0 },
} as const;
const kept = { completed: 1_000, failed: 2_000, cancelled: 3_000 };

const plainRun: runs.RunFinish = {
  ...completed,
  taskId: "run-1",
  status: "claimed",
  run: {
    seq: 1,
    version: 2,
    cursor: "charge",
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
    events: [{ type: "step", attempt: 1, detail: "{}" }],
    children: [],
    cancelsChildren: false,
    takes: [],
  },
};
const parkedRun = (park: finish.RunPark): runs.RunFinish => ({
  ...plainRun,
  status: "pending",
  run: { ...plainRun.run, park },
});
const steppedRun: runs.RunFinish = {
  ...plainRun,
  run: {
    ...plainRun.run,
    moved: false,
    stepped: true,
    step: { part: "charge", write: taskStep.step },
    forgets: ["reserve"],
  },
};
const fullRun: runs.RunFinish = {
  ...parkedRun({ for: "children", keys: "run-1/charge/" }),
  wake: 2,
  hasDependents: true,
  run: {
    ...plainRun.run,
    stoppedAt: "charge",
    park: { for: "children", keys: "run-1/charge/" },
    children: [child],
    cancelsChildren: true,
    takes: ["signal-1"],
  },
};
const fence = (task: ReturnType<typeof sql>) => sql`${table("task")} ${task} where true`;

const walkSpan = { before: "task-9", from: "task-1", count: 2_000 };

export const taskStatements: RoomStatements = {
  "src/tasks/sql/task-state.ts": sqlFile(taskState, {
    selectStates: () => taskState.selectStates(["task-1", "task-2"]),
    isPending: () => taskState.isPending(sql`task`),
    isOfCall: () => taskState.isOfCall(sql`task.`, 5),
    isRunning: () => taskState.isRunning(sql`task.`),
    nextSeq: () => taskState.nextSeq(sql`task.task_id`),
    requestMark: () => taskState.requestMark("task-1", "request-1"),
    writesBefore: () => taskState.writesBefore(sql`task.task_id`),
    getEvents: () => [
      taskState.getEvents("task-1"),
      taskState.getEvents("task-1", { after: 2, limit: 10 }),
      taskState.getEvents("task-1", { before: 900, limit: 10 }),
    ],
    keyScope: noStatement,
    queueScope: noStatement,
    keyOf: noStatement,
    tenantOf: noStatement,
    runningOfKey: () => taskState.runningOfKey(sql`given.scope`),
    runningOfTenant: () => taskState.runningOfTenant(sql`task.tenant`),
    freeSlotsOfKey: () => taskState.freeSlotsOfKey(sql`task.concurrency_key`),
    freeSlotsOfTenant: () => taskState.freeSlotsOfTenant(sql`task.tenant`),
  }),
  "src/tasks/sql/inherit-files.ts": sqlFile(inherit, {
    ownerOfOrigin: noStatement,
    inheritFiles: () => inherit.inheritFiles([{ ...withFile, parentId: "task-0" }]),
  }),
  "src/tasks/sql/enqueue.ts": sqlFile(enqueue, {
    insertTasks: () => [
      enqueue.insertTasks([plainTask]),
      enqueue.insertTasks([keyed], sql`fresh.task_id <> ''`),
      enqueue.insertTasks([withFile]),
    ],
    filesOf: noStatement,
    replaceTaskFiles: () =>
      enqueue.replaceTaskFiles([{ ...keyed, payload: withFile.payload, files: withFile.files! }]),
    linkTasks: () => enqueue.linkTasks([{ ...plainTask, origin: { id: "task-0", what: "task" } }]),
    findKeys: () => enqueue.findKeys([keyed]),
    findOwn: () => enqueue.findOwn([keyed]),
    lockHolders: () => enqueue.lockHolders([keyed]),
    insertAliases: () => enqueue.insertAliases([keyed], sql`fresh.task_id <> ''`),
    findAliases: () => enqueue.findAliases(["task-1"]),
    deleteAliasesOf: () => enqueue.deleteAliasesOf(sql`select 'task-1'`),
    probeTask: () => enqueue.probeTask(keyed),
    releaseKeys: () => enqueue.releaseKeys([keyed]),
    noteReplaced: () => [
      enqueue.noteReplaced([keyed], { again: false, needed: [] }),
      enqueue.noteReplaced([keyed], { again: true, needed: [plainTask] }),
    ],
    replaceHolders: () => enqueue.replaceHolders([keyed]),
    trimReplaced: () => enqueue.trimReplaced([keyed]),
    findReplaced: () => enqueue.findReplaced([keyed]),
    undoUnlessStored: () => enqueue.undoUnlessStored([keyed], [plainTask]),
  }),
  "src/tasks/sql/logged.ts": sqlFile(logged, {
    whenLogged: noStatement,
    runOutdated: () =>
      logged.runOutdated(
        [{ ...plainTask, outdates: ["task-0"], logId: 1 }],
        (logId) => sql`${logId} = 1`,
      ),
  }),
  "src/tasks/sql/claim.ts": sqlFile(claim, {
    unparkDue: () => claim.unparkDue(),
    readAhead: () => claim.readAhead(["mail"], "pod-1"),
    claimTasks: () => [
      claim.claimTasks(claimCall),
      claim.claimTasks(fullClaim),
      claim.claimTasks({ ...claimCall, ahead: true }),
      claim.claimTasks({ ...claimCall, versions: new Map([["mail", 3]]) }),
    ],
    markBegun: () => claim.markBegun("pod-1", { call: 5, taskId: "task-1", pauses: 1 }),
    isHeldBack: () => claim.isHeldBack(sql`task`),
    frontierOf: noStatement,
    levelsInUse: () => claim.levelsInUse(["mail"]),
    claimOldest: () => [claim.claimOldest(claimCall, levels), claim.claimOldest(fullClaim, levels)],
    notNewer: () => [
      claim.notNewer({}, ["mail"]),
      claim.notNewer({ flows: new Map([["order", 2]]) }, ["mail", "order"]),
      claim.notNewer({ versions: new Map([["mail", 3]]) }, ["mail", "order"]),
    ],
    claimReserved: () => claim.claimReserved(claimCall, "task-1"),
    claimWhere: () => claim.claimWhere(claimCall, sql`task_id = 'task-1'`),
    reserveAlone: () => claim.reserveAlone("pod-1", ["mail"]),
    releaseCall: () => claim.releaseCall("pod-1", 5),
  }),
  "src/tasks/sql/concurrency.ts": sqlFile(concurrency, {
    limitedPairs: () => concurrency.limitedPairs(["mail"], "", 10),
    selectCandidates: () =>
      concurrency.selectCandidates([{ name: "mail", tenant: "acme", count: 10, without: ["x"] }], {
        fromPriority: 5,
      }),
    lockScopes: () => [
      ...concurrency.lockScopes([inKey, inTenant]),
      ...concurrency.lockScopes([{ ...inKey, isStored: true }, inTenant]),
    ],
    lockLimits: () => concurrency.lockLimits(["tenant/acme"]),
    claimCandidates: () => [
      concurrency.claimCandidates(claimCall, [inKey]),
      concurrency.claimCandidates(claimCall, [inKey], { alone: true }),
    ],
    blockCandidates: () => concurrency.blockCandidates(claimCall, [inKey, inTenant]),
    claimLimited: () => concurrency.claimLimited(claimCall, [inKey]),
    unblock: () => concurrency.unblock(["key/mail/acme"], 3),
    unblockUnchecked: () => concurrency.unblockUnchecked(["key/mail/acme"], 3),
    unblockAfter: () => [
      concurrency.unblockAfter([{ ...completed, limited: { scope: "key/mail/acme" } }]),
      concurrency.unblockAfter([
        { ...completed, limited: { scope: "key/mail/acme" } },
        { ...completed, limited: { scope: "key/mail/acme" } },
      ]),
    ],
  }),
  "src/tasks/sql/dependencies.ts": sqlFile(dependencies, {
    wakeDependents: () => dependencies.wakeDependents(["task-1"]),
    wakeDependentsOfCall: () => dependencies.wakeDependentsOfCall("pod-1", 5),
    wakeDependentsOfChildren: () => dependencies.wakeDependentsOfChildren(["run-1"]),
    wakeIfDependenciesEnded: () => dependencies.wakeIfDependenciesEnded(["task-1"]),
    wakeChildren: () => dependencies.wakeChildren(["run-1"]),
    notifyingParents: () => dependencies.notifyingParents(["task-1"], [sql`select 'starting'`]),
    dependenciesExist: () => dependencies.dependenciesExist(["task-1"]),
    missingDependencies: () => dependencies.missingDependencies(["task-1"]),
    insertDependencies: () =>
      dependencies.insertDependencies([
        { dependencyId: "task-1", dependentId: "task-2", place: 0 },
      ]),
    dependenciesOf: () => dependencies.dependenciesOf(["task-2"]),
    getParents: () => dependencies.getParents("task-2"),
    deleteDependencies: () => dependencies.deleteDependencies(sql`select 'task-1'`),
  }),
  "src/tasks/sql/finish.ts": sqlFile(finish, {
    finishTasks: () => [finish.finishTasks([completed]), finish.finishTasks([failed])],
    wakesDependents: noStatement,
    inOrder: noStatement,
    noteFinishes: () => finish.noteFinishes("pod-1", [failed]),
    insertFinishFollowUps: () => finish.insertFinishFollowUps([failed]),
    wakeDependentsAfter: () => finish.wakeDependentsAfter([failed]),
    readTaskStates: () => finish.readTaskStates(["task-1"]),
    saveProgress: () =>
      finish.saveProgress([{ taskId: "task-1", token: 3, runSeq: 0, value: "{}" }]),
    forgetEarlierSnoozes: () => finish.forgetEarlierSnoozes(["task-1"]),
    insertFollowUps: () => finish.insertFollowUps([failed.followUp!], sql`task.status = 'claimed'`),
    linkFollowUps: () => finish.linkFollowUps([failed.followUp!]),
    readProgress: () => finish.readProgress("task-1"),
  }),
  "src/tasks/sql/recover.ts": sqlFile(recover, {
    claimsOf: () => recover.claimsOf(["pod-2"], 10),
    recoverTasks: () => recover.recoverTasks([orphan]),
    noteRecovery: () => recover.noteRecovery([orphan]),
    insertRecoveryFollowUps: () => recover.insertRecoveryFollowUps([failed.followUp!], [orphan]),
    sweep: () => [recover.sweep("", 10, kept), recover.sweep("", 10, kept, { upToYoung: true })],
    deleteFinished: () => recover.deleteFinished(["task-1"], kept, entry),
    deleteBelongings: () => recover.deleteBelongings(sql`select 'task-1'`),
  }),
  "src/tasks/sql/runs.ts": sqlFile(runs, {
    isRunFinish: noStatement,
    storeRuns: () => [
      runs.storeRuns("pod-1", [plainRun]),
      runs.storeRuns("pod-1", [fullRun]),
      runs.storeRuns("pod-1", [steppedRun]),
    ],
    keepRuns: () => [runs.keepRuns([plainRun]), runs.keepRuns([{ ...plainRun, wake: 2 }])],
    leaveRuns: () =>
      runs.leaveRuns(
        [
          parkedRun({ for: "time", untilMs: 100 }),
          parkedRun({ for: "signal", name: "paid", untilMs: null }),
          parkedRun({ for: "signal", name: "paid", untilMs: 100 }),
          parkedRun({ for: "children", keys: "run-1/charge/" }),
          parkedRun({ for: "slot", scope: "queue/orders" }),
          parkedRun({ for: "people", why: "{}", byVersion: 2 }),
        ],
        false,
      ),
    findNotedWrites: () => runs.findNotedWrites("pod-1", [plainRun]),
  }),
  "src/tasks/sql/signals.ts": sqlFile(signals, {
    sendSignal: () => [
      ...signals.sendSignal({ ...paid, taskId: "run-1", to: "run" }),
      ...signals.sendSignal({ ...paid, taskId: "task-1", to: "task" }, entry),
    ],
    listAwaiting: () => [
      signals.listAwaiting(
        { by: "until", atMs: 5, taskId: "run-1" },
        { tenant: undefined, count: 51 },
      ),
      signals.listAwaiting(
        { by: "since", atMs: 5, taskId: "run-1" },
        { tenant: "acme", count: 51 },
      ),
    ],
    hasMoreAwaiting: () => signals.hasMoreAwaiting({ by: "since", atMs: 5, taskId: "run-1" }),
    firstSignal: () => signals.firstSignal("run-1", ["paid", "refused"]),
    addSignals: () => signals.addSignals(sql`${table("task")} task where true`, paid),
    wakeSignalled: () => signals.wakeSignalled(sql`task_id = 'run-1'`),
  }),
  "src/tasks/sql/why.ts": sqlFile(why, {
    readStanding: () => why.readStanding("task-1"),
    readLateness: () => why.readLateness("task-1"),
    readDependencyStates: () => why.readDependencyStates("task-1", 100),
    readSlotHolders: () => [
      why.readSlotHolders("key/mail/acme", 20),
      why.readSlotHolders("tenant/acme", 20),
    ],
    countHeldBy: () => why.countHeldBy(["pod-1"], 10_000),
    countAhead: () => [
      why.countAhead(inQueue, 10_000),
      why.countAhead({ ...inQueue, deaths: 2 }, 10_000),
      why.countAhead({ ...inQueue, parked: taskState.parked.limited }, 10_000),
      why.countAhead({ ...inQueue, parked: taskState.parked.limited, deaths: 2 }, 10_000),
      why.countAhead({ ...inQueue, parked: taskState.parked.blocked }, 10_000),
    ],
  }),
  "src/tasks/sql/steps.ts": sqlFile(steps, {
    storeSteps: () => [
      ...steps.storeSteps([taskStep]),
      ...steps.storeSteps([{ ...taskStep, step: { ...taskStep.step, forgets: true } }]),
      ...steps.storeSteps([{ ...taskStep, step: { ...taskStep.step, takes: "signal-1" } }]),
      ...steps.storeSteps([{ ...taskStep, raises: { version: 2, begunBy: 1 } }]),
    ],
    selectStored: () => steps.selectStored([taskStep]),
    listSteps: () => [
      steps.listSteps("task-1", {}),
      steps.listSteps("task-1", { after: 3, limit: 10 }),
    ],
    readUnasked: () => steps.readUnasked("task-1"),
    unaskedEvent: noStatement,
    countSteps: () => steps.countSteps("task-1"),
    countStepsOf: () => steps.countStepsOf(sql`select 'task-1'`),
    forgetParts: () => steps.forgetParts([["run-1", "charge"]], fence),
    writeColumns: noStatement,
    writeValues: noStatement,
    forgetSteps: () => [
      steps.forgetSteps(sql`select 'task-1'`, "failed"),
      steps.forgetSteps(sql`select 'task-1'`, "all"),
    ],
    hasSteps: () => sql`select ${steps.hasSteps(sql`task`)} from ${table("task")} task`,
    hasStepped: () => sql`select 1 from ${table("task")} task where ${steps.hasStepped(sql`task`)}`,
    forgetStepsByKey: () => steps.forgetStepsByKey(sql`select 'task-1'`, ["read[a]"]),
    isStoredBy: () =>
      sql`select 1 from (select 'task-1' as task_id, '' as part, 'a' as key, 1 as token, 1 as seq) given
        where ${steps.isStoredBy(sql`given`)}`,
  }),
  "src/tasks/sql/step-children.ts": sqlFile(stepChildren, {
    startStepChildren: () =>
      stepChildren.startStepChildren([
        {
          ...taskStep,
          children: { rows: [child], again: [{ taskId: "child-0", token: 2 }] },
        },
      ]),
    readStartedChildren: () => stepChildren.readStartedChildren("task-1", "task-1/read/"),
    readStepChildren: () => stepChildren.readStepChildren("task-1", "task-1/read/"),
  }),
  "src/tasks/sql/run-relations.ts": sqlFile(runRelations, {
    takeSignals: () => runRelations.takeSignals([["run-1", "signal-1"]], fence),
    startOver: () => runRelations.startOver([child], fence),
    deleteOtherChildren: () => runRelations.deleteOtherChildren([child], fence),
    startTasksOver: () => runRelations.startTasksOver(sql`select 'task-1'`),
    insertChildDependencies: () => runRelations.insertChildDependencies([child]),
  }),
  "src/tasks/sql/list.ts": sqlFile(list, {
    taskConditions: () => [
      ...list.taskConditions({ name: "mail", status: "failed", tenant: "acme", key: "k" }),
      ...list.taskConditions({ scope: "key/mail/k", pod: "pod-1" }),
      ...list.taskConditions({ state: "ready" }),
      ...list.taskConditions({
        payload: [
          { path: ["order", "id"], value: 7 },
          { path: ["to"], value: "ada" },
        ],
      }),
    ],
    walkTasks: () => [
      list.walkTasks({ ...walkSpan, fits: [], wanted: 11 }),
      list.walkTasks({
        ...walkSpan,
        fits: list.taskConditions({ name: "mail", status: "failed" }),
        among: list.isFailed,
        wanted: 11,
      }),
    ],
    isRunNamed: () => list.isRunNamed("order"),
    isAmongIds: () => list.isAmongIds(["task-2", "task-1"]),
    tasksSetAside: () => [list.tasksSetAside({}, 10), list.tasksSetAside({ name: "order" }, 10)],
    checkTasks: () => list.checkTasks(["task-2", "task-1"], { fits: [], wanted: 11 }),
    readListed: () => list.readListed(["task-2"], list.taskConditions({ name: "mail" })),
    runningTasks: () => [
      list.runningTasks({}, 10),
      list.runningTasks({ pod: "pod-1" }, 10),
      list.runningTasks({ scope: "key/mail/k" }, 10),
    ],
    pendingTasks: () => [
      list.pendingTasks({}, 10),
      list.pendingTasks({ name: "mail" }, 10),
      list.pendingTasks({ name: "mail", state: "delayed" }, 10),
      list.pendingTasks({ state: "ready" }, 10),
    ],
    openTasks: () => list.openTasks({ name: "mail" }, 10),
    tasksOfIds: () => list.tasksOfIds(["task-1", "task-2"]),
    tasksOfKey: () => [
      list.tasksOfKey({ name: "mail", key: "k" }),
      list.tasksOfKey({ name: "mail", key: "k", tenant: "acme" }),
    ],
    countNewest: () => list.countNewest(10_000),
    countHeld: () => list.countHeld(10_000),
  }),
  "src/tasks/sql/inspect.ts": sqlFile(inspect, {
    requestCancel: () => inspect.requestCancel(sql`true`),
    cancelChildren: () => inspect.cancelChildren(["run-1"], fence),
    cancelChildrenOf: () => inspect.cancelChildrenOf([{ taskId: "task-1", token: 2 }]),
    cancelTask: () => inspect.cancelTask("task-1", "request-1", entry),
    retryTask: () => [
      ...inspect.retryTask("task-1", "request-1"),
      ...inspect.retryTask("task-1", "request-1", "all"),
      ...inspect.retryTask("task-1", "request-1", ["read"], entry),
    ],
    resumeTask: () => inspect.resumeTask("task-1", "request-1", ["read"], entry),
    readTenant: () => inspect.readTenant("task-1"),
    getTask: () => inspect.getTask("task-1"),
    getTasks: () => inspect.getTasks(["task-1"]),
    countTasks: () => inspect.countTasks(),
    countClaimed: () => inspect.countClaimed(10_000),
    namesWaiting: () => inspect.namesWaiting(),
    readyDepth: () => inspect.readyDepth(levels),
    otherDepths: () => inspect.otherDepths(),
    nextDue: () => inspect.nextDue(),
    tasksInClaimOrder: () => inspect.tasksInClaimOrder([{ name: "mail", rank: 1 }], 10),
    countReady: () => inspect.countReady(["mail"], 10),
  }),
  "src/tasks/sql/limits.ts": sqlFile(limits, {
    entryOfLimit: () => limits.entryOfLimit("tenant/acme", 3, entry),
    putLimit: () => limits.putLimit("tenant/acme", 3),
    dropLimit: () => [limits.dropLimit("tenant/acme"), limits.dropLimit("key/mail/acme")],
    readScopes: () => limits.readScopes([{ scope: "tenant/acme", tenant: "acme" }]),
    notableScopes: () => limits.notableScopes(),
    blockedScopes: () => limits.blockedScopes("", 10),
    unneededLimits: () => limits.unneededLimits("", 10),
    dropUnneeded: () => limits.dropUnneeded(["key/mail/acme"]),
    tenantCounts: () => limits.tenantCounts(),
    numberToPause: () => limits.numberToPause("mail"),
    numberToResume: () => limits.numberToResume("mail"),
    putPause: () => limits.putPause("mail", "repairs", 2),
    dropPause: () => limits.dropPause("mail", 3),
    entryOfPause: () => limits.entryOfPause({ name: "mail", number: 2, paused: 1 }, entry),
    listPauses: () => limits.listPauses(),
    listPausesWithActors: () => limits.listPausesWithActors(),
    notifyPods: () => limits.notifyPods(),
    podIds: () => limits.podIds(),
    notifyPod: () => limits.notifyPod("pod-1"),
    selectPauses: () => limits.selectPauses("pod-1"),
  }),
};
