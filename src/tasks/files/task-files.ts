import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import { defaultMaxBytes, encodeJson } from "../../base/json.ts";
import type { Logger } from "../../base/log.ts";
import { checkOptions, checkText } from "../../base/options.ts";
import type { Random } from "../../base/random.ts";
import {
  createFiles,
  defaultFileSettings,
  type FileSettings,
  ownerFull,
} from "../../files/files.ts";
import { newFileParts, newFilesIn, withStoredFiles } from "../../files/new-file.ts";
import { createFileReader } from "../../files/reader.ts";
import { eachReference } from "../../files/references.ts";
import { type FileOwner, readReferences } from "../../files/sql/files.ts";
import type { FileLink } from "../../files/sql/task-links.ts";
import type { FileLabel } from "../../files/take.ts";
import { rememberSource, sourceOf } from "../../files/uploads.ts";
import { filePrefix, fileHashOf, type FileRef, fileUrl } from "../../protocol/file.ts";
import { taskOptions } from "../../protocol/task-options.ts";
import { parseStored } from "../../store/codec/codec.ts";
import type { Database, Row } from "../../store/database.ts";
import type { NewTask } from "../sql/enqueue.ts";
import { ownerOfOrigin } from "../sql/inherit-files.ts";
import { readTenant } from "../sql/inspect.ts";

/** Files of tasks and runs, for producers and servers. */
export type TaskFilesClient = {
  /**
   * Stores a file ahead of the tasks that are to have it: in a transaction of the caller, in several tasks, in a
   * step. What it returns goes into inputs for an hour.
   */
  store(file: FileRef, options?: { tenant?: string }): Promise<FileRef>;
  /** The bytes of a file that the payload or the result of a task refers to. */
  read(taskId: string, file: FileRef): Promise<Uint8Array>;
  /** The same, piece by piece. */
  stream(taskId: string, file: FileRef): ReadableStream<Uint8Array>;
};

/** The files of one task or run, for its code. */
export type HandlerFiles = {
  /** The bytes of a file that this task refers to, or another one by its id. */
  read(file: FileRef, options?: { of?: string }): Promise<Uint8Array>;
  /** The same, piece by piece. */
  stream(file: FileRef, options?: { of?: string }): ReadableStream<Uint8Array>;
  /** Stores a file that stays as long as the task, for what a step returns, a child, or progress. */
  store(file: FileRef): Promise<FileRef>;
};

export type TaskFiles = TaskFilesClient & {
  /** The input of so many tasks with references in the place of new files, whose bytes are stored by then. */
  take(input: unknown, tenant: string, tasks?: number): unknown;
  /** The task with what its payload refers to. Rejects where it may not refer to that. */
  link(newTask: NewTask, input: unknown): NewTask | Promise<NewTask>;
  /** The same for results. A file is kept if the attempt with this token completes the task. */
  takeResult(result: unknown, claim: { taskId: string; token: number }): unknown;
  ofTask(taskId: string): HandlerFiles;
};

export type TaskFilesParts = {
  database: Database;
  clock: Clock;
  random: Random;
  ids: Ids;
  log?: Logger | undefined;
  maxPayloadBytes?: number;
  settings?: FileSettings | undefined;
};

