import { DatabaseSync } from "node:sqlite";
import type { Digest } from "../disk/digest.ts";

export type BlobRow = { readonly digest: Digest; readonly bytes: number };
/** An unpacked image. `tree` tells whether it is still what was unpacked. */
export type TreeRow = {
  readonly imageId: string;
  readonly tree: Digest;
  readonly entries: number;
  readonly bytes: number;
};
export type SnapshotRow = {
  readonly snapshotId: string;
  readonly imageId: string;
  readonly tree: Digest;
};
/** What a name stands for, and where it is active. */
export type ImageRow = {
  readonly reference: string;
  readonly imageId: string;
  readonly snapshotId: string;
};

/** What is known of the files beside it. Every write says what is to be, so that it can be repeated. */
export type Metadata = Disposable & {
  readonly blob: (digest: Digest) => BlobRow | undefined;
  readonly putBlob: (row: BlobRow) => void;
  readonly tree: (imageId: string) => TreeRow | undefined;
  readonly putTree: (row: TreeRow) => void;
  readonly snapshot: (snapshotId: string) => SnapshotRow | undefined;
  readonly image: (reference: string) => ImageRow | undefined;
  /** The snapshot and the name that leads to it, or neither. */
  readonly register: (snapshot: SnapshotRow, image: ImageRow) => void;
  readonly forget: (kind: RowKind, id: string) => void;
  readonly all: () => AllRows;
  readonly check: () => void;
  readonly close: () => void;
};

export type AllRows = {
  readonly blobs: readonly BlobRow[];
  readonly trees: readonly TreeRow[];
  readonly snapshots: readonly SnapshotRow[];
  readonly images: readonly ImageRow[];
};
export type RowKind = keyof AllRows;

const keys = {
  blobs: "digest",
  trees: "imageId",
  snapshots: "snapshotId",
  images: "reference",
} as const satisfies Record<RowKind, string>;

export function openMetadata(path: string): Metadata {
  const database = new DatabaseSync(path, { timeout: 10_000 });
  database.exec(`
    pragma journal_mode = wal;
    pragma synchronous = full;
    create table if not exists blobs (digest text primary key, bytes integer not null) strict;
    create table if not exists trees (
      imageId text primary key, tree text not null,
      entries integer not null, bytes integer not null
    ) strict;
    create table if not exists snapshots (
      snapshotId text primary key, imageId text not null, tree text not null
    ) strict;
    create table if not exists images (
      reference text primary key, imageId text not null, snapshotId text not null
    ) strict;
  `);

  const get = <Row>(kind: RowKind, id: string): Row | undefined =>
    database.prepare(`select * from ${kind} where ${keys[kind]} = ?`).get(id) as Row | undefined;
  const list = <Row>(kind: RowKind): Row[] =>
    database.prepare(`select * from ${kind} order by ${keys[kind]}`).all() as Row[];
  const put = (kind: RowKind, row: Record<string, string | number>): void => {
    const names = Object.keys(row);
    const values = names.map(() => "?").join(", ");
    database
      .prepare(`insert or replace into ${kind} (${names.join(", ")}) values (${values})`)
      .run(...Object.values(row));
  };
  const close = () => database.close();
  return {
    blob: (digest) => get("blobs", digest),
    putBlob: (row) => put("blobs", row),
    tree: (imageId) => get("trees", imageId),
    putTree: (row) => put("trees", row),
    snapshot: (snapshotId) => get("snapshots", snapshotId),
    image: (reference) => get("images", reference),
    register(snapshot, image) {
      database.exec("begin immediate");
      try {
        put("snapshots", snapshot);
        put("images", image);
        database.exec("commit");
      } catch (thrown) {
        database.exec("rollback");
        throw thrown;
      }
    },
    forget: (kind, id) => {
      database.prepare(`delete from ${kind} where ${keys[kind]} = ?`).run(id);
    },
    all: () => ({
      blobs: list("blobs"),
      trees: list("trees"),
      snapshots: list("snapshots"),
      images: list("images"),
    }),
    check: () => void database.prepare("select count(*) from images").get(),
    close,
    [Symbol.dispose]: close,
  };
}
