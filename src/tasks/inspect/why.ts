import { createAudit } from "../../audit/audit.ts";
import { isJsonObject } from "../../base/json.ts";
import { checkOptions } from "../../base/options.ts";
import { latestPods } from "../../pods/sql.ts";
import { allNames, tenantScope } from "../../protocol/task-options.ts";
import type { Database, Row } from "../../store/database.ts";
import { notFound } from "../acts.ts";
import { toTasks } from "../dependencies.ts";
import { lenientJson, type HeldByThrottle, type TaskStatus } from "../rows.ts";
import type { PodState } from "../run/pod-status.ts";
import { getTask, maxDepthCount } from "../sql/inspect.ts";
import { listPauses, readScopes } from "../sql/limits.ts";
import { depends, parked, tenantOf } from "../sql/task-state.ts";
import {
  countAhead,
  countHeldBy,
  readDependencyStates,
  readLateness,
  readSlotHolders,
  readStanding,
} from "../sql/why.ts";
import { coverageOf, isCovered, type Workers } from "./blocked-by.ts";
import type {
  CapablePod,
  DependencyFacts,
  Lateness,
  LimitFacts,
  NoWorkerFacts,
  PauseFacts,
  QueuedFacts,
  SetAsideFacts,
  Standing,
  Verdict,
} from "./evidence.ts";
import { decideVerdict } from "./verdict.ts";

export type WhyOptions = {
  /**
   * Only what a reader of this tenant may know: tasks of others are left out of the evidence, as are the
   * actors and reasons of pauses, and what pods say in words.
   */
  tenant?: string;
};

type WhyParts = { database: Database; workers: Pick<Workers, "markWaiting"> };

// More wouldn't be read.
const maxDependenciesShown = 100;
const maxHoldersShown = 20;
const maxPodsShown = 100;
// A fleet has fewer; of those that are gone the latest are shown.
const maxPodsRead = 1_000;

const noDependencies: DependencyFacts = { total: 0, open: 0, failed: 0, tasks: [] };

/**
 * Why a task or run has not ended. Reads only what bears on it: at most eight statements, each of which
 * reads a bounded part of an index.
 */
