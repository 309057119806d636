import type { Json } from "../base/jsonify.ts";
import type { Row } from "../store/database.ts";

/** One thing that happened to a run, as it is stored. */
export type HistoryEntry = {
  readonly seq: number;
  readonly atMs: number;
  readonly type: string;
  readonly attempt: number | null;
  readonly podId: string | null;
  /** The transition or finalizer that it is about. */
  readonly transition: string | null;
  /** When the attempt began that it tells the end of. */
  readonly startedAtMs: number | null;
  readonly detail: Json;
};

export function toHistoryEntry(row: Row): HistoryEntry {
  const detail = row["detail"] === null ? null : (JSON.parse(row["detail"]) as Json);
  const fields = (detail ?? {}) as { readonly [name: string]: Json };
  const { transition, startedAtMs } = fields;
  return {
    seq: Number(row["seq"]),
    atMs: Number(row["at"]),
    type: row["type"],
    attempt: row["attempt"] === null ? null : Number(row["attempt"]),
    podId: row["pod_id"],
    transition: typeof transition === "string" ? transition : null,
    startedAtMs: typeof startedAtMs === "number" ? startedAtMs : null,
    detail,
  };
}
