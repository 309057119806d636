import { FlotillaError } from "../base/errors.ts";

/** What a change can be about. */
export const changeKinds = ["task", "run", "turn", "session"] as const;
export type ChangeKind = (typeof changeKinds)[number];

/** What can happen to it. */
export const changeTypes = [
  "created",
  "completed",
  "failed",
  "cancelled",
  "retried",
  "set_aside",
  "resumed",
  "archived",
  "deleted",
] as const;
export type ChangeType = (typeof changeTypes)[number];

/** That a task, a run, a turn or a session was changed. It has nothing of what users put in. */
export type RecordedChange = {
  /** Where a reader goes on that has dealt with this change and all before it. */
  readonly cursor: string;
  readonly kind: ChangeKind;
  /** The id of the task, run or session; of a turn, that of its session, a slash and its epoch. */
  readonly id: string;
  /** The name of the task or flow, or of the agent; null of a session without one. */
  readonly name: string | null;
  readonly tenant: string;
  readonly change: ChangeType;
  /** As it was right after the change; of a turn that has ended, its outcome. */
  readonly status: string;
  /** Of a turn: which attempt has ended, or 1 for a turn that begins. */
  readonly attempt?: number;
  /** When the statement was executed that made the change, by the store's clock. */
  readonly atMs: number;
};

/** A row of `change`, as far as its readers need it. */
export type ChangeRow = {
  readonly mark: number;
  readonly seq: number;
  readonly atMs: number;
  readonly subjects: string;
};

/** How far a reader has come: all rows before this one, and of it so many subjects, or all. */
export type Position = {
  readonly life: string;
  readonly mark: number;
  readonly seq: number;
  readonly subjects: number | "all";
};

/** A change whose tenant may be known only from its session. */
export type ReadChange = Omit<RecordedChange, "tenant"> & {
  readonly tenant: string | null;
  readonly sessionId?: string;
};

type Subject = readonly [
  kind: ChangeKind,
  id: string,
  name: string | null,
  tenant: string | null,
  change: ChangeType,
  status: string,
  epoch: number | null,
  attempt: number | null,
];

const cursorForm = /^([\w-]{1,64})\.(\d{1,16})\.(\d{1,16})(?:\.(\d{1,9}))?$/;

export function cursorOf({ life, mark, seq, subjects }: Position): string {
  const row = `${life}.${mark}.${seq}`;
  return subjects === "all" ? row : `${row}.${subjects}`;
}

export function positionOf(cursor: string): Position {
  const [, life, mark, seq, subjects] = cursorForm.exec(cursor) ?? [];
  if (life === undefined) {
    throw new FlotillaError(
      "invalid_option",
      'after must be the `cursor` of a change or of a page, or "now"',
    );
  }
  return {
    life,
    mark: Number(mark),
    seq: Number(seq),
    subjects: subjects === undefined ? "all" : Number(subjects),
  };
}

/** Negative if one is before the other. */
export function compareRows(
  one: Pick<Position, "mark" | "seq">,
  other: Pick<Position, "mark" | "seq">,
): number {
  return one.mark - other.mark || one.seq - other.seq;
}

/** The changes of a row after a position. */
export function changesIn(row: ChangeRow, after: Position): ReadChange[] {
  const { mark, seq, atMs } = row;
  const all = JSON.parse(row.subjects) as Subject[];
  const isBegun = compareRows(row, after) === 0 && after.subjects !== "all";
  const changes = all.map(
    ([kind, id, name, tenant, change, status, epoch, attempt], at): ReadChange => ({
      cursor: cursorOf({
        life: after.life,
        mark,
        seq,
        subjects: at + 1 === all.length ? "all" : at + 1,
      }),
      kind,
      id,
      name,
      tenant,
      change,
      status,
      ...(attempt !== null && { attempt }),
      atMs,
      ...(epoch !== null && { sessionId: id.slice(0, id.lastIndexOf("/")) }),
    }),
  );
  return isBegun ? changes.slice(after.subjects as number) : changes;
}
