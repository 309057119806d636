import { FlotillaError } from "../base/errors.ts";
import { fileHashOf } from "../protocol/file.ts";
import type { Files, StoredFile } from "./files.ts";

/** A part of a message, or of a payload or result, whose `url` is a reference. */
type FileLike = { readonly type: string; readonly url?: unknown };

/** Reads files of one owner. */
export type FileReader = {
  /** The bytes of a file. */
  read(part: FileLike): Promise<Uint8Array>;
  /** The same, piece by piece. */
  stream(part: FileLike): ReadableStream<Uint8Array>;
  find(hash: string): Promise<StoredFile>;
};

/** `what` names the owner in what is thrown. */
export function createFileReader(
  files: Pick<Files, "find" | "read">,
  ownerId: string,
  what: "session" | "task",
): FileReader {
  const find = async (hash: string) => {
    const found = await files.find(ownerId, hash);
    if (found) return found;
    throw new FlotillaError("not_found", `the ${what} has no file ${hash}`);
  };
  async function* piecesOf(part: FileLike): AsyncGenerator<Uint8Array> {
    yield* files.read(await find(hashOf(part)));
  }
  return {
    find,
    async read(part) {
      const pieces: Uint8Array[] = [];
      for await (const piece of piecesOf(part)) pieces.push(piece);
      return Buffer.concat(pieces);
    },
    stream(part) {
      const pieces = piecesOf(part);
      return new ReadableStream({
        async pull(control) {
          const { value, done } = await pieces.next();
          if (done) control.close();
          else control.enqueue(value);
        },
        async cancel() {
          await pieces.return(undefined);
        },
      });
    },
  };
}

function hashOf(part: FileLike): string {
  const hash =
    typeof part === "object" && part !== null
      ? fileHashOf(part as Parameters<typeof fileHashOf>[0])
      : undefined;
  if (hash !== undefined) return hash;
  throw new FlotillaError(
    "invalid_input",
    "the part is no stored file: its `url` begins with flotilla-file:",
  );
}
