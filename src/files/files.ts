import crypto from "node:crypto";
import type { Clock } from "../base/clock.ts";
import { minuteMs } from "../base/durations.ts";
import { FlotillaError, messageOf } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import type { Random } from "../base/random.ts";
import { type FilePart, fileUrl } from "../protocol/file.ts";
import { parseStored } from "../store/codec/codec.ts";
import type { Database, Row } from "../store/database.ts";
import { untilKnown, writeUntilKnown } from "../store/retry.ts";
import type { Statement } from "../store/sql.ts";
import { createFolderStorage } from "./folder.ts";
import { createOutage, unguarded } from "./outage.ts";
import {
  beginUpload,
  closeRemnant,
  dropRemnant,
  type FileQuotas,
  finishUpload,
  keepReferences,
  type BytesPlace,
  type FileOwner,
  type OwnerKind,
  readReference,
  readUsed,
} from "./sql/files.ts";
import { createS3Storage, type S3Config } from "./s3.ts";
import { type ByteRange, bytesGone, createStoreStorage, type FileStorage } from "./storage.ts";
import { emptyFile, type FileLabel, labelOf, type TakenFiles } from "./take.ts";

export type FilesConfig = {
  /** The largest file. Default 25 MiB. */
  maxFileBytes?: number;
  /** How many files a session may refer to, and their bytes. Default 1,000 and 1 GiB. */
  sessionFiles?: number;
  sessionBytes?: number;
  /** How many files the payload and the result of a task may refer to, and their bytes. Default 100 and 1 GiB. */
  taskFiles?: number;
  taskBytes?: number;
  /** How many files a tenant may have, each content once, and their bytes. Default 100,000 and 20 GiB. */
  tenantFiles?: number;
  tenantBytes?: number;
  /** A folder for the bytes, the same on all pods and servers. Default: they are in the store. */
  folder?: string;
  /** A bucket for the bytes, of S3 or of a service that speaks its protocol. */
  s3?: S3Config;
  /**
   * Where this server is reached by agents behind URLs, as `https://chat.example.com`. They get addresses of
   * files there that expire. Default: they get references, which only members can read.
   */
  publicUrl?: string;
};

type Optional = "folder" | "s3" | "publicUrl";
export type FileSettings = Required<Omit<FilesConfig, Optional>> & Pick<FilesConfig, Optional>;

export const defaultFileSettings: FileSettings = {
  maxFileBytes: 25 * 1024 * 1024,
  sessionFiles: 1_000,
  sessionBytes: 1024 ** 3,
  taskFiles: 100,
  taskBytes: 1024 ** 3,
  tenantFiles: 100_000,
  tenantBytes: 20 * 1024 ** 3,
};

/** A file that its owner refers to. */
export type StoredFile = FileLabel & {
  readonly tenant: string;
  readonly hash: string;
  readonly size: number;
  readonly fileId: string;
  readonly place: BytesPlace;
};

export type NewFile = {
  mediaType?: unknown;
  filename?: unknown;
  /** What the caller says of it. The bytes must agree. */
  size?: number | undefined;
  hash?: string | undefined;
  /** True if it stays as long as its owner. Default: it stays for an hour, unless something keeps it. */
  kept?: boolean;
  /** The claim of the attempt of a task whose result has it, which is kept once that has completed the task. */
  token?: number;
};

/**
 * Files of one kind of owners: of conversations, of tasks, or uploads for tasks. They are stored by content, and
 * found only through an owner that refers to them.
 */
export type Files = {
  readonly settings: FileSettings;
  /** Stores what a source has, while it comes, and has the owner refer to it. */
  upload(
    tenant: string,
    ownerId: string,
    source: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
    file?: NewFile,
  ): Promise<FilePart>;
  /**
   * Stores and keeps the files of a message that is about to be stored: from here on they live as long as the
   * session, whatever becomes of the message. Throws where the session has no such file.
   */
  keep(tenant: string, sessionId: string, files: TakenFiles): Promise<void>;
  /** A file that the owner refers to. */
  find(ownerId: string, hash: string): Promise<StoredFile | undefined>;
  /** Its bytes, from one place to another one, both included. Default: all of them. */
  read(file: StoredFile, range?: ByteRange): AsyncGenerator<Uint8Array>;
  /** Where bytes are, by place, for what removes them. */
  storageAt(place: BytesPlace): FileStorage | undefined;
};

export type FilesParts = {
  database: Database;
  clock: Clock;
  random: Random;
  ids: Ids;
  log?: Logger | undefined;
  settings?: FileSettings | undefined;
  /** Whose files. Default: those of sessions. */
  of?: OwnerKind;
  /** Conversations go on while the store is away: a caller with a file is told so soon. Default false. */
  goesOn?: boolean | undefined;
};

/** An upload ends long before what it has stored counts as left behind. */
const uploadLimitMs = 20 * minuteMs;