export function createWhy(parts: WhyParts): (id: string, options?: WhyOptions) => Promise<Verdict> {
  const { database } = parts;
  const audit = createAudit(parts);

  /** The pauses that concern a name, each with the actor of its entry. */
  const readPausesOf = async (name: string, { tenant }: WhyOptions): Promise<PauseFacts[]> => {
    const rows = await database.read(listPauses());
    const concerned = rows.filter((row) => row["name"] === name || row["name"] === allNames);
    return Promise.all(
      concerned.map(async (row) => {
        const subject = row["name"] as string;
        const about = { subject, action: "names.pause", limit: 1 };
        const [entry] = tenant === undefined ? (await audit.list(about)).entries : [];
        const { at } = row;
        // It is a pause of all tenants, and what was said of it is for operators of all.
        const reason = tenant === undefined ? row["reason"] : null;
        return { name: subject, sinceMs: Number(at), reason, by: entry?.actor ?? null };
      }),
    );
  };

  const readPods = async (standing: Standing, { tenant }: WhyOptions) => {
    const rows = await database.read(latestPods(maxPodsRead));
    const up = rows.filter((row) => row["status"] === "up");
    const { isRun, name, version } = standing;
    const fits = (pods: readonly Row[]) =>
      isCovered(coverageOf(pods), name, isRun ? version : null, isRun ? null : version);
    const capable = up.filter((row) => fits([row])).slice(0, maxPodsShown);
    const held = await readHeld(capable.map((row) => row["pod_id"] as string));
    return {
      noWorker: fits(up) ? null : noWorkerOf(standing, rows),
      isPodUp: up.some((row) => row["pod_id"] === standing.claim?.podId),
      pods: capable.map((row): CapablePod => {
        const { holds, reasons } = stateOf(row["state"]);
        const said = reasons.map(({ code, text }) => ({
          code,
          // Names and keys of other tenants may be in it.
          text: tenant === undefined ? text : "",
        }));
        return { podId: row["pod_id"], held: held.get(row["pod_id"]) ?? 0, holds, reasons: said };
      }),
    };
  };

  const readHeld = async (podIds: readonly string[]): Promise<ReadonlyMap<string, number>> => {
    if (podIds.length === 0) return new Map();
    const rows = await database.read(countHeldBy(podIds, maxDepthCount));
    return new Map(rows.map((row) => [row["pod_id"] as string, Number(row["held"])]));
  };

  const readLimits = async (row: Row, { tenant }: WhyOptions): Promise<LimitFacts[]> => {
    if (Number(row["limited"]) !== 1) return [];
    const scopes = [
      ...(row["concurrency_key"] === null ? [] : [row["concurrency_key"] as string]),
      ...(row["tenant"] === "default" ? [] : [tenantScope(row["tenant"])]),
    ];
    if (scopes.length === 0) return [];
    const wanted = scopes.map((scope) => ({ scope, tenant: tenantOf(scope) ?? null }));
    const states = await database.read(readScopes(wanted));
    const full = states.filter(
      (state) =>
        state["max_running"] !== null && Number(state["running"]) >= Number(state["max_running"]),
    );
    return Promise.all(
      full.map(async (state) => ({
        scope: state["scope"],
        limit: Number(state["max_running"]),
        running: Number(state["running"]),
        blocked: Number(state["blocked"]),
        holders: (await database.read(readSlotHolders(state["scope"], maxHoldersShown)))
          .filter((each) => tenant === undefined || each["tenant"] === tenant)
          .map((each) => ({
            taskId: each["task_id"],
            name: each["name"],
            podId: each["claimed_by"],
            sinceMs: Number(each["since_at"]),
          })),
      })),
    );
  };

  const readThrottledBy = async (taskId: string): Promise<HeldByThrottle | null> => {
    const found = await toTasks(database, await database.read(getTask(taskId)));
    const [task] = await parts.workers.markWaiting(found);
    return task?.status === "pending" ? task.throttledBy : null;
  };

  const readQueued = async (row: Row): Promise<QueuedFacts | null> => {
    const place = {
      taskId: row["task_id"] as string,
      name: row["name"] as string,
      tenant: row["tenant"] as string,
      priority: Number(row["priority"]),
      createdAtMs: Number(row["created_at"]),
      deaths: Number(row["deaths"]),
      parked: Number(row["parked"]),
      blockedBy: row["blocked_by"] as string | null,
    };
    const counting = countAhead(place, maxDepthCount);
    if (!counting) return null;
    const [counted] = await database.read(counting);
    const ahead = Number(counted!["ahead"]);
    return { ahead: Math.min(ahead, maxDepthCount), isMore: ahead >= maxDepthCount };
  };

  return async (taskId, options = {}) => {
    checkOptions("why", options, ["tenant"]);
    const [row] = await database.read(readStanding(taskId));
    if (!row || (options.tenant !== undefined && row["tenant"] !== options.tenant)) {
      throw notFound(taskId);
    }
    const standing = toStanding(row);
    const isPending = standing.status === "pending";
    const isOpen = isPending || standing.status === "claimed";
    const isReady = isPending && isClaimable(standing.parked);
    const [lateness, dependencies, pauses, pods, limits, throttledBy, queued] = await Promise.all([
      isPending && standing.parked === parked.untilDue
        ? database.read(readLateness(taskId)).then((events) => latenessOf(events, standing))
        : null,
      isPending && (Number(row["depends"]) > depends.none || standing.waitsForChildren)
        ? database
            .read(readDependencyStates(taskId, maxDependenciesShown))
            .then((rows) => toDependencies(rows, options))
        : noDependencies,
      isPending ? readPausesOf(standing.name, options) : [],
      isOpen ? readPods(standing, options) : { noWorker: null, isPodUp: false, pods: [] },
      isReady ? readLimits(row, options) : [],
      isReady ? readThrottledBy(taskId) : null,
      isReady ? readQueued(row) : null,
    ]);
    return decideVerdict({
      standing,
      lateness,
      dependencies,
      pauses,
      ...pods,
      limits,
      throttledBy,
      queued,
    });
  };
}

function isClaimable(state: number): boolean {
  return state === parked.ready || state === parked.limited || state === parked.blocked;
}

function toStanding(row: Row): Standing {
  const isRun = row["flow_version"] !== null;
  const updatedAtMs = Number(row["last_update"]);
  const waiting = objectOf(row["waiting"]);
  const awaits = row["awaits"] as string | null;
  const isParked = [parked.untilDue, parked.untilSignal].some(
    (each) => each === Number(row["parked"]),
  );
  // No signal has a slash in its name; the keys of children begin with the id of their parent and one.
  const waitsForChildren = isParked && awaits !== null && awaits.endsWith("/");
  const isForSignal = isParked && awaits !== null && !waitsForChildren;
  const since = waiting["sinceMs"];
  const version = isRun ? row["flow_version"] : row["task_version"];
  const advancedAtMs = Number(row["advanced_at"] ?? 0);
  return {
    taskId: row["task_id"],
    name: row["name"],
    tenant: row["tenant"],
    status: row["status"] as TaskStatus,
    isRun,
    nowMs: Number(row["now_at"]),
    parked: Number(row["parked"]),
    runAtMs: Number(row["run_at"]),
    updatedAtMs: Math.max(updatedAtMs, advancedAtMs),
    scheduledAtMs: row["scheduled_at"] === null ? null : Number(row["scheduled_at"]),
    failures: Number(row["retry_count"]),
    maxAttempts: row["max_attempts"] === null ? null : Number(row["max_attempts"]),
    snoozes: Number(row["snoozes"]),
    deaths: Number(row["deaths"]),
    cancelRequested: Number(row["cancel_requested"]) === 1,
    claim:
      row["status"] === "claimed"
        ? { podId: row["claimed_by"] ?? "", sinceMs: Math.max(updatedAtMs, advancedAtMs) }
        : null,
    waitsForSlot: Number(row["held_back"]) === 1,
    signal: isForSignal
      ? { signal: awaits, sinceMs: typeof since === "number" ? since : updatedAtMs }
      : null,
    waitsForChildren,
    isSleeping: isRun
      ? waiting["for"] === "sleep"
      : Number(row["has_wait"]) === 1 && Number(row["retry_count"]) === 0 && awaits === null,
    wasClaimed: Number(row["claim_token"]) > 0,
    setAside: Number(row["parked"]) === parked.setAside ? toSetAside(row) : null,
    version: version === null ? null : Number(version),
  };
}

