import type { Replica } from "../evidence.ts";
import type { StoredMessage } from "../log-reader.ts";

/** What rivals have written down, each line before it did the next thing. */
export type Note = { readonly rival: string } & (
  | ({ readonly event: "sent" } & Place)
  | ({ readonly event: "committed"; readonly term: number } & Place)
  | ({ readonly event: "fenced" } & Place)
  /** Its outcome wasn't known at first. */
  | ({ readonly event: "unknown" } & Place)
  /** A server refused a record for what should be at its place, and a read found nothing there. */
  | { readonly event: "nothing"; readonly log: number; readonly offset: number }
  /** The records up to a place, as a new owner has read them. */
  | {
      readonly event: "recovered";
      readonly log: number;
      readonly offset: number;
      readonly records: readonly string[];
    }
  | { readonly event: "failed"; readonly why: string }
);

export type Place = { readonly log: number; readonly recordId: string; readonly offset: number };

type Unnamed<Each> = Each extends unknown ? Omit<Each, "rival"> : never;
export type NewNote = Unnamed<Note>;

export type RivalEvidence = {
  readonly notes: readonly Note[];
  readonly stored: readonly { readonly log: number; readonly messages: readonly StoredMessage[] }[];
  readonly replicas: readonly Replica[];
};
