/** The fences of what people ask for, and how each is taken out: pauses, redrives and bulks. */
import { type Mutation, of } from "./mutation.ts";

const pause = of("tasks/sql/limits");
const bulk = of("bulk/sql");
const redrive = of("dead-letters/sql");
const decide = of("dead-letters/redrive");
const lead = of("dead-letters/leader");

export const pauseMutations: readonly Mutation[] = [
  {
    name: "pause: claims that don't know of it",
    edits: [
      {
        file: "src/tasks/sql/claim.ts",
        find: "claim.pauses === undefined ? sql`` :",
        put: "claim.pauses !== -2 ? sql`` :",
      },
    ],
  },
  {
    // Each of them covers the other where there is one writer at a time.
    name: "pause: pods aren't notified, neither together nor one by one",
    edits: [
      pause(
        "sql`update ${pods} set pauses = pauses + 1`",
        "sql`update ${pods} set pauses = pauses`",
      ),
      pause("set pauses = pauses + 1 where pod_id", "set pauses = pauses where pod_id"),
    ],
  },
  {
    name: "pause: a late one undoes a resume",
    edits: [
      pause(
        "paused = 1, done = ${number}\n    where name = ${name} and done < ${number}",
        "paused = 1, done = ${number}\n    where name = ${name}",
      ),
    ],
  },
  {
    name: "resume: a late one undoes a pause",
    edits: [
      pause(
        "reason = null, done = ${number}\n    where name = ${name} and done < ${number}",
        "reason = null, done = ${number}\n    where name = ${name}",
      ),
    ],
  },
  {
    name: "audit: a cancel leaves no entry",
    edits: [
      {
        file: "src/tasks/acts.ts",
        find: "cancelTask(taskId, id, entry)",
        put: "cancelTask(taskId, id)",
      },
    ],
  },
  {
    name: "resume: pods aren't notified",
    edits: [
      {
        file: "src/tasks/claim/pauses.ts",
        find: "dropPause(name, number),\n            notifyPods(),",
        put: "dropPause(name, number),",
      },
    ],
  },
  {
    name: "pause: a pod that comes back has a number that it had before",
    edits: [
      {
        file: "src/pods/sql.ts",
        find: "${abandonedUpTo}, ${metadata}, ${now}, ",
        put: "${abandonedUpTo}, ${metadata}, 0, ",
      },
    ],
  },
];

export const bulkMutations: readonly Mutation[] = [
  {
    name: "bulk: a batch without the revision",
    edits: [
      bulk(
        "where bulk_id = ${bulkId} and revision = ${revision} and ${isOpen}`;",
        "where bulk_id = ${bulkId} and ${isOpen}`;",
      ),
    ],
  },
  {
    // A task that is started over or cancelled has another token, which covers the status.
    name: "bulk: tasks that aren't as they were seen",
    edits: [
      bulk("sql`${task}.status = wanted.seen_status`,\n        "),
      bulk("sql`${task}.claim_token = wanted.token`,\n        "),
    ],
  },
  {
    name: "bulk: goes on with what it has gone through",
    edits: [bulk("cursor_id = ${lastTaskId},", "cursor_id = '',")],
  },
  {
    name: "bulk: ends though tasks are left",
    edits: [
      {
        file: "src/bulk/leader.ts",
        find: "writeBatch({ bulk, ...walked })",
        put: "writeBatch({ bulk, ...walked, isLast: true })",
      },
    ],
  },
];

export const redriveMutations: readonly Mutation[] = [
  {
    name: "redrive: a step without the revision",
    edits: [
      redrive(
        "remaining = ${next.remaining}\n      where redrive_id = ${redriveId} and revision = ${redrive.revision} and state = 'running'",
        "remaining = ${next.remaining}\n      where redrive_id = ${redriveId} and state = 'running'",
      ),
    ],
  },
  {
    name: "redrive: tasks for a step that another took",
    edits: [
      redrive(
        "redrive_id = ${redriveId} and last_write = ${writeId} and step_taken is null",
        "redrive_id = ${redriveId}",
      ),
    ],
  },
  {
    name: "redrive: a step that is counted whenever it is sent",
    edits: [
      redrive(
        " and last_write = ${writeId} and step_taken is null",
        " and last_write = ${writeId}",
      ),
    ],
  },
  {
    // A task that is started over has another token, so the token covers the status.
    name: "redrive: tasks that aren't as they were seen",
    edits: [
      redrive(
        "${hasFailed(task)} and ${task}.claim_token = wanted.token\n    and exists",
        "exists",
      ),
    ],
  },
  {
    // What a leader picks from leaves such tasks out, and the write makes sure: both go.
    name: "redrive: tasks that another redrive has",
    edits: [
      redrive(
        "\n    and not exists (select 1 from ${redrives} holder\n      where holder.redrive_id = ${task}.redrive_id and holder.state in ('running', 'stopping'))",
      ),
      lead("notOf: open.map((each) => each.redriveId)", "notOf: [redrive.redriveId]"),
    ],
  },
  {
    name: "redrive: tasks that failed after it began",
    edits: [lead("untilMs: redrive.createdAtMs", "untilMs: Infinity")],
  },
  {
    name: "redrive: goes on while a step is under way",
    edits: [decide('  if (step.open > 0) return { type: "wait" };\n  // A step', "  // A step")],
  },
  {
    name: "redrive: goes on though the error came back",
    edits: [decide("if (step.failed > 0) {", "if (step.failed > 1e9) {")],
  },
  {
    name: "redrive: several at once first",
    edits: [decide("redrive.step === 0 ? 1 :", "redrive.step === 0 ? 3 :")],
  },
  {
    name: "redrive: ended twice",
    edits: [redrive("and revision = ${redrive.revision}\n      and state = ${redrive.state}", "")],
  },
  {
    name: "redrive: ends though tasks are left",
    edits: [
      lead("if (deadLetters.length === 0) {", "if (deadLetters.length <= 1 && redrive.step > 0) {"),
    ],
  },
];
