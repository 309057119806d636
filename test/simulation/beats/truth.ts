/** What is really stored in the logs, and since when each owner had its log. */
import type { Header } from "../../../src/sessions/conversation/header.ts";
import type { Reads } from "../../../src/sessions/log/journal.ts";
import type { StoredMessage } from "../../../src/sessions/log/jetstream/engine.ts";
import { decodeMessage } from "../../../src/sessions/log/jetstream/message.ts";
import { type Deployment, subjectPrefix } from "../../../src/sessions/log/jetstream/streams.ts";
import { decodeRecord } from "../../../src/sessions/log/record-codec.ts";

type Acked = { readonly sessionId: string; readonly clientId: string; readonly seq: number };

export type Truth = {
  stored(stream: string, message: StoredMessage): void;
  acked(acked: Acked): void;
  exists(sessionId: string): boolean;
  readonly reads: Pick<Reads, "header" | "storedIds">;
  /** When the next owner took a log from the owner of this term; `Infinity` if none has. */
  lostMs(logId: number, term: number): number;
  /** The term of each log. */
  terms(): number[];
  judge(): void;
};

export function createTruth({
  deployment,
  violate,
  nowMs,
  onTaken,
}: {
  deployment: Deployment;
  violate: (invariant: string, what: string) => void;
  nowMs: () => number;
  /** Called when a pod has taken a log, from another or from none. */
  onTaken: (taken: { logId: number; from: string | null; to: string }) => void;
}): Truth {
  const headers = new Map<string, Header>();
  /** The client ids of each session, in order. */
  const entries = new Map<string, string[]>();
  const takenMs = new Map<string, number>();
  const terms = new Map<number, number>();
  const owners = new Map<number, string | null>();
  const acks: Acked[] = [];

  return {
    stored(stream, stored) {
      const [, id, incarnation] = /_(\d+)_([\w-]+)$/.exec(stream) ?? [];
      if (id === undefined) return;
      const logId = Number(id);
      const life = { logId, incarnation: incarnation!, firstSequence: 1 };
      const decoded = decodeMessage(subjectPrefix(deployment, life), stored);
      if (decoded.type !== "message") return violate("stored", `${stream} has a ${decoded.type}`);
      const { kind, term, owner, body } = decoded.message;
      if (term < (terms.get(logId) ?? 0)) violate("O1", `the term of log ${logId} falls`);
      if (term > (terms.get(logId) ?? 0)) {
        takenMs.set(`${logId} ${term}`, nowMs());
        onTaken({ logId, from: owners.get(logId) ?? null, to: owner! });
      }
      terms.set(logId, term);
      owners.set(logId, owner);
      if (kind !== "record") return;
      const record = decodeRecord(body);
      for (const header of record.headers) headers.set(header.sessionId, header);
      for (const { sessionId, seq, clientId } of record.entries) {
        const all = entries.get(sessionId) ?? [];
        entries.set(sessionId, all);
        if (seq !== all.length + 1) violate("S2", `${sessionId} has ${seq} behind ${all.length}`);
        if (clientId && all.includes(clientId)) violate("S3", `${sessionId} has ${clientId} twice`);
        all.push(clientId ?? "");
      }
    },
    acked: (acked) => void acks.push(acked),
    exists: (sessionId) => headers.has(sessionId),
    reads: {
      header: async (sessionId) => headers.get(sessionId),
      storedIds: async (asked) =>
        asked.flatMap(({ sessionId, clientId }) => {
          const seq = (entries.get(sessionId)?.indexOf(clientId) ?? -1) + 1;
          return seq > 0 ? [{ sessionId, clientId, seq }] : [];
        }),
    },
    lostMs: (logId, term) => takenMs.get(`${logId} ${term + 1}`) ?? Infinity,
    terms: () => [...terms.keys()].toSorted((a, b) => a - b).map((logId) => terms.get(logId)!),
    judge() {
      for (const { sessionId, clientId, seq } of acks) {
        const found = entries.get(sessionId)?.[seq - 1];
        if (found !== clientId) violate("S1", `${clientId} was acked as ${seq} of ${sessionId}`);
      }
      if (acks.length === 0) violate("quiet", "nothing was acked");
    },
  };
}
