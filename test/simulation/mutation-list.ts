/**
 * The fences, and how each is taken out: a piece of text that the source holds exactly once, and
 * what is put in its place. Where two fences cover each other, one mutation takes out both.
 */
import { type Mutation, of } from "./mutation.ts";
import { throttleGateMutations } from "./mutations-of-throttle-gate.ts";
import { aheadMutations, handOverMutations } from "./mutations-of-claims.ts";
import { stepMutations } from "./mutations-of-steps.ts";
import { bulkMutations, pauseMutations, redriveMutations } from "./mutations-of-operators.ts";

const statements = of("tasks/sql");

const recoverBeat = statements(
  `= orphan.pod_id
    and coalesce((select pod.beat from \${pods} pod where pod.pod_id = orphan.pod_id), -1) = orphan.beat\`;
}`,
  "= orphan.pod_id`;\n}",
);

export const mutations: readonly Mutation[] = [
  {
    name: "finish: without the token",
    edits: [statements("\n      and ${tasks}.claim_token = done.token")],
  },
  {
    name: "finish: without the status",
    edits: [statements("\n      and ${tasks}.status in ('claimed', 'pending')")],
  },
  {
    name: "finish: without the wake",
    edits: [statements("and (done.wake is null or ${task}.wake = done.wake)")],
  },
  {
    name: "finish: of a task with dependents, without waking them",
    edits: [statements("sql`and dependents = 0`", "sql``")],
  },
  {
    name: "dependencies: unblocked while another is open",
    edits: [
      statements(
        "when 'pending' then 1 when 'claimed' then 1",
        "when 'pending' then 0 when 'claimed' then 0",
      ),
    ],
  },
  {
    name: "dependencies: what has ended already is waited for",
    edits: [statements("    wakeIfDependenciesEnded(dependentIds),\n")],
  },
  {
    name: "dependencies: run though one of them has failed",
    edits: [
      statements(
        "case when verdict = 2 then ${dependsAs.failed} else ${dependent}.depends end",
        "${dependent}.depends",
      ),
    ],
  },
  {
    name: "cancel: without waking dependents",
    edits: [
      { file: "src/tasks/sql/inspect.ts", find: "    ...wakeDependents([taskId]),\n", put: "" },
    ],
  },
  {
    name: "recover: without waking dependents",
    edits: [{ file: "src/tasks/leader/recover.ts", find: ", ...waking]", put: "]" }],
  },
  {
    name: "progress: without the token",
    edits: [statements(" and ${tasks}.claim_token = newest.token")],
  },
  {
    name: "recover: without the status",
    edits: [statements("and ${from}.status = 'claimed' and", "and")],
  },
  { name: "recover: without the beat", edits: [recoverBeat] },
  {
    name: "recover: deaths without a limit",
    edits: [
      statements("const spent = sql`${deaths} >= ${deathLimit} and", "const spent = sql`false and"),
    ],
  },
  {
    name: "claim: without the floor",
    edits: [statements(" and claim_floor < ${claim.call}", "")],
  },
  {
    name: "claim: lost answers aren't released",
    edits: [
      statements(
        "and ${isOfCall(sql``, call)} and status = 'claimed'`,\n  ];",
        "and claim_call = -1`,\n  ];",
      ),
    ],
  },
  {
    name: "claim: released though it was cancelled",
    edits: [
      statements(
        "case when cancel_requested = 1 and flow_version is null then 'cancelled'\n          else 'pending' end",
        "'pending'",
      ),
    ],
  },
  {
    name: "claim: before its time",
    edits: [
      statements("${isReady} and ${isDue}\n", "${isReady}\n"),
      statements("${isDelayed} and run_at <= ${now}", "${isDelayed}"),
    ],
  },
  {
    name: "claim: names that the pod doesn't know",
    edits: [
      statements(
        "where name = ${name} and ${isReady} and ${isDue}",
        "where ${name} <> '' and ${isReady} and ${isDue}",
      ),
    ],
  },
  {
    name: "claim: what must run alone, beside others",
    edits: [
      statements(
        "${isReady} and ${isDue}\n",
        "status = 'pending' and parked = ${parkedAs.ready} and ${isDue}\n",
      ),
    ],
  },
  {
    name: "recover: cancelled tasks are given back",
    edits: [
      statements("case when ${cancelled} then 'cancelled' when ${spent}", "case when ${spent}"),
    ],
  },
  {
    name: "leader: the oldest leads though it is silent",
    edits: [
      { file: "src/pods/liveness.ts", find: "!isSilent(pod, liveness, limits) &&", put: "" },
      {
        file: "src/pods/liveness.ts",
        find: "(pod.podId === self || pod.idleMs < limits.deadAfterMs)",
        put: "true",
      },
    ],
  },
  {
    name: "worker: others beside one that must run alone",
    edits: [
      {
        file: "src/tasks/claim/claim-loop.ts",
        find: "if (!mayHaveMore || runsAlone) return;",
        put: "if (!mayHaveMore) return;",
      },
    ],
  },
  {
    name: "liveness: silence counted over gaps",
    edits: [
      {
        file: "src/pods/liveness.ts",
        find: "const gap = elapsedMs > limits.gapMs;",
        put: "const gap = false;",
      },
    ],
  },
  {
    name: "liveness: a process that lives is taken for gone",
    edits: [
      {
        file: "src/runtime/pod.ts",
        find: "host !== undefined && parts.thisProcess?.isGone(host) === true",
        put: "host !== undefined && parts.thisProcess !== undefined",
      },
    ],
  },
  {
    name: "liveness: the end of a connection is enough",
    edits: [
      {
        file: "src/pods/liveness.ts",
        find: "pod.endedMs >= endedBeats * limits.heartbeatMs",
        put: "pod.endedMs >= 0",
      },
    ],
  },
  {
    // The key of a time covers the comparison as long as the first task is kept, so both go.
    name: "fire: without comparing, nor a key for each time",
    edits: [
      {
        file: "src/schedules/sql.ts",
        find: "and ${schedules}.next_at = moved.seen_at and ${schedules}.revision = moved.seen_revision",
        put: "",
      },
      {
        file: "src/schedules/fire.ts",
        find: "key: scheduleKeyOf(scheduleId, atMs) }",
        put: "key: `${scheduleKeyOf(scheduleId, atMs)}/${ids.next()}` }",
      },
    ],
  },
  {
    name: "fire: though it wasn't moved, nor a key for each time",
    edits: [
      {
        file: "src/schedules/sql.ts",
        find: "and schedule.mark = made.mark)",
        put: ")",
      },
      {
        file: "src/schedules/fire.ts",
        find: "key: scheduleKeyOf(scheduleId, atMs) }",
        put: "key: `${scheduleKeyOf(scheduleId, atMs)}/${ids.next()}` }",
      },
    ],
  },
  {
    name: "fire: all that were missed as one",
    edits: [
      {
        file: "src/schedules/plan.ts",
        find: "return due.slice(0, Math.min(max, maxTimes));",
        put: "return due.slice(0, 1);",
      },
    ],
  },
  {
    name: "outbox: dropped though it is to be decided anew",
    edits: [
      {
        file: "src/tasks/finish/outbox.ts",
        find: 'if (finished.type === "woken") outbox.again(finish);\n    else outbox.done(finish);',
        put: "outbox.done(finish);",
      },
    ],
  },
  {
    name: "outbox: dropped when the pod stops",
    edits: [
      {
        file: "src/tasks/finish/outbox.ts",
        find: "if (!mayPass) outbox.done(finish);",
        put: "void mayPass;\n        outbox.done(finish);",
      },
    ],
  },
  {
    name: "outbox: what earlier pods left isn't sent",
    edits: [
      {
        file: "src/tasks/finish/outbox-resend.ts",
        find: "if (left.length === 0) return;",
        put: "if (left.length >= 0) return;",
      },
    ],
  },
  {
    name: "enqueue: sent again with another id",
    edits: [
      {
        file: "src/tasks/enqueue/insert.ts",
        find: "await send(statements, { begun: false });",
        put: `await send(statements, { begun: false, again: () => [insertTasks(newTasks.map((each) => ({
          ...each,
          taskId: each.taskId.slice(0, -8) + [...each.taskId.slice(-8)].toReversed().join("") })))] });`,
      },
    ],
  },
  {
    name: "enqueue: a refusal denies what an earlier write of the call has stored",
    edits: [
      {
        file: "src/tasks/enqueue/insert.ts",
        find: "    if (known.size === 0) throw thrown;\n    error = thrown;\n",
        put: "    throw thrown;\n",
      },
    ],
  },
  {
    name: "resend: a refusal after an unknown outcome is believed",
    edits: [
      {
        file: "src/store/retry.ts",
        find: 'if (hasCode(error, "unknown_outcome")) unknown = error;',
        put: "",
      },
    ],
  },
  {
    name: "limits: more of a key than may run",
    edits: [
      statements("isFree: sql`concurrency_key is null or nth <= slots`", "isFree: sql`true`"),
    ],
  },
  {
    name: "limits: more of a key that a claim tries once than may run",
    edits: [
      statements(
        "where concurrency_key is null or ${freeSlotsOfKey(sql`tried.concurrency_key`)} >= 1`",
        "where true`",
      ),
    ],
  },
  {
    name: "limits: more of a tenant than may run",
    edits: [statements("isFree: sql`slots is null or nth <= slots`", "isFree: sql`true`")],
  },
  {
    name: "limits: blocked tasks aren't unblocked",
    edits: [statements("where slots is null or ranked.nth <= slots", "where ranked.nth < 0")],
  },
  ...aheadMutations,
  ...handOverMutations,
  ...stepMutations,
  ...throttleGateMutations,
  ...pauseMutations,
  ...redriveMutations,
  ...bulkMutations,
];
