import { eachReference } from "../../files/references.ts";
import type { FileOwner } from "../../files/sql/files.ts";
import { linkFiles } from "../../files/sql/task-links.ts";
import { filePrefix } from "../../protocol/file.ts";
import type { Statement } from "../../store/sql.ts";
import type { LinkOrigin, NewTask } from "./enqueue.ts";

/** Whose files the code may pass on that enqueues a task. */
export function ownerOfOrigin({ id, what }: LinkOrigin): FileOwner | undefined {
  if (what === "session") return { kind: "session", id };
  return what === "task" || what === "run" ? { kind: "task", id } : undefined;
}

/**
 * Has tasks refer to files that are stored in one write with their parent or their session: of its files those
 * that their payloads name. Other references there are text. Goes after the insert.
 */
export function inheritFiles(newTasks: readonly NewTask[]): Statement[] {
  const links = newTasks.flatMap(({ taskId, tenant, payload, parentId, origin }) => {
    if (!payload.includes(filePrefix)) return [];
    const from: FileOwner | undefined =
      parentId === undefined ? origin && ownerOfOrigin(origin) : { kind: "task", id: parentId };
    const hashes = new Set<string>();
    eachReference(JSON.parse(payload), (_, hash) => hashes.add(hash));
    return from ? [...hashes].map((hash) => ({ taskId, tenant, hash, from })) : [];
  });
  return links.length === 0 ? [] : [linkFiles(links)];
}
