/**
 * Judges runs: every committed write by the rows that it leaves, and every call of a function by the row
 * that is stored at that moment. The rows that were seen last are kept, so that a change is known by what
 * was there before.
 */
import { aloneAfterDeaths, deathLimit } from "../../../src/base/death-limit.ts";
import type { HistoryEvent } from "../../../src/flows/decide/run.ts";
import { openRun, type RunColumns } from "../../../src/flows/drive/load.ts";
import type { Row } from "../../../src/store/database.ts";
import type { Noted } from "../audit.ts";
import { nothingSeen } from "../fences.ts";
import type { Intent } from "../kinds.ts";
import type { Watcher } from "../link.ts";
import type { SimPod } from "../pod.ts";
import type { World } from "../world.ts";
import type { Call, Calls } from "./calls.ts";
import { createFamilies, type Families } from "./families.ts";
import { countRunFences } from "./fences.ts";
import { columnsOf, createHistories } from "./histories.ts";
import { attempts, errand, flowNames, machines, type Version } from "./machines.ts";
import { createSignals } from "./signals.ts";
import { createRunSteps, type RunSteps } from "./steps.ts";
import { judgeStanding } from "./standing.ts";

export type FlowPod = { readonly pod: SimPod; readonly version: Version };

export type Moved = { readonly row: Row; readonly before: Row | undefined };

export type FlowChecker = Watcher & {
  readonly pods: Map<string, SimPod>;
  readonly versionOf: Map<string, Version>;
  readonly rows: ReadonlyMap<string, Row>;
  /** The tasks among them that haven't ended. */
  readonly errands: ReadonlySet<string>;
  readonly signals: ReturnType<typeof createSignals>;
  readonly histories: ReturnType<typeof createHistories>;
  readonly families: Families;
  readonly steps: RunSteps;
  /** Whether this call may begin. */
  judgeCall(call: Call): void;
};

const terminal = ["completed", "failed", "cancelled"];
const open = ["pending", "claimed"];

