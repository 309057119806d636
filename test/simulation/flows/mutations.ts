/**
 * The fences of runs, and how each is taken out. That of signals is met so seldom by chance that a test
 * provokes it: `flows/handover.test.ts`, "loses no signal to a pod that had it before".
 */
import { type Mutation, of } from "../mutation.ts";

const runs = of("tasks/sql");
const ask = of("tasks/sql/inspect");
const waits = of("tasks/sql/dependencies");
const claim = of("tasks/sql/claim", "tasks/sql/claim");
const recover = of("tasks/sql/recover");
const finishing = of("tasks/finish/finish-writer");
const asking = of("flows/sql", "tasks/sql/signals");
const drive = of("flows/drive/drive", "flows/drive/drive", "flows/drive/load");
const attempt = of("flows/drive/attempt");
const write = of("flows/drive/save");

export const flowMutations: readonly Mutation[] = [
  {
    name: "run: without the token",
    edits: [
      runs("${task}.claim_token = ${given}.token and ${task}.run_seq", "${task}.run_seq"),
      runs("sql`${task}.claim_token = next.token\n    and ${task}.run_seq", "sql`${task}.run_seq"),
    ],
  },
  {
    name: "run: without the number of its writes",
    edits: [
      runs(" and ${task}.run_seq = ${given}.run_seq"),
      runs("\n    and ${task}.run_seq = next.run_seq and ${task}.status", " and ${task}.status"),
    ],
  },
  {
    name: "run: parked without the wake",
    edits: [runs("and (${given}.wake is null or ${task}.wake = ${given}.wake)")],
  },
  {
    name: "run: goes on with what it saw, whatever has come since",
    edits: [drive("const boundToWake = isBoundToWake(event);", "const boundToWake = false;")],
  },
  {
    name: "run: not woken for a child that is started over",
    edits: [
      waits(
        "\n    ...starting,\n    sql`update ${tasks} set wake = wake + 1",
        "\n    ...starting,\n    sql`update ${tasks} set wake = wake",
      ),
    ],
  },
  {
    name: "run: waits for children of every step",
    edits: [waits("select ${countedStatus(status)} from", "select ${status} from")],
  },
  {
    name: "run: children anew where their step has another name by now",
    edits: [of("flows/drive/save")("startedBy ?? effect.transition", "effect.transition")],
  },
  {
    name: "run: ended without waking new dependents",
    edits: [
      runs("wakes ? sql`` : sql`and (${given}.ends = 0 or ${task}.dependents = 0)`", "sql``"),
    ],
  },
  {
    name: "run: parked for children that have ended meanwhile",
    edits: [runs("parents.length > 0 ? [wakeIfDependenciesEnded(parents)] : []", "[]")],
  },
  {
    name: "run: events without the fence",
    edits: [
      runs("where ${isFenced(sql`task`, sql`noted`, wakes)}", "where true"),
      runs("task.claim_token = noted.token and task.run_seq = noted.run_seq + 1", "true"),
    ],
  },
  {
    name: "run: children without the fence",
    edits: [
      runs(
        "insertTasks(children, sql`${isAmong(parents, sql`fresh.parent_id`)}`)",
        "insertTasks(children, sql`${parents.strings.length} > 0`)",
      ),
    ],
  },
  {
    name: "run: signals that stay untaken",
    edits: [runs("if (takes.length > 0) statements", "if (takes.length > 1_000) statements")],
  },
  {
    name: "run: children of the cancelled go on",
    edits: [runs("if (cancelling.length > 0) statements", "if (cancelling.length > 9) statements")],
  },
  {
    name: "run: children that have failed aren't started over with their parent",
    edits: [runs("    statements.push(...startOver(children, fence));\n")],
  },
  {
    name: "run: deaths kept from one transition to the next",
    edits: [
      runs(
        "deaths = case when next.moved = 1 or next.stepped = 1 then 0 else deaths end",
        "deaths = deaths",
      ),
      runs("retry_count = 0, deaths = ${noDeaths}, progress", "retry_count = 0, progress"),
    ],
  },
  {
    name: "run: steps outlive their transition",
    edits: [runs("if (forgotten.length > 0) statements", "if (forgotten.length > 99) statements")],
  },
  {
    name: "run: the version stays",
    edits: [
      runs("flow_version = coalesce(next.version, flow_version),"),
      runs("flow_version = next.version,"),
    ],
  },
  {
    name: "run: goes on though it was taken for dead",
    edits: [finishing('held: row["status"] === "claimed"', "held: true")],
  },
  {
    name: "run: a resend that finds its write is taken for lost",
    edits: [
      finishing(
        "row && finish.run && isStoredRun(row, finish)",
        "row && finish.run && row === undefined",
      ),
    ],
  },
  {
    name: "run: a resend that finds another's write is taken for stored",
    edits: [
      finishing(
        'isOurs && Number(row["run_seq"]) === run!.seq + 1',
        'isOurs && Number(row["run_seq"]) >= run!.seq',
      ),
    ],
  },
  {
    name: "claim: by an earlier version",
    edits: [
      claim(
        "coalesce(${version}, 0) <= ${known!.get(name)!}",
        "coalesce(${version}, 0) <= ${known!.get(name)!} + 9",
      ),
    ],
  },
  {
    name: "claim: a run that was cancelled is ended by a release",
    edits: [
      claim(
        "when cancel_requested = 1 and flow_version is null then 'cancelled'",
        "when cancel_requested = 1 then 'cancelled'",
      ),
    ],
  },
  {
    name: "recover: a cancelled run is ended",
    edits: [recover("sql`cancel_requested = 1 and ${isTask}`", "sql`cancel_requested = 1`")],
  },
  {
    name: "recover: a run that kills pods is failed",
    edits: [
      recover(
        "sql`${deaths} >= ${deathLimit} and ${isTask}`;\n  const cancelled",
        "sql`${deaths} >= ${deathLimit}`;\n  const cancelled",
      ),
    ],
  },
  {
    name: "cancel: a run is ended at once",
    edits: [
      ask(
        "requestCancel(sql`(${isPendingTask} or ${isUnreadable})`)",
        "requestCancel(sql`status = 'pending'`)",
      ),
    ],
  },
  {
    name: "cancel: what was cancelled before it was set aside can't be given up",
    edits: [ask("givenUp = sql`${isOpen} and", "givenUp = sql`${unasked} and")],
  },
  {
    name: "cancel: what is parked stays so",
    edits: [ask("and ${isWaiting}", "and parked = ${parkedAs.untilDue}")],
  },
  {
    name: "started over: from where it ended",
    edits: [ask("cursor = ${restartedAt}, intent = null", "cursor = cursor, intent = null")],
  },
  {
    name: "signal: doesn't wake its run",
    edits: [
      asking(
        "status = 'pending' and parked in (${parkedAs.untilDue}, ${parkedAs.untilSignal}) and awaits is not null",
        "status = 'x' and awaits is not null",
      ),
    ],
  },
  {
    name: "signal: isn't seen by a run that parks",
    edits: [asking("set wake = wake + 1,\n        last_update = case", "set last_update = case")],
  },
  {
    name: "signal: the newest first",
    edits: [asking("taken = 0 order by seq limit 1", "taken = 0 order by seq desc limit 1")],
  },
  {
    name: "set aside: no later version takes it up",
    edits: [
      asking(
        "${isSetAside} and set_aside_version < ${version}",
        "${isSetAside} and set_aside_version < 0",
      ),
    ],
  },
  {
    name: "drive: a cancel from before the claim isn't seen",
    edits: [drive("running.cancelSeen = row.cancelRequested;", "running.cancelSeen = false;")],
  },
  {
    name: "drive: a cancel that a write returns isn't seen",
    edits: [
      drive(
        "if (cancelRequested === true) running.cancelSeen = true;\n      // The pod",
        "// The pod",
      ),
    ],
  },
  {
    name: "drive: finalizers can be cancelled",
    edits: [drive("if (run.intent !== null) running.cancelSeen = true;", "")],
  },
  {
    name: "drive: goes on while the pod stops",
    edits: [
      drive(
        'return running.stopReason === "shutdown" || parts.stopping();',
        'return running.stopReason === "shutdown";',
      ),
    ],
  },
  {
    name: "drive: what is parked for is read but once",
    edits: [drive('if (step.type !== "call") return undefined;', "")],
  },
  {
    name: "attempt: aborted for what an earlier one was",
    edits: [
      attempt(
        `    running.stopReason = undefined;
    running.controller = undefined;
  }
  running.startedMs`,
        `  }
  running.startedMs`,
      ),
    ],
  },
  {
    name: "write: a retry without the wake",
    edits: [
      write(
        "        delayMs: 1,\n        wake: fenced.wake,\n",
        "        delayMs: 1,\n        wake: null,\n",
      ),
    ],
  },
  {
    name: "drive: deaths from before a move hide those behind it",
    edits: [drive("if (columns.deaths <= run.deaths) return", "if (columns.deaths >= 0) return")],
  },
  {
    name: "drive: runs though what it was to run after has failed",
    edits: [drive("if (claim.dependencyFailed && ", "if (claim.dependencyFailed === null && ")],
  },
  {
    name: "held: a cancel that was heard of is parked over",
    edits: [of("tasks/run/held-claims")("      attempt.cancelSeen = true;\n")],
  },
  {
    name: "worker: a run that comes while the pod stops ends as a task",
    edits: [
      of("tasks/run/worker")("if (stopping && !flow) return end", "if (stopping) return end"),
    ],
  },
  {
    name: "worker: what ignores its signal is waited for",
    edits: [of("tasks/run/worker")("        attempt.abandon?.();\n")],
  },
  {
    name: "step: what has killed its pods is run again",
    edits: [
      of("flows/decide/next-step")(
        'if (run.deaths >= deathLimit) return decided("poisoned");\n  const part',
        "const part",
      ),
    ],
  },
  {
    name: "limits: more of a queue than may run",
    edits: [
      of("tasks/sql/concurrency")(
        "isFree: sql`concurrency_key is null or nth <= slots`",
        "isFree: sql`true`",
      ),
    ],
  },
].map((mutation) => ({ ...mutation, scenario: "flows" as const }));
