import { createHash } from "node:crypto";
import type { Files } from "./files.ts";
import { eachReference } from "./references.ts";
import type { FileOwner } from "./sql/files.ts";

/**
 * Where references were made in this process. One that comes from anywhere else, such as a request, is only text
 * until it is found where an enqueue may look for it.
 */
const sources = new WeakMap<object, FileOwner>();

export function sourceOf(reference: object): FileOwner | undefined {
  return sources.get(reference);
}

export function rememberSource<Reference extends object>(
  reference: Reference,
  from: FileOwner,
): Reference {
  sources.set(reference, from);
  return reference;
}

/** The owner of what a caller of a server uploads for a tenant, for tasks that it stores within the hour. */
export function uploadsOf(caller: string, tenant: string): string {
  return createHash("sha256")
    .update(JSON.stringify([caller, tenant]))
    .digest("hex");
}

/** Has the references within an input of a request count as uploads of its caller. */
export function claimUploads(input: unknown, caller: string, tenant = "default"): void {
  const from: FileOwner = { kind: "upload", id: uploadsOf(caller, tenant) };
  eachReference(input, (part) => void rememberSource(part, from));
}

/** What servers have for files of tasks: what callers upload for them, and what they refer to. */
export type FilesOfTasks = {
  readonly uploads: Files;
  readonly ofTasks: Files;
  readonly uploadsOf: typeof uploadsOf;
  readonly claimUploads: typeof claimUploads;
};