export function createFlowChecker(
  world: World,
  options: { calls: () => Calls; onMoved: (moved: Moved) => void },
): FlowChecker {
  const { scheduler, violate } = world;
  const pods = new Map<string, SimPod>();
  const versionOf = new Map<string, Version>();
  const rows = new Map<string, Row>();
  const errands = new Set<string>();
  /** Claims that recovery took from their pod, as `run@token`, with the number of writes until then. */
  const recovered = new Map<string, number>();
  const deathsAtClaim = new Map<string, number>();
  /** Whether the holder of a claim has been told of a cancel. */
  const toldOfCancel = new Map<string, boolean>();
  const histories = createHistories(world);
  const signals = createSignals(world);
  const families = createFamilies(world, rows);
  const steps = createRunSteps(world, rows);

  const judgeChange = (who: string, intent: Intent, row: Row, before: Row | undefined): void => {
    const what = `${row["name"]} ${short(row)} by ${intent.kind} of ${who}`;
    const claim = claimOf(row);
    if (!before) {
      if (row["status"] !== "pending") violate("T10", `${what}: born ${row["status"]}`);
      return;
    }
    if (Number(row["claim_token"]) < Number(before["claim_token"])) {
      violate("T2", `${what}: the token fell`);
    }
    if (Number(row["flow_version"]) < Number(before["flow_version"])) {
      violate("F5", `${what}: the version fell to ${row["flow_version"]}`);
    }
    if (Number(row["run_seq"]) - Number(before["run_seq"]) > 1) {
      violate("F1", `${what}: was written twice at once`);
    }
    if (Number(row["retry_count"]) >= attempts) {
      violate("T6", `${what}: ${row["retry_count"]} failures of ${attempts} and it goes on`);
    }
    if (terminal.includes(before["status"])) return judgeStartedOver(intent, row, before, what);
    if (terminal.includes(row["status"]) && intent.kind !== "run") {
      const asked = Number(before["cancel_requested"]) === 1;
      if (isGivenUp(intent, before))
        world.count(`flow: given up${asked ? ", asked for before" : ""}`);
      else violate("F7", `${what}: became ${row["status"]} without its finalizers`);
    }
    if (row["status"] === "claimed" && before["status"] !== "claimed") {
      judgeClaim(row, before, what);
    } else if (row["status"] === "claimed" && row["claim_token"] !== before["claim_token"]) {
      violate("T2", `${what}: a claim changed its token`);
    }
    if (intent.kind === "recover" && before["status"] === "claimed") {
      recovered.set(claimOf(before), Number(before["run_seq"]));
      world.count("flow: recovered");
    }
    if (row["run_seq"] !== before["run_seq"]) {
      judgeWrite(who, intent, row, before, what);
      toldOfCancel.set(claim, Number(row["cancel_requested"]) === 1);
    }
  };

  const judgeStartedOver = (intent: Intent, row: Row, before: Row, what: string): void => {
    if (row["status"] === before["status"]) return;
    const byParent = intent.kind === "run" && before["parent_id"] !== null;
    const mayStartOver = intent.kind === "retry" || intent.kind === "redrive_step" || byParent;
    if (!mayStartOver || before["status"] === "completed") {
      violate("F3", `${what}: ${before["status"]} became ${row["status"]}`);
    }
    if (row["claim_token"] === before["claim_token"])
      violate("T4", `${what}: its token is the old`);
    world.count(byParent ? "flow: started over by its parent" : `flow: ${intent.kind}`);
  };

  const judgeClaim = (row: Row, before: Row, what: string): void => {
    const version = versionOf.get(row["claimed_by"]);
    if (version === undefined || version < Number(before["flow_version"])) {
      violate("F5", `${what}: version ${version} claimed what ${before["flow_version"]} advanced`);
    }
    if (version !== undefined && version > Number(before["flow_version"] ?? 0)) {
      if (Number(before["flow_version"]) > 0) world.count("flow: taken over by a later version");
    }
    const notYet = [1, 2, 3, 5, 6].includes(Number(before["parked"]));
    // Claims unpark what is due by themselves, and check free slots as they take.
    const isDue = Number(before["parked"]) === 1 && before["run_at"] <= world.storeClock.now();
    if (notYet && !isDue && Number(before["parked"]) !== 3) {
      violate("F6", `${what}: claimed while parked (${before["parked"]})`);
    }
    const claim = claimOf(row);
    deathsAtClaim.set(claim, Number(row["deaths"]));
    toldOfCancel.set(claim, Number(row["cancel_requested"]) === 1);
  };

  /** A write of the pod that drives a run. */
  const judgeWrite = (who: string, intent: Intent, row: Row, before: Row, what: string): void => {
    const sent = intent.rows.filter((each) => each["task_id"] === row["task_id"]);
    if (!sent.some((each) => each["token"] === before["claim_token"])) {
      violate("T3", `${what}: token ${String(sent[0]?.["token"])} over ${before["claim_token"]}`);
    }
    if ((versionOf.get(who) ?? 0) < Number(before["flow_version"])) {
      violate("F5", `${what}: a lower version wrote over ${before["flow_version"]}`);
    }
    if (Number(row["parked"]) === 6) world.count("flow: set aside");
    // With its first step a run is written while its function goes on.
    if (sent.some((each) => each["stepped"] === 1)) return;
    for (const call of options.calls().of(row["task_id"])) {
      if (call.token === before["claim_token"]) call.over = true;
    }
  };

  return {
    pods,
    versionOf,
    rows,
    errands,
    signals,
    histories,
    families,
    steps,
    async before() {
      return nothingSeen;
    },
    async after(who, intent, _, changes, { noted }) {
      if (intent.kind === "run") countRunFences(world, intent, rows, changes);
      if (intent.kind === "beat") {
        const pod = pods.get(who);
        if (pod) pod.lastBeatMs = scheduler.nowMs;
      }
      for (const { name, taskId, after } of changes) {
        if (name !== errand) continue;
        if (terminal.includes(after?.status ?? "")) errands.delete(taskId);
        else errands.add(taskId);
      }
      const moved = movedRuns(noted);
      histories.note(noted);
      for (const { row } of moved) rows.set(row["task_id"], row);
      steps.judge(noted);
      if (moved.length === 0) return;
      for (const { row, before } of moved) {
        judgeChange(who, intent, row, before);
        const events = histories.judge(row, { givenUp: isGivenUp(intent, before) });
        families.judge(intent, row, before, events);
        signals.judge(row, events);
        steps.judgeOver(row, events);
      }
      judgeStanding(world, rows, families);
      for (const each of moved) options.onMoved(each);
    },
    judgeCall(call) {
      const { runId, flow, transition, token, pod, version } = call;
      const row = rows.get(runId)!;
      const claim = `${runId}@${token}`;
      const what = `${flow}.${transition} ${runId.slice(-6)}@${token} on ${pod.podId}`;
      if (pod.stoppingMs !== undefined && scheduler.nowMs > pod.stoppingMs) {
        violate("shutdown", `${what}: began after the pod was told to stop`);
      }
      const deaths = deathsAtClaim.get(claim) ?? 0;
      for (const other of options.calls().all) {
        if (other.over || !other.pod.alive) continue;
        const otherClaim = `${other.runId}@${other.token}`;
        if (other.runId === runId) {
          const older = other.token < token ? otherClaim : claim;
          if (other.token === token || !recovered.has(older)) {
            violate("T8", `${what}: ${other.transition} still runs @${other.token}`);
          }
        } else if (other.pod === pod && !recovered.has(otherClaim) && !recovered.has(claim)) {
          const most = Math.max(deaths, deathsAtClaim.get(otherClaim) ?? 0);
          if (most >= aloneAfterDeaths) violate("alone", `${what}: beside ${other.flow}`);
        }
      }
      const isHeld = row["claim_token"] === token && row["status"] === "claimed";
      const writes = recovered.get(claim);
      if (!isHeld) {
        // It may not know yet that it was taken for dead; but once it has stored something, it does.
        const isOurs = row["claim_token"] === token && open.includes(row["status"]);
        if (writes === undefined || (isOurs && Number(row["run_seq"]) > writes)) {
          violate("F1", `${what}: no claim gave it the run, which is ${row["status"]}`);
        }
        return;
      }
      judgeHeldCall(call, row, what);
      if (version < Number(row["flow_version"])) violate("F5", `${what}: of a lower version`);
    },
  };

  /** What runs is what is at the cursor, with the state and the attempt that are stored. */
  function judgeHeldCall(call: Call, row: Row, what: string): void {
    const { flow, transition, version, attempt, state, isFinalizer } = call;
    const columns: RunColumns = columnsOf(row);
    const opened = openRun(machines.get(version)!.get(flow)!, columns);
    if (opened.type !== "open") return violate("F5", `${what}: it is ${opened.type}`);
    const { run } = opened;
    if (run.cursor !== transition) violate("F1", `${what}: the run stands at ${run.cursor}`);
    if (run.waiting !== null) violate("F1", `${what}: the run waits for its ${run.waiting.for}`);
    if (JSON.stringify(run.state) !== state) violate("F1", `${what}: ${state} isn't its state`);
    if (attempt !== run.failures + 1) violate("F1", `${what}: attempt ${attempt}`);
    if (run.deaths >= deathLimit) violate("T6", `${what}: after ${run.deaths} deaths`);
    if (run.deaths !== columns.deaths) violate("T6", `${what}: nobody counts its deaths`);
    if (!isFinalizer && row["depends"] === 3) violate("waits", `${what}: it mustn't run any more`);
    if (isFinalizer !== (run.intent !== null)) violate("F7", `${what}: intent ${columns.intent}`);
    if (!isFinalizer && toldOfCancel.get(claimOf(row)) === true) {
      violate("cancel", `${what}: began though the run was known to be cancelled`);
    }
  }
}

export type NewEvents = readonly HistoryEvent[];

/** The runs that a write has changed, as they stood before all of it and as they stand behind it. */
function movedRuns(noted: readonly Noted[]): Moved[] {
  const moved = new Map<string, Moved>();
  for (const { table, before, after } of noted) {
    if (table !== "task" || !after || !flowNames.includes(after["name"])) continue;
    const runId = after["task_id"] as string;
    moved.set(runId, { row: after, before: moved.has(runId) ? moved.get(runId)!.before : before });
  }
  return [...moved.values()];
}

/** No pod could run the finalizers of a run that it can't read, so an operator's cancel ends it at once. */
const isGivenUp = (intent: Intent, before: Row | undefined) =>
  intent.kind === "cancel" && before?.["status"] === "pending" && Number(before["parked"]) === 6;
const short = (row: Row) => (row["task_id"] as string).slice(-6);
const claimOf = (row: Row) => `${row["task_id"]}@${row["claim_token"]}`;
