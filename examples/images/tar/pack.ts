import { gzipSync } from "node:zlib";
import { Header, Pax } from "tar";

/** An entry to pack. Nothing is checked, so that archives can be made that must be refused. */
export type PackEntry = {
  readonly path: string;
  readonly content?: string | Uint8Array;
  readonly type?: EntryType;
  readonly target?: string;
  readonly mode?: number;
};

export type EntryType =
  | "File"
  | "Directory"
  | "SymbolicLink"
  | "Link"
  | "CharacterDevice"
  | "BlockDevice"
  | "FIFO"
  | "NextFileHasLongPath"
  | "NextFileHasLongLinkpath"
  | "GNUDumpDir"
  | "SparseFile";

const block = 512;
/** Two empty blocks end an archive. */
export const endMarker: Buffer = Buffer.alloc(2 * block);

/** A layer as it is stored: the same entries give the same bytes. */
export function packLayer(entries: readonly PackEntry[]): Buffer {
  return gzipSync(Buffer.concat([...entries.map(packEntry), endMarker]));
}

export function packEntry({ path, content = "", type, target, mode }: PackEntry): Buffer {
  const body = Buffer.from(content as string);
  const kind = type ?? (path.endsWith("/") ? "Directory" : target ? "SymbolicLink" : "File");
  const header = new Header({
    path,
    type: kind,
    size: body.length,
    mode: mode ?? (kind === "Directory" ? 0o755 : 0o644),
    mtime: new Date(0),
    uid: 0,
    gid: 0,
    ...(target !== undefined && { linkpath: target }),
  });
  const encoded = Buffer.alloc(block);
  const needsMore = header.encode(encoded);
  const more = needsMore ? new Pax({ path, linkpath: target ?? "" }).encode() : Buffer.alloc(0);
  return Buffer.concat([more, encoded, padded(body)]);
}

/** Content up to the next block. */
export function padded(body: Buffer): Buffer {
  return Buffer.concat([body, Buffer.alloc((block - (body.length % block)) % block)]);
}
