import type { Database } from "../store/database.ts";
import { deleteParts, insertPart, type BytesPlace, readPart } from "./sql/files.ts";
import { FlotillaError } from "../base/errors.ts";

/** So many bytes are in a row of the store, and are written to a folder at a time. */
export const usualPartBytes = 256 * 1024;

export type ByteRange = { readonly from: number; readonly to: number };

/** Where the bytes of files are kept. Which files there are, and who refers to them, is in the store. */
export type FileStorage = {
  readonly place: BytesPlace;
  /** How many bytes a part has. The last one has what is left. */
  readonly partBytes: number;
  /** Stores a part. The same one may come again. */
  write(fileId: string, part: number, bytes: Uint8Array): Promise<void>;
  /** Resolves once a power cut can't lose what was written. */
  flush(fileId: string): Promise<void>;
  /** What is in a part from one place in it to another one, both included. */
  read(fileId: string, part: number, range: ByteRange): Promise<Uint8Array>;
  /** Removes all that was written, if there is any. */
  remove(fileId: string): Promise<void>;
};

/** Keeps bytes in rows of the store. */
export function createStoreStorage({ database }: { database: Database }): FileStorage {
  return {
    place: "store",
    partBytes: usualPartBytes,
    async write(fileId, part, bytes) {
      const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("base64");
      await database.write([insertPart(fileId, part, text)]);
    },
    flush: () => Promise.resolve(),
    async read(fileId, part, { from, to }) {
      const [row] = await database.read(readPart(fileId, part), { cold: true });
      if (row) return Buffer.from(row["body"] as string, "base64").subarray(from, to + 1);
      throw bytesGone();
    },
    async remove(fileId) {
      await database.write([deleteParts(fileId)]);
    },
  };
}

/** The file was deleted since it was found. */
export function bytesGone(cause?: unknown): FlotillaError {
  return new FlotillaError("not_found", "the file was deleted meanwhile", { cause });
}
