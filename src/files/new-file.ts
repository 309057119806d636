import { openAsBlob } from "node:fs";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import { FlotillaError, messageOf } from "../base/errors.ts";
import { checkOptions } from "../base/options.ts";
import { fileHashOf, type FileRef } from "../protocol/file.ts";
import type { FileOwner } from "./sql/files.ts";
import { isPlain, walkObjects } from "./references.ts";
import { labelOf } from "./take.ts";

/** What a file is made of: bytes, a stream, the path of a file on this machine, or a file that is stored. */
export type FileSource =
  | Uint8Array
  | ArrayBuffer
  | Blob
  | Iterable<Uint8Array>
  | AsyncIterable<Uint8Array>
  | ReadableStream<Uint8Array>
  | URL
  | string
  | FileRef;

export type NewFileOptions = {
  /** Its type, as in `Content-Type`. Default: that of a blob, else `application/octet-stream`. */
  mediaType?: string;
  /** Its name for people. Default: that of its path. */
  filename?: string;
  /** For a file that is stored: the task or the session that it belongs to. */
  of?: { readonly taskId: string } | { readonly sessionId: string };
};

/** A file that has no reference yet. */
export type NewFileParts =
  | { readonly from: FileOwner; readonly hash: string }
  | {
      readonly open: () => Promise<AsyncIterable<Uint8Array> | Iterable<Uint8Array>>;
      readonly mediaType?: string | undefined;
      readonly filename?: string | undefined;
    };

/** True once this process has made a file: until then no input needs to be searched for one. */
let isAnyMade = false;

/**
 * Stands for a reference until its bytes are stored. It is none yet, so whatever reads it as one, or writes it as
 * JSON where no files are stored, is told what to do.
 */
class NewFile {
  readonly type = "file";
  readonly #parts: NewFileParts;

  constructor(parts: NewFileParts) {
    this.#parts = parts;
  }

  static partsOf(value: unknown): NewFileParts | undefined {
    return typeof value === "object" && value !== null && #parts in value
      ? value.#parts
      : undefined;
  }

  get url(): string {
    throw notStored();
  }

  get mediaType(): string {
    throw notStored();
  }

  get size(): number {
    throw notStored();
  }

  toJSON(): never {
    throw notStored();
  }
}

/**
 * A file for the input of a task or flow, or for what a handler of a task returns: what is larger than a payload
 * may be. Its bytes are stored apart when the task is stored, and the payload has a reference to them, which the
 * handler reads with `files.read`. A text is the path of a file on this machine: never give one that a user has
 * sent. A stream can be used once.
 */
export function file(source: FileSource, options: NewFileOptions = {}): FileRef {
  checkOptions("file", options, ["mediaType", "filename", "of"]);
  const made = new NewFile(partsOf(source, options));
  isAnyMade = true;
  return made;
}

/** Whether a value is a reference to a file, or a file that will be one. For schemas, such as `z.custom(isFile)`. */
export function isFile(value: unknown): value is FileRef {
  if (typeof value !== "object" || value === null) return false;
  return NewFile.partsOf(value) !== undefined || isRef(value);
}

function isRef(value: object): value is FileRef {
  const { type, url, mediaType, size } = value as Partial<Record<keyof FileRef, unknown>>;
  return (
    fileHashOf({ type, url } as FileRef) !== undefined &&
    typeof mediaType === "string" &&
    Number.isSafeInteger(size)
  );
}

export const newFileParts = NewFile.partsOf;

/** The new files within a value, each once. */
export function newFilesIn(value: unknown): ReadonlySet<object> {
  const found = new Set<object>();
  if (!isAnyMade) return found;
  walkObjects(value, (each) => {
    if (NewFile.partsOf(each) === undefined) return false;
    found.add(each);
    return true;
  });
  return found;
}

/** The value with references in the place of new files. */
export function withStoredFiles(value: unknown, references: ReadonlyMap<object, FileRef>): unknown {
  if (typeof value !== "object" || value === null) return value;
  const reference = references.get(value);
  if (reference) return reference;
  if (Array.isArray(value)) return value.map((each) => withStoredFiles(each, references));
  if (!isPlain(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, each]) => [name, withStoredFiles(each, references)]),
  );
}

function partsOf(source: FileSource, { of, ...label }: NewFileOptions): NewFileParts {
  if (isFile(source)) {
    const hash = NewFile.partsOf(source) ? undefined : fileHashOf(source);
    if (hash === undefined) throw invalid("is a new file already: give it as it is");
    if (of === undefined) {
      throw invalid("is a stored file: say of which task, as in `file(ref, { of: { taskId } })`");
    }
    const from: FileOwner =
      "taskId" in of ? { kind: "task", id: of.taskId } : { kind: "session", id: of.sessionId };
    if (typeof from.id !== "string") throw invalid("is of no task: `of` takes its id");
    return { from, hash };
  }
  if (of !== undefined) throw invalid("is no stored file, so `of` has no meaning");
  // What is refused, is refused here, where its caller sees it.
  labelOf(label.mediaType, label.filename);
  return { ...label, ...openerOf(source) };
}

function openerOf(source: Exclude<FileSource, FileRef>) {
  if (typeof source === "string" || source instanceof URL) return openerOfPath(source);
  if (source instanceof Blob) {
    const { type } = source;
    return { open: async () => source.stream(), ...(type !== "" && { mediaType: type }) };
  }
  if (source instanceof ArrayBuffer) return { open: async () => [new Uint8Array(source)] };
  if (source instanceof Uint8Array) return { open: async () => [source] };
  if (typeof source === "object" && (Symbol.asyncIterator in source || Symbol.iterator in source)) {
    let used = false;
    return {
      async open() {
        if (used) {
          throw invalid("has a stream that was read: store it once, by `tasks.files.store(…)`");
        }
        used = true;
        return source;
      },
    };
  }
  throw invalid("is made of bytes, a blob, a stream, a path or a stored file");
}

function openerOfPath(source: string | URL) {
  if (source instanceof URL && source.protocol !== "file:") {
    throw invalid("has an address that isn't of this machine: fetch it, and give the body");
  }
  const path = typeof source === "string" ? source : fileURLToPath(source);
  return {
    filename: basename(path),
    async open() {
      try {
        return (await openAsBlob(path)).stream();
      } catch (error) {
        throw new FlotillaError(
          "invalid_input",
          `file: ${path} can't be read: ${messageOf(error)}`,
          {
            cause: error,
          },
        );
      }
    },
  };
}

function invalid(what: string): FlotillaError {
  return new FlotillaError("invalid_input", `file: it ${what}`);
}

function notStored(): FlotillaError {
  return new FlotillaError(
    "invalid_input",
    "a new file can't be here: it goes into the input of `enqueue`, or into what the handler of a task returns. Elsewhere, store it first and give what that returns: `await tasks.files.store(file(…))`, or `files.store` of a handler",
  );
}
