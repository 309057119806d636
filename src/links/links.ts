import type { Database, Row } from "../store/database.ts";
import type { WalkSpan } from "../store/walk.ts";
import { linkedTasks, linkedTasksAfter, type LinkKind, type LinkSource, readLinks } from "./sql.ts";

/** What started a task: a turn of a session, a run, a task, a task's failure, or a schedule. */
export type StartedBy = {
  readonly what: LinkKind;
  /** The id of the session, run, task or schedule, which may be gone. */
  readonly id: string;
  /** Null of a schedule, and of what is gone. */
  readonly tenant: string | null;
  readonly atMs: number;
};

/** A task or run that was started. */
export type Started = {
  readonly taskId: string;
  readonly what: LinkKind;
  /** These are null only where the task is being deleted at this moment. */
  readonly name: string | null;
  readonly status: string | null;
  readonly tenant: string | null;
  readonly atMs: number;
};

/** A task or run that comes after another one, or is a copy of it. */
export type LinkedTask = Pick<Started, "taskId" | "name" | "status" | "tenant">;

export type Links = {
  /** Null for what was enqueued from outside of handlers and agents. */
  readonly startedBy: StartedBy | null;
  /** In the order of their ids, which is that of their creation; at most a hundred. */
  readonly started: readonly Started[];
  readonly hasMore: boolean;
  /** Of a task or run: those that come after it, by their `after` or as their parent; at most a hundred. */
  readonly dependents: readonly LinkedTask[];
  /** Of a task: its copies, at most a hundred. */
  readonly copies: readonly LinkedTask[];
};

/** A task that starts more is a fan-out, whose members are better listed by name or key. */
const maxStarted = 100;

/** Reads what started a task, and what a task, a session or a schedule has started. */
export async function linksOf(
  database: Pick<Database, "read">,
  id: string,
  source: LinkSource,
): Promise<Links> {
  const rows = await database.read(readLinks(id, source, maxStarted + 1));
  const origin = rows.find((row) => row["kind"] === "origin");
  const of = (kind: string) => rows.filter((row) => row["kind"] === kind);
  const started = of("started");
  return {
    startedBy: origin ? toStartedBy(origin) : null,
    started: started.slice(0, maxStarted).map(toStarted),
    hasMore: started.length > maxStarted,
    dependents: of("dependent").slice(0, maxStarted).map(toLinked),
    copies: of("copy").slice(0, maxStarted).map(toLinked),
  };
}

/** The ids of linked tasks: all that were looked at, and those that the source has started. */
export type LinkedIds = { readonly walked: readonly string[]; readonly ids: readonly string[] };

type Starter = "session" | "task";

/** Reads a piece of what a session, or a run or task, has started, newest first. */
export async function linkedIds(
  database: Pick<Database, "read">,
  fromId: string,
  source: Starter,
  span: WalkSpan,
): Promise<LinkedIds> {
  return ofSource(await database.read(linkedTasks(fromId, span)), source);
}

/** The same, oldest first and behind an id. */
export async function linkedIdsAfter(
  database: Pick<Database, "read">,
  fromId: string,
  source: Starter,
  piece: { readonly after: string; readonly count: number },
): Promise<LinkedIds> {
  return ofSource(await database.read(linkedTasksAfter(fromId, piece)), source);
}

function ofSource(found: readonly Row[], source: Starter): LinkedIds {
  // Something of another kind may have the same id.
  const isOfSource = ({ what }: Row) =>
    source === "session" ? what === "session" : what !== "session" && what !== "schedule";
  const idOf = (row: Row) => row["to_id"] as string;
  return { walked: found.map(idOf), ids: found.filter(isOfSource).map(idOf) };
}

function toStartedBy(row: Row): StartedBy {
  return { what: row["what"], id: row["id"], tenant: row["tenant"], atMs: Number(row["at"]) };
}

function toLinked(row: Row): LinkedTask {
  const { id: taskId, name, status, tenant } = row;
  return { taskId, name, status, tenant };
}

function toStarted(row: Row): Started {
  const { id: taskId, what, name, status, tenant, at } = row;
  return { taskId, what, name, status, tenant, atMs: Number(at) };
}