function toSetAside(row: Row): SetAsideFacts {
  const found = objectOf(row["set_aside"]);
  const text = (name: string) => (typeof found[name] === "string" ? found[name] : "");
  const byVersion = row["set_aside_version"] as number | string | null;
  return {
    reason: text("reason"),
    message: text("message"),
    ...(text("step") !== "" && { step: text("step") }),
    ...(byVersion !== null && { byVersion: Number(byVersion) }),
  };
}

/** The newest event says why, if it led to the time that the task waits for. */
function latenessOf(events: readonly Row[], { runAtMs, failures }: Standing): Lateness | null {
  const newest = events.find(({ type }) => type !== "cancel_requested");
  if (!newest) return null;
  const atMs = Number(newest["at"]);
  const facts = objectOf(newest["detail"]);
  const delayMs = runAtMs - atMs;
  switch (newest["type"]) {
    case "retry":
      return failures > 0 ? { cause: "retry", atMs, delayMs, errorCode: codeOf(facts) } : null;
    case "error":
      return facts["retryAtMs"] === runAtMs
        ? { cause: "retry", atMs, delayMs, errorCode: codeOf(facts["error"]) }
        : null;
    case "snoozed":
      return isAbout(delayMs, facts["delayMs"])
        ? { cause: "snoozed", atMs, delayMs, errorCode: null }
        : null;
    case "park":
      return facts["waiting"] === null && facts["untilMs"] === runAtMs
        ? { cause: "snoozed", atMs, delayMs, errorCode: null }
        : null;
    default:
      return null;
  }
}

/** The time of an event and of its row are read one after the other. */
const sameMs = 2_000;

function isAbout(delayMs: number, stated: unknown): boolean {
  return typeof stated === "number" && Math.abs(delayMs - stated) <= sameMs;
}

/** What a column holds, if that is an object. */
function objectOf(text: unknown): Readonly<Record<string, unknown>> {
  const value = lenientJson(text);
  return isJsonObject(value) ? value : {};
}

function codeOf(error: unknown): string | null {
  const code = isJsonObject(error) ? error["code"] : undefined;
  return typeof code === "string" ? code : null;
}

function toDependencies(rows: readonly Row[], { tenant }: WhyOptions): DependencyFacts {
  const count = (column: string) => Number(rows[0]?.[column] ?? 0);
  return {
    total: count("all_tasks"),
    open: count("open_tasks"),
    failed: count("failed_tasks"),
    tasks: rows
      .filter((row) => row["status"] !== "completed")
      .map((row) => {
        const isSeen = tenant === undefined || row["tenant"] === tenant;
        return {
          taskId: row["task_id"],
          name: isSeen ? row["name"] : null,
          status: isSeen ? row["status"] : null,
          podId: isSeen ? row["claimed_by"] : null,
          isChild: Number(row["is_child"]) === 1,
        };
      }),
  };
}

function noWorkerOf({ name, version, isRun }: Standing, rows: readonly Row[]): NoWorkerFacts {
  const seen = rows.filter((row) => coverageOf([row]).names?.has(name));
  return {
    name,
    version: version === null || version === 0 ? null : version,
    livePods: rows.filter((row) => row["status"] === "up").length,
    pods: seen.slice(0, maxPodsShown).map((row) => {
      const covered = coverageOf([row]);
      const declared = isRun ? covered.names?.get(name) : covered.versions.get(name);
      return {
        podId: row["pod_id"],
        isUp: row["status"] === "up",
        lastHeartbeatMs: Number(row["last_heartbeat"]),
        version: declared !== undefined && Number.isFinite(declared) ? declared : null,
      };
    }),
  };
}

/** A row may hold anything; the verdict must still be given. */
function stateOf(text: unknown): { holds: number | null; reasons: PodState["reasons"] } {
  const { holds, reasons } = objectOf(text);
  const listed = (Array.isArray(reasons) ? reasons : []).filter(
    (each) => isJsonObject(each) && typeof each["code"] === "string",
  );
  return {
    holds: typeof holds === "number" ? holds : null,
    reasons: listed as unknown as PodState["reasons"],
  };
}
