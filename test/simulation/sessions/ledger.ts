/**
 * What agents have done outside, in steps, and what is stored of that. A step whose end was stored is done:
 * no later attempt of its turn begins it again.
 */
import { sql, table } from "../../../src/store/sql.ts";
import type { Header } from "../../../src/sessions/conversation/header.ts";
import type { World } from "../world.ts";

export type StepRow = {
  readonly sessionId: string;
  readonly epoch: number;
  readonly key: string;
  /** Its place among the rows of its turn. */
  readonly seq: number;
  readonly attempt: number;
  readonly kind: string;
  readonly value: string;
};

type TurnId = { readonly sessionId: string; readonly epoch: number; readonly attempt: number };

export type Ledger = {
  /** The function of a step is called. Returns what tells this call from any other. */
  begins(turn: TurnId, key: string): string;
  /** A step has returned this to the agent. */
  returned(turn: TurnId, key: string, value: unknown): void;
  /** A row was stored, while the session's header was this one. */
  stored(row: StepRow, before: StepRow | undefined, header: Header): void;
  /** A row was deleted by the record that stored these of its turn, which goes on or has ended with it. */
  deleted(
    row: StepRow,
    by: { readonly stored: readonly StepRow[]; readonly isOver: boolean },
  ): void;
  /** A session has this header now. */
  judgeOpen(header: Header): void;
  judgeEnd(): Promise<void>;
};

export function createLedger(
  { violate, count, store, scheduler }: World,
  { onStored }: { onStored: (sessionId: string) => void },
): Ledger {
  /** All steps whose end was ever stored. */
  const done = new Map<string, StepRow>();
  /** Rows that are stored now, by session. */
  const open = new Map<string, Map<string, StepRow>>();
  const calls = new Map<string, number>();
  /** The row from which each message is heard, by its session and seq. */
  const heard = new Map<string, string>();
  /** The turn that each session is in. */
  const epochs = new Map<string, number | undefined>();

  return {
    begins(turn, key) {
      const name = nameOf(turn, key);
      const times = (calls.get(name) ?? 0) + 1;
      calls.set(name, times);
      scheduler.note(`step ${name} of attempt ${turn.attempt}, call ${times}`);
      const before = done.get(name);
      // A pod that doesn't know yet that it was replaced may do what the other has done.
      if (before && before.attempt <= turn.attempt) {
        violate("steps", `${name} begins again in attempt ${turn.attempt}, of ${before.attempt}`);
      }
      if (times > 1) count("step: begun again");
      return `${key} ${turn.epoch}.${turn.attempt} call ${times}`;
    },

    returned(turn, key, value) {
      const name = nameOf(turn, key);
      const row = done.get(name);
      // The record that stored it has ended its turn as well, and deleted what was stored of it.
      if (!row && epochs.has(turn.sessionId) && epochs.get(turn.sessionId) !== turn.epoch) {
        return count("step: stored with the end of its turn");
      }
      if (row?.value !== JSON.stringify(value)) {
        violate("steps", `${name} returned ${JSON.stringify(value)}, and ${row?.value} is stored`);
      }
      count(row?.attempt === turn.attempt ? "step: stored" : "step: answered from the journal");
    },

    stored(row, before, { work }) {
      const name = nameOf(row, row.key);
      const isOwn = work?.type === "turn" && work.epoch === row.epoch;
      if (!isOwn || work.attempt !== row.attempt) {
        const at = `${work?.type} ${work?.epoch}.${work?.attempt}`;
        violate("steps", `${name} of attempt ${row.attempt} is stored in ${at}`);
      }
      const last = done.get(name);
      if (last && (row.kind !== "done" || row.value !== last.value)) {
        violate("steps", `${name} was ${last.value}, and becomes ${row.kind} ${row.value}`);
      }
      if (before && before.seq >= row.seq) {
        violate("steps", `${name} with number ${row.seq} takes the place of number ${before.seq}`);
      }
      if (row.kind === "done") done.set(name, row);
      for (const seq of heardBy(row)) {
        const message = `${row.sessionId}#${seq}`;
        const by = heard.get(message) ?? name;
        if (by !== name) violate("W11", `${message} is heard by ${by} and by ${name}`);
        heard.set(message, name);
      }
      onStored(row.sessionId);
      if (before?.kind === "round") count("step: a further round");
      const ofSession = open.get(row.sessionId) ?? new Map<string, StepRow>();
      open.set(row.sessionId, ofSession.set(name, row));
    },

    deleted(row, { stored, isOver }) {
      const isReplaced = stored.some((each) => isWithin(row.key, each.key) && each.seq > row.seq);
      if (!isOver && !isReplaced) {
        violate("steps", `${nameOf(row, row.key)} is deleted before what it is within is stored`);
      }
      const ofSession = open.get(row.sessionId);
      ofSession?.delete(nameOf(row, row.key));
      if (ofSession?.size === 0) open.delete(row.sessionId);
    },

    judgeOpen({ sessionId, work }) {
      epochs.set(sessionId, work?.epoch);
      for (const [name, { epoch }] of open.get(sessionId) ?? []) {
        if (epoch !== work?.epoch) violate("steps", `${name} outlives its turn`);
      }
    },

    async judgeEnd() {
      const rows = await store.database.read(
        sql`select owner_id, key from ${table("step_journal")}`,
      );
      for (const row of rows) violate("steps", `${row["owner_id"]} ${row["key"]} is left behind`);
    },
  };
}

function heardBy({ key, value }: StepRow): number[] {
  return key.startsWith("@taken[") ? (JSON.parse(value) as { seqs: number[] }).seqs : [];
}

/** Whether a key is that of a step within another, or in a round of it. */
function isWithin(key: string, outer: string): boolean {
  return key.startsWith(`${outer}/`) || key.startsWith(`${outer}@`);
}

function nameOf({ sessionId, epoch }: Omit<TurnId, "attempt">, key: string): string {
  return `${sessionId} ${epoch} ${key}`;
}
