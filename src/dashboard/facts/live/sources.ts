import type { Verb } from "../../../protocol/verbs.ts";
import type { WatchData } from "../../../protocol/watch.ts";
import { type FleetAnswer, shownFleet } from "../fleet/fleet.ts";

/** A watched topic that says how something in sight changes. */
export type LiveSource = {
  readonly topic: string;
  /** The part of the topic's data whose change means that it has to be read again. Default: all of it. */
  readonly mark?: (data: WatchData) => unknown;
  /** What is in sight, where the topic's data has it whole, so that nothing is read again. */
  readonly show?: (data: WatchData) => unknown;
  /** It doesn't tell of every change, so that what is in sight is read every other second as well. */
  readonly inPart?: true;
};

/** What the caller may watch. */
export type Sight = { readonly seesAll: boolean; readonly may: (verb: Verb) => boolean };

type Rows = Readonly<Record<string, WatchData>>;

// Counts over time are stored once a minute.
const byTheMinute: readonly unknown[] = ["series", "state trend"];

/** Whether it changes so seldom that it needn't be read every other second. */
export function isByTheMinute([what]: readonly unknown[]): boolean {
  return byTheMinute.includes(what);
}

/** The topics behind what is read under a key. None: it is read every now and then. */
export function sourcesOf(key: readonly unknown[], sight: Sight): readonly LiveSource[] {
  const { seesAll, may } = sight;
  if (!may("fleet:read")) return [];
  const [what, id] = key;
  const ofAll = (...sources: readonly LiveSource[]) => (seesAll ? sources : []);
  const tasks = seesAll ? anyTask : newestTasks;
  switch (what) {
    case "depth":
      return ofAll({ topic: "overview", show: ({ names }) => names });
    case "pods":
      return ofAll({
        topic: "pods",
        show: ({ pods, ...fleet }) =>
          shownFleet({ ...fleet, pods: rowsOf(pods) } as unknown as FleetAnswer),
      });
    case "overview":
      return verdictSource(id, seesAll);
    case "tasks":
    case "children":
    case "started":
      return [tasks];
    case "task":
      return typeof id === "string" ? [ofTask(id)] : [];
    // A step and a signal are rows of their own: that one is stored need not change the task.
    case "steps":
      return typeof id === "string" ? [{ ...ofTask(id), inPart: true }] : [];
    case "signals":
      return typeof id === "string" ? [{ ...ofRun(id), inPart: true }] : [];
    case "why":
      // A task waits for what others do.
      return typeof id === "string" ? [ofTask(id), tasks] : [];
    case "run":
    case "history":
      return typeof id === "string" ? [ofRun(id)] : [];
    case "flows":
      return ofAll({ topic: "flows" });
    case "flow":
    case "flow states":
    case "machine":
      return ofAll(ofFlow(id));
    case "runs":
    case "drawn runs":
      return seesAll ? [ofFlow(id), tasks] : [tasks];
    case "throttles":
      return ofAll({ topic: "throttles" });
    case "throttle":
    case "throttle events":
      return ofAll({ topic: "throttles", mark: ({ throttles }) => rowIn(throttles, id) });
    case "queues":
    case "limits":
    case "limit":
    case "holders":
    case "tenants":
    case "pauses":
      return ofAll({ topic: "queues", mark: queueMark });
    case "schedules":
      return ofAll({ topic: "schedules" });
    case "schedule":
    case "firings":
      return ofAll({ topic: "schedules", mark: ({ schedules }) => rowIn(schedules, id) });
    case "groups":
    case "failed":
      return [{ topic: "failures" }];
    case "redrives":
    case "redrive":
    case "bulks":
    case "bulk":
      return [{ topic: "acts" }];
    case "approvals":
      return [{ topic: "approvals" }];
    case "sessions":
    case "session":
    case "turns":
      return [ofSessions(id)];
    case "owner":
      return ofAll(...ofOwner(id));
    case "audit":
      return seesAll && may("admin") ? [{ topic: "audit" }] : [];
    default:
      return [];
  }
}

const anyTask: LiveSource = { topic: "overview", mark: listMark };
// The counts are of all tenants. An older task changes without its knowing.
const newestTasks: LiveSource = { topic: "newest", inPart: true };

function ofFlow(flow: unknown): LiveSource {
  return { topic: "flows", mark: ({ flows }) => rowIn(flows, flow) };
}

/** The sessions of a tenant, or one of them. */
function ofSessions(about: unknown): LiveSource {
  const { tenant, sessionId } = (about ?? {}) as Readonly<Record<string, unknown>>;
  return {
    topic: typeof tenant === "string" ? `sessions:${encodeURIComponent(tenant)}` : "sessions",
    ...(typeof sessionId === "string" && {
      mark: ({ sessions }: WatchData) => rowIn(sessions, sessionId),
    }),
  };
}

/** The owner of a session's log, which the topic has whole. */
function ofOwner(about: unknown): readonly LiveSource[] {
  const { tenant, sessionId } = (about ?? {}) as Readonly<Record<string, unknown>>;
  const named = [sessionId, tenant].filter((each) => typeof each === "string");
  if (typeof sessionId !== "string") return [];
  const topic = `owner:${named.map((each) => encodeURIComponent(each)).join("/")}`;
  return [{ topic, show: ({ owner }) => owner ?? undefined }];
}

function ofTask(taskId: string): LiveSource {
  return { topic: `task:${encodeURIComponent(taskId)}` };
}

function ofRun(runId: string): LiveSource {
  return { topic: `run:${encodeURIComponent(runId)}` };
}

/** What the verdict on the fleet is made of. */
const verdictSources: Readonly<Record<string, LiveSource & { readonly isOfAll?: true }>> = {
  approvals: { topic: "approvals", show: ({ approvals }) => rowsOf(approvals) },
  acts: {
    topic: "acts",
    show: ({ redrives, bulks }) => ({ redrives: rowsOf(redrives), bulks: rowsOf(bulks) }),
  },
  counts: {
    topic: "overview",
    show: ({ tasks, runs, sessions, pods }) => ({ tasks, runs, sessions, pods }),
    isOfAll: true,
  },
  throttles: {
    topic: "throttles",
    show: ({ throttles }) => rowsOf(throttles).flatMap((keys) => rowsOf(keys)),
    isOfAll: true,
  },
  schedules: {
    topic: "schedules",
    show: ({ schedules }) => rowsOf(schedules),
    isOfAll: true,
  },
};

function verdictSource(what: unknown, seesAll: boolean): readonly LiveSource[] {
  const source = typeof what === "string" ? verdictSources[what] : undefined;
  return source && (seesAll || !source.isOfAll) ? [source] : [];
}

/**
 * A list changes with the newest task, with the counts, and with what pods have claimed and ended, because
 * no count goes beyond its bound; but not with the time that the oldest has waited.
 */
function listMark({ names, newest, totals }: WatchData): unknown {
  return [newest, totals, withoutAges(names)];
}

function queueMark({ names, paused, limits }: WatchData): unknown {
  return [withoutAges(names), paused, limits];
}

function withoutAges(names: unknown): unknown {
  const rows = Object.entries((names ?? {}) as Rows);
  return rows.map(([name, counts]) => [name, { ...counts, oldestMs: 0 }]);
}

function rowsOf(rows: unknown): WatchData[] {
  return Object.values((rows ?? {}) as Rows);
}

function rowIn(rows: unknown, id: unknown): unknown {
  const all = (rows ?? {}) as Rows;
  return typeof id === "string" && Object.hasOwn(all, id) ? all[id] : null;
}