export function createFiles(parts: FilesParts): Files {
  const { database, clock, random, ids, log = silentLogger } = parts;
  const { settings = defaultFileSettings, of = "session" } = parts;
  const ownerOf = (id: string): FileOwner => ({ kind: of, id });
  const quotas = quotasOf(of, settings);
  const { folder, s3 } = settings;
  const storages: { readonly [Place in BytesPlace]: FileStorage | undefined } = {
    s3: s3 && createS3Storage(s3),
    folder: folder === undefined ? undefined : createFolderStorage(folder),
    store: createStoreStorage({ database }),
  };
  const storage = Object.values(storages).find((each) => each !== undefined)!;
  const whileThere = parts.goesOn ? createOutage(clock) : unguarded;
  const write = async (statements: readonly Statement[]): Promise<Row[][]> =>
    (await writeUntilKnown(database, statements, { clock, random, ...untilKnown })).tables;

  /** The collector does the same for what is left behind. */
  const discard = async (fileId: string): Promise<void> => {
    try {
      const closed = (await whileThere(() => write(closeRemnant(fileId)))).at(-1)!;
      // The answer to a finish may have been lost: then it is a file. And a process that was paused may have
      // written after the collector had removed everything.
      if (closed.length === 0) return;
      await storage.remove(fileId);
      await write([dropRemnant(fileId)]);
    } catch (error) {
      log.debug({ file: fileId, error: messageOf(error) }, "upload not discarded yet");
    }
  };

  const checkQuota = async (ownerId: string, size: number): Promise<void> => {
    // What is stored already takes nothing, so only the end of an upload knows whether a tenant is full.
    if (of === "upload") return;
    const [row] = await whileThere(() => database.read(readUsed(ownerOf(ownerId))));
    const used = (name: string) => Number(row?.[name] ?? 0);
    const { ownerFiles, ownerBytes } = quotas;
    if (used("owner_files") >= ownerFiles || used("owner_bytes") + size > ownerBytes) {
      throw ownerFull(of, quotas);
    }
  };

  const store = async (
    tenant: string,
    ownerId: string,
    source: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
    { size, hash, kept = false, token, ...label }: FileLabel & NewFile,
  ): Promise<FilePart> => {
    const { maxFileBytes } = settings;
    if (size !== undefined && size > maxFileBytes) throw tooLarge(maxFileBytes);
    if (size === 0) throw emptyFile();
    const fileId = ids.next();
    const begun = await whileThere(() => write(beginUpload(tenant, fileId, storage.place)));
    // One that was collected before its answer came can't end.
    const beganAt = Number(begun.at(-1)![0]?.["began_at"] ?? 0);
    let isFile = false;
    try {
      const beganMs = clock.monotonic();
      const digest = crypto.createHash("sha256");
      let bytes = 0;
      let part = 0;
      for await (const piece of inParts(source, storage.partBytes)) {
        bytes += piece.length;
        if (bytes > maxFileBytes) throw tooLarge(maxFileBytes);
        if (size !== undefined && bytes > size) throw notAsSaid(size, bytes, "at least ");
        if (clock.monotonic() - beganMs > uploadLimitMs) throw tooSlow();
        digest.update(piece);
        await storage.write(fileId, part++, piece);
      }
      if (bytes === 0) throw emptyFile();
      if (size !== undefined && bytes !== size) throw notAsSaid(size, bytes);
      const found = digest.digest("hex");
      if (hash !== undefined && hash.toLowerCase() !== found) {
        throw new FlotillaError(
          "invalid_input",
          `the bytes have the SHA-256 ${found}, not the one that was given: they were changed on their way`,
        );
      }
      await storage.flush(fileId);
      const upload = {
        fileId,
        beganAt,
        tenant,
        owner: ownerOf(ownerId),
        hash: found,
        size: bytes,
        place: storage.place,
        metadata: JSON.stringify(label),
        kept,
        token,
      };
      const result = (await write(finishUpload(upload, quotas))).at(-1)![0];
      isFile = result?.["file_id"] === fileId;
      if (Number(result?.["referred"]) !== 1) throw refusalOf(result, of, quotas);
      return { type: "file", url: fileUrl(found), ...label, size: bytes };
    } finally {
      if (!isFile) await discard(fileId);
    }
  };

  const find = async (ownerId: string, hash: string): Promise<StoredFile | undefined> => {
    const reference = readReference(ownerOf(ownerId), hash);
    const [row] = await whileThere(() => database.read(reference, { cold: true }));
    if (!row) return undefined;
    const label = parseStored(row["metadata"] as string) as FileLabel;
    return {
      ...label,
      tenant: row["tenant"] as string,
      hash,
      size: Number(row["size"]),
      fileId: row["file_id"] as string,
      place: row["place"] as BytesPlace,
    };
  };

  return {
    settings,
    find,
    storageAt: (place) => storages[place],
    async upload(tenant, ownerId, source, { mediaType, filename, size, hash, ...rest } = {}) {
      const label = labelOf(mediaType, filename);
      if (hash !== undefined && !/^[0-9a-f]{64}$/i.test(hash)) {
        throw new FlotillaError(
          "invalid_input",
          "the hash must be a SHA-256 of 64 hexadecimal digits",
        );
      }
      await checkQuota(ownerId, size ?? 0);
      return store(tenant, ownerId, source, { ...label, size, hash, ...rest });
    },
    async keep(tenant, sessionId, { inline, references }) {
      for (const { bytes, hash, ...label } of inline) {
        const size = bytes.length;
        await store(tenant, sessionId, [bytes], { ...label, size, hash, kept: true });
      }
      if (references.length === 0) return;
      const keeping = keepReferences({ tenant, sessionId }, references);
      const kept = (await whileThere(() => write(keeping))).at(-1)!;
      const found = new Set(kept.map((row) => row["hash"] as string));
      const missing = references.find((each) => !found.has(each));
      if (missing === undefined) return;
      throw new FlotillaError(
        "not_found",
        `the session has no file ${missing}: upload it to this session, and send the message within the hour`,
      );
    },
    async *read({ fileId, place, size }, { from = 0, to = size - 1 } = {} as ByteRange) {
      const at = storages[place];
      if (!at) throw unknownPlace(place);
      const { partBytes } = at;
      for (let part = Math.floor(from / partBytes); part * partBytes <= to; part++) {
        const start = part * partBytes;
        const wanted = {
          from: Math.max(from - start, 0),
          to: Math.min(to - start, partBytes - 1),
        };
        const bytes = await at.read(fileId, part, wanted);
        // A body that is shorter than its header says would leave the next answer to be taken for its rest.
        if (bytes.length !== wanted.to - wanted.from + 1) throw bytesGone();
        yield bytes;
      }
    },
  };
}

