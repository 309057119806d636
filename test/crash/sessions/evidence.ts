import type { HistoryEvent, Shown } from "./history.ts";

/** A session as the store's own tables have it, when all is over. */
export type StoredSession = {
  readonly session: string;
  readonly agent: string | null;
  readonly state: string;
  readonly lastSeq: number;
  /** What the header says, beside which the columns are only for looking. */
  readonly header: { readonly lastSeq: number; readonly pending: number; readonly busy: boolean };
  readonly entries: readonly (Shown & { readonly clientId: string | null })[];
};

export type SessionEvidence = {
  readonly history: readonly HistoryEvent[];
  readonly stored: readonly StoredSession[];
  /**
   * What each server gave to a client that came last and had nothing, and what each client has that has
   * followed all along.
   */
  readonly reads: readonly {
    readonly reader: string;
    readonly session: string;
    readonly entries: readonly Shown[];
  }[];
};

/** Gives a line for everything that speaks against a promise. */
export type SessionCheck = (evidence: SessionEvidence) => string[];

export type Of<Type extends HistoryEvent["type"]> = Extract<HistoryEvent, { type: Type }>;

export function eventsOf<Type extends HistoryEvent["type"]>(
  { history }: Pick<SessionEvidence, "history">,
  type: Type,
): Of<Type>[] {
  return history.filter((event): event is Of<Type> => event.type === type);
}

const fields = ["seq", "messageId", "role", "author", "text", "epoch", "outcome"] as const;

/** All of an entry that must be the same everywhere and for ever. */
export function contentOf(entry: Shown): string {
  return JSON.stringify(fields.map((field) => entry[field]));
}
