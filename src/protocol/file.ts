import type { Part } from "./message.ts";

/** How the address of a stored file begins. What follows is the SHA-256 of its bytes, in hexadecimal. */
export const filePrefix = "flotilla-file:";

/** How many bytes of files a message may carry within itself, as data URLs. */
export const maxInlineBytes = 10 * 1024 * 1024;
/** What they add to its body: base64 takes a third more. */
export const maxInlineBodyBytes = Math.ceil(maxInlineBytes / 3) * 4;

/** A file as a message has it: where its bytes are is known by their hash. */
export type FilePart = Part & {
  readonly type: "file";
  readonly url: string;
  readonly mediaType: string;
  readonly filename?: string;
  readonly size?: number;
};

/**
 * A file in the payload or the result of a task, as it is stored: a reference to its bytes. In the input of
 * `enqueue`, and in what a handler returns, `file(…)` stands for one.
 */
export type FileRef = {
  readonly type: "file";
  /** `flotilla-file:` and the SHA-256 of its bytes. */
  readonly url: string;
  readonly mediaType: string;
  readonly filename?: string;
  readonly size: number;
};

const reference = /^flotilla-file:([0-9a-f]{64})$/;

export function fileUrl(hash: string): string {
  return filePrefix + hash;
}

/** The hash of the file that a part refers to; undefined for any other part. */
export function fileHashOf({
  type,
  url,
}: Pick<Part, "type"> & { readonly url?: unknown }): string | undefined {
  return type === "file" && typeof url === "string" ? reference.exec(url)?.[1] : undefined;
}