export function createTaskFiles(parts: TaskFilesParts): TaskFiles {
  const {
    database,
    ids,
    maxPayloadBytes = defaultMaxBytes,
    settings = defaultFileSettings,
  } = parts;
  const { taskFiles, taskBytes } = settings;
  const given = { ...parts, settings };
  const uploads = createFiles({ ...given, of: "upload" });
  const owned = createFiles({ ...given, of: "task" });

  /** What owners refer to by hashes, each under the first owner that has it. */
  const referred = async (
    owners: readonly FileOwner[],
    hashes: readonly string[],
    tenant: string,
  ) => {
    const found = owners.length > 0 ? await database.read(readReferences(owners, hashes)) : [];
    const byHash = new Map<string, { readonly row: Row; readonly from: FileOwner }>();
    for (const from of owners) {
      for (const row of found) {
        const isFrom = row["owner_kind"] === from.kind && row["owner_id"] === from.id;
        const hash = row["hash"] as string;
        if (isFrom && row["tenant"] === tenant && !byHash.has(hash))
          byHash.set(hash, { row, from });
      }
    }
    return byHash;
  };

  /** Stores a new file under an owner, or finds the stored one that it stands for. */
  const storeOne = async (
    made: unknown,
    { tenant, ownerId, as }: { tenant: string; ownerId: string; as: StoreAs },
  ): Promise<FileRef> => {
    const said = newFileParts(made);
    if (!said) {
      throw new FlotillaError("invalid_input", "store takes what `file(…)` has returned");
    }
    if ("from" in said) {
      if (as.of === "task") {
        throw new FlotillaError(
          "unsupported",
          "a file of another task can't be passed on like this: give its stream, as in `file(files.stream(ref, { of: taskId }))`",
        );
      }
      const found = (await referred([said.from], [said.hash], tenant)).get(said.hash);
      if (found) return rememberSource(toRef(found.row), said.from);
      throw new FlotillaError(
        "not_found",
        `the ${said.from.kind} ${said.from.id.slice(0, 80)} has no file ${said.hash} in the tenant ${JSON.stringify(tenant)}`,
      );
    }
    const { open, mediaType, filename } = said;
    const files = as.of === "task" ? owned : uploads;
    const { token, kept = false } = as;
    const stored = await files.upload(tenant, ownerId, await open(), {
      ...(mediaType !== undefined && { mediaType }),
      ...(filename !== undefined && { filename }),
      ...(token !== undefined && { token }),
      kept,
    });
    const ref = { ...stored, size: stored.size! } as FileRef;
    return rememberSource(ref, { kind: as.of, id: ownerId });
  };

  /** One after the other: each is in memory a part at a time. */
  const storeAll = async (
    found: ReadonlySet<object>,
    to: { tenant: string; ownerId: string; as: StoreAs },
    tasks = 1,
  ): Promise<ReadonlyMap<object, FileRef>> => {
    if (found.size > taskFiles * tasks) throw tooMany();
    const references = new Map<object, FileRef>();
    for (const each of found) references.set(each, await storeOne(each, to));
    return references;
  };

  const tooMany = () =>
    ownerFull("task", { ...settings, ownerFiles: taskFiles, ownerBytes: taskBytes });

  const link = async (newTask: NewTask, input: unknown): Promise<NewTask> => {
    const known = new Map<string, FileOwner>();
    eachReference(input, (part, hash) => {
      const from = sourceOf(part);
      if (from) known.set(hash, from);
    });
    const payload = JSON.parse(newTask.payload) as unknown;
    const found = new Map<string, object[]>();
    eachReference(payload, (part, hash) => found.set(hash, [...(found.get(hash) ?? []), part]));
    if (found.size === 0) return newTask;
    if (found.size > taskFiles) throw tooMany();
    const { origin } = newTask;
    const from = new Map([...known.values()].map((each) => [`${each.kind} ${each.id}`, each]));
    // Code that works on a task or a conversation may pass its files on.
    const own = origin === undefined ? undefined : ownerOfOrigin(origin);
    const owners = [...from.values(), ...(own ? [own] : [])];
    const hashes = [...found.keys()];
    const byHash = await referred(owners, hashes, newTask.tenant);
    let bytes = 0;
    const links: FileLink[] = hashes.map((hash) => {
      const there = byHash.get(hash);
      if (!there) throw notReferred(newTask, hash);
      const ref = toRef(there.row);
      bytes += ref.size;
      // What a caller says of size, type and name counts for nothing.
      for (const part of found.get(hash)!) {
        delete (part as { filename?: string }).filename;
        Object.assign(part, ref);
      }
      return { taskId: newTask.taskId, tenant: newTask.tenant, hash, from: there.from };
    });
    if (bytes > taskBytes) throw tooMany();
    const what = `the payload of "${newTask.name}"`;
    return {
      ...newTask,
      payload: encodeJson(what, payload, { maxBytes: maxPayloadBytes }),
      files: links,
    };
  };

  const tenantOf = async (taskId: string): Promise<string> => {
    const [row] = await database.read(readTenant(taskId));
    if (row) return row["tenant"] as string;
    throw new FlotillaError("not_found", `there is no task ${taskId}`, { details: { taskId } });
  };

  return {
    store(made, options = {}) {
      checkOptions("tasks.files.store", options, ["tenant"]);
      const { tenant = "default" } = options;
      checkText("tenant", tenant, { max: taskOptions.tenant.maxChars });
      return storeOne(made, { tenant, ownerId: ids.next(), as: { of: "upload" } });
    },
    read: async (taskId, ref) => createFileReader(owned, taskId, "task").read(ref),
    stream: (taskId, ref) => createFileReader(owned, taskId, "task").stream(ref),
    take(input, tenant, tasks) {
      const found = newFilesIn(input);
      if (found.size === 0) return input;
      checkText("tenant", tenant, { max: taskOptions.tenant.maxChars });
      return storeAll(found, { tenant, ownerId: ids.next(), as: { of: "upload" } }, tasks).then(
        (references) => withStoredFiles(input, references),
      );
    },
    link(newTask, input) {
      return newTask.payload.includes(filePrefix) ? link(newTask, input) : newTask;
    },
    takeResult(result, { taskId, token }) {
      const found = newFilesIn(result);
      if (found.size === 0) return result;
      return tenantOf(taskId)
        .then((tenant) => storeAll(found, { tenant, ownerId: taskId, as: { of: "task", token } }))
        .then((references) => withStoredFiles(result, references));
    },
    ofTask: (taskId) => ({
      read: async (ref, { of = taskId } = {}) => createFileReader(owned, of, "task").read(ref),
      stream: (ref, { of = taskId } = {}) => createFileReader(owned, of, "task").stream(ref),
      async store(made) {
        const tenant = await tenantOf(taskId);
        return storeOne(made, { tenant, ownerId: taskId, as: { of: "task", kept: true } });
      },
    }),
  };
}

type StoreAs = {
  readonly of: "upload" | "task";
  readonly token?: number;
  readonly kept?: boolean;
};

function toRef(row: Row): FileRef {
  const label = parseStored(row["metadata"] as string) as FileLabel;
  return { type: "file", url: fileUrl(row["hash"] as string), ...label, size: Number(row["size"]) };
}

/** Refuses references where nothing would keep their files, such as in the input of a schedule. */
export function refuseReferences(newTask: NewTask, why: string): void {
  if (!newTask.payload.includes(filePrefix)) return;
  eachReference(JSON.parse(newTask.payload), (part) => {
    throw new FlotillaError(
      "unsupported",
      `the payload of "${newTask.name}" refers to the file ${fileHashOf(part as FileRef)}: ${why}`,
    );
  });
}

function notReferred({ name, origin }: NewTask, hash: string): FlotillaError {
  const where =
    origin === undefined
      ? "give `file(…)`, what `tasks.files.store` or an upload has returned within the hour"
      : `give \`file(…)\`, or a file of the ${origin.what} that enqueues it`;
  return new FlotillaError(
    "not_found",
    `the payload of "${name}" refers to the file ${hash}, which its tenant doesn't have here: ${where}, or that of a task as \`file(ref, { of: { taskId } })\``,
    { details: { hash } },
  );
}