/** Pieces of so many bytes, and what is left. */
async function* inParts(
  source: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  partBytes: number,
): AsyncGenerator<Uint8Array> {
  let buffer = Buffer.allocUnsafe(partBytes);
  let filled = 0;
  for await (const chunk of source) {
    for (let at = 0; at < chunk.length;) {
      const piece = chunk.subarray(at, at + partBytes - filled);
      buffer.set(piece, filled);
      filled += piece.length;
      at += piece.length;
      if (filled < partBytes) continue;
      yield buffer;
      buffer = Buffer.allocUnsafe(partBytes);
      filled = 0;
    }
  }
  if (filled > 0) yield buffer.subarray(0, filled);
}

function unknownPlace(place: BytesPlace): FlotillaError {
  return new FlotillaError(
    "unavailable",
    `the file is in a ${place === "s3" ? "bucket" : "folder"} that this process doesn't know: set \`files.${place}\` as the other pods have it`,
  );
}

/** What one owner and its tenant may have. */
function quotasOf(of: OwnerKind, settings: FileSettings): FileQuotas {
  const { sessionFiles, sessionBytes, taskFiles, taskBytes, tenantFiles, tenantBytes } = settings;
  return of === "session"
    ? { ownerFiles: sessionFiles, ownerBytes: sessionBytes, tenantFiles, tenantBytes }
    : { ownerFiles: taskFiles, ownerBytes: taskBytes, tenantFiles, tenantBytes };
}

function refusalOf(result: Row | undefined, of: OwnerKind, quotas: FileQuotas): FlotillaError {
  if (Number(result?.["fits_owner"]) !== 1) return ownerFull(of, quotas);
  if (Number(result?.["fits_tenant"]) === 1) return tooSlow();
  const { tenantFiles, tenantBytes } = quotas;
  const what = of === "session" ? "delete sessions" : "prune tasks or delete sessions";
  return new FlotillaError(
    "quota_exceeded",
    `the tenant's files would come to more than ${tenantFiles}, or ${tenantBytes} bytes: ${what}`,
    { details: { tenantFiles, tenantBytes } },
  );
}

/** The refusal of one file more than an owner may have. */
export function ownerFull(of: OwnerKind, { ownerFiles, ownerBytes }: FileQuotas): FlotillaError {
  const isSession = of === "session";
  return new FlotillaError(
    "quota_exceeded",
    `the ${isSession ? "session" : "task"}'s files would come to more than ${ownerFiles}, or ${ownerBytes} bytes: ${isSession ? "begin another session" : "divide it among tasks"}`,
    {
      details: isSession
        ? { sessionFiles: ownerFiles, sessionBytes: ownerBytes }
        : { taskFiles: ownerFiles, taskBytes: ownerBytes },
    },
  );
}

function tooLarge(maxFileBytes: number): FlotillaError {
  return new FlotillaError(
    "payload_too_large",
    `a file may take ${maxFileBytes} bytes: send a smaller one, or raise \`files.maxFileBytes\``,
    { details: { maxBytes: maxFileBytes } },
  );
}

function notAsSaid(said: number, bytes: number, least = ""): FlotillaError {
  return new FlotillaError(
    "invalid_input",
    `the file was said to have ${said} bytes, and has ${least}${bytes}`,
  );
}

function tooSlow(): FlotillaError {
  return new FlotillaError(
    "timeout",
    `the upload took longer than ${uploadLimitMs / minuteMs} minutes: send it again`,
  );
}
