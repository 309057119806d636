import type { NewTask } from "../../../tasks/sql/enqueue.ts";
import type { Changes } from "../changes.ts";
import type { LogRecord } from "../journal.ts";
import type { AsideItem } from "../sql/archive.ts";
import { startFold } from "./fold.ts";

/** The first of these records, with all that is to be stored of it, and what isn't. */
export type Alone = { readonly changes: Changes; readonly aside: readonly AsideItem[] };
/** The same, with the tasks that the database doesn't take, by their ids, and why. */
export type Reduced = Alone & { readonly refusals: ReadonlyMap<string, string> };

const placeholderText =
  "This entry was acknowledged, and the database refused it. Its content is in the table archive_aside.";

/** Stands for an entry that the database refuses, where users see that there was one. */
export function placeholderOf({
  sessionId,
  seq,
  role,
  atMs,
}: LogRecord["entries"][number]): LogRecord["entries"][number] {
  return {
    sessionId,
    seq,
    kind: "message",
    role,
    author: "",
    messageId: `aside-${seq}`,
    clientId: null,
    tokens: 0,
    parts: [{ type: "text", text: placeholderText }],
    atMs,
  };
}

export function asideOf(
  offset: number,
  place: number,
  entry: LogRecord["entries"][number],
  reason: string,
): AsideItem {
  const { sessionId, seq } = entry;
  return { offset, place, sessionId, seq, body: JSON.stringify(entry), reason };
}

/**
 * What can be stored of a record, from nearly all to nothing. One of its tasks may be refused for what only
 * its insert shows: then the record is stored without that one, or without all of them.
 */
export function* waysToStore(
  { changes, aside, refusals }: Reduced,
  offset: number,
  record: LogRecord,
  reason: string,
): Generator<Alone> {
  const without = (refused: ReadonlyMap<string, string>): Alone => {
    const left = splitTasks(changes.tasks, refused, offset);
    return { changes: { ...changes, tasks: left.tasks }, aside: [...aside, ...left.aside] };
  };
  yield without(refusals);
  const others = changes.tasks.filter(({ taskId }) => !refusals.has(taskId));
  for (const { taskId } of others) yield without(new Map([...refusals, [taskId, reason]]));
  if (others.length > 1) {
    yield without(new Map([...others.map(({ taskId }) => [taskId, reason] as const), ...refusals]));
  }
  const none = startFold().changes;
  // Whatever is refused besides: sessions at least show that there was something.
  yield {
    changes: {
      ...none,
      headers: changes.headers,
      members: changes.members,
      entries: changes.entries.map(placeholderOf),
      deleted: changes.deleted,
    },
    aside: [wholeOf(offset, record, reason)],
  };
  yield { changes: none, aside: [wholeOf(offset, record, reason)] };
}

/** Tasks that can be stored, and those that can't. What waits for one of the latter is set aside with it. */
function splitTasks(
  tasks: readonly NewTask[],
  refusals: ReadonlyMap<string, string>,
  offset: number,
): { tasks: readonly NewTask[]; aside: readonly AsideItem[] } {
  const refused = new Map(refusals);
  const lacking = () =>
    tasks.find(
      ({ taskId, after = [] }) => !refused.has(taskId) && after.some((id) => refused.has(id)),
    );
  for (let next = lacking(); next; next = lacking()) {
    const lacks = next.after!.find((id) => refused.has(id))!;
    refused.set(next.taskId, `it waits for task ${lacks}, which was refused`);
  }
  return {
    tasks: tasks.filter(({ taskId }) => !refused.has(taskId)),
    aside: tasks.flatMap((task, at) => {
      const why = refused.get(task.taskId);
      return why === undefined ? [] : [taskAsideOf(offset, at, task, why)];
    }),
  };
}

/** Places of tasks are below that of the record as a whole, which is -1. */
function taskAsideOf(offset: number, at: number, task: NewTask, reason: string): AsideItem {
  const sessionId = task.origin?.id ?? null;
  return { offset, place: -2 - at, sessionId, seq: null, body: JSON.stringify(task), reason };
}

function wholeOf(offset: number, record: LogRecord, reason: string): AsideItem {
  const body = JSON.stringify(record);
  return { offset, place: -1, sessionId: null, seq: null, body, reason };
}
