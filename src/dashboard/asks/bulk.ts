import type { bulkSpecs } from "../../server/api/acts/bulk.schema.ts";
import { type Answered, type NewAct, newAct, part, readAnswer, send } from "../api.ts";

/** One act on many tasks or runs, as the pages that have such lists ask for it. */

export type BulkFacts = Answered<typeof bulkSpecs.get>;
export type BulkAct = BulkFacts["action"];
export type BulkPreviewFacts = Answered<typeof bulkSpecs.preview>;
export type BulkOutcomeFacts = Answered<typeof bulkSpecs.outcomes>["outcomes"][number];

/** A filter as an act takes it: the server checks it. */
export type BulkFilterFacts = Readonly<Record<string, unknown>>;

export type BulkRequestFacts = {
  readonly action: BulkAct;
  readonly filter: BulkFilterFacts;
  readonly fromStart?: boolean;
  readonly signal?: string;
  readonly payload?: unknown;
  readonly as?: number;
  readonly reason?: string;
};

export const bulkApi = {
  bulks: async (signal: AbortSignal) =>
    (await readAnswer<Answered<typeof bulkSpecs.list>>("v1/bulk", { limit: 5 }, signal)).bulks,
  bulk: (bulkId: string, signal: AbortSignal) =>
    readAnswer<BulkFacts>(`v1/bulk/${part(bulkId)}`, {}, signal),
  outcomes: async (bulkId: string, signal: AbortSignal) =>
    (
      await readAnswer<Answered<typeof bulkSpecs.outcomes>>(
        `v1/bulk/${part(bulkId)}/outcomes`,
        {},
        signal,
      )
    ).outcomes,
  /** Changes nothing, so that any act's id will do. */
  preview: (request: BulkRequestFacts) =>
    send<BulkPreviewFacts>("v1/bulk/preview", newAct(), request),
  start: (request: BulkRequestFacts, act: NewAct) => send<BulkFacts>("v1/bulk", act, request),
  stop: (bulkId: string, act: NewAct) => send<BulkFacts>(`v1/bulk/${part(bulkId)}/stop`, act),
};
