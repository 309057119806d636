/** What was promised of logs on JetStream, compared with every message that was ever stored. */
import type { Header } from "../../../src/sessions/conversation/header.ts";
import type { Head, LogRecord } from "../../../src/sessions/log/journal.ts";
import type { StoredMessage } from "../../../src/sessions/log/jetstream/engine.ts";
import {
  decodeMessage,
  firstChain,
  type LogMessage,
  nextChain,
} from "../../../src/sessions/log/jetstream/message.ts";
import {
  type Deployment,
  type LogLife,
  streamName,
  subjectPrefix,
} from "../../../src/sessions/log/jetstream/streams.ts";
import { decodeRecord } from "../../../src/sessions/log/record-codec.ts";

export type Ledger = {
  stored(stream: string, message: StoredMessage): void;
  sent(at: Head, recordId: string): void;
  acked(podId: string, at: Head, head: Head): void;
  fenced(podId: string, at: Head, recordId: string): void;
  /** The pod was told for certain that the record isn't stored. */
  refused(at: Head, recordId: string): void;
  /** A pod has replayed its log, and serves it from here on. */
  recovered(
    head: Head,
    busy: readonly Header[],
    records: readonly { readonly offset: number; readonly record: LogRecord }[],
  ): void;
  beginQuiet(): void;
  judge(): void;
};

export const logStreamForm = /_(\d+)_([\w-]+)$/;

type History = {
  readonly life: LogLife;
  /** Undefined: one of others. */
  readonly messages: (LogMessage | undefined)[];
  /** The headers that each of them holds. */
  readonly headers: (readonly Header[])[];
};

export function createLedger({
  deployment,
  violate,
  count,
  note,
}: {
  deployment: Deployment;
  violate: (invariant: string, what: string) => void;
  count: (what: string) => void;
  note: (line: string) => void;
}): Ledger {
  const histories = new Map<string, History>();
  const acks: { readonly podId: string; readonly head: Head }[] = [];
  const refusals = new Set<string>();
  /** Terms that have ended for their owner. */
  const over = new Set<string>();
  let sent = 0;
  let ackedBefore = 0;

  const lifeOf = ({ logId, incarnation }: Head): LogLife => ({
    logId,
    incarnation,
    firstSequence: 1,
  });
  const historyOf = (head: Head): History["messages"] =>
    histories.get(streamName(deployment, lifeOf(head)))?.messages ?? [];
  const shown = ({ logId, offset, term }: Head): string => `log ${logId}, ${offset}, term ${term}`;

  return {
    stored(stream, stored) {
      const [, logId, incarnation] = logStreamForm.exec(stream) ?? [];
      if (logId === undefined) return;
      const life = { logId: Number(logId), incarnation: incarnation!, firstSequence: 1 };
      const history: History = histories.get(stream) ?? { life, messages: [], headers: [] };
      histories.set(stream, history);
      const decoded = decodeMessage(subjectPrefix(deployment, life), stored);
      if (decoded.type === "damaged") return violate("stored", `${stream} has damage`);
      const message = decoded.type === "message" ? decoded.message : undefined;
      history.messages.push(message);
      history.headers.push(message?.kind === "record" ? decodeRecord(message.body).headers : []);
    },

    sent(at, recordId) {
      sent++;
      note(`sent ${recordId.slice(-4)} behind ${shown(at)}`);
    },

    acked(podId, at, head) {
      note(`acked ${shown(head)} to ${podId}`);
      acks.push({ podId, head });
      if (head.offset !== at.offset + 1)
        violate("O3", `${shown(head)} was acked behind ${at.offset}`);
      if (historyOf(head)[head.offset - 1]?.recordId !== head.recordId) {
        violate("O3", `${shown(head)} was acked to ${podId}, and isn't there`);
      }
      if (over.has(`${head.logId} ${head.term}`)) {
        violate("O1", `${podId} goes on in ${shown(head)}, from which it was fenced`);
      }
    },

    fenced(podId, at, recordId) {
      note(`fenced ${podId} at ${shown(at)}`);
      count("fence: record");
      over.add(`${at.logId} ${at.term}`);
      const found = historyOf(at)[at.offset];
      // One that the next owner has archived and trimmed can't be told from another's.
      const isTakenSince = historyOf(at).some((each) => each !== undefined && each.term > at.term);
      const isThere = historyOf(at).length > at.offset;
      if (!isThere) violate("O2", `${podId} was fenced at ${shown(at)}, and nothing is behind it`);
      else if (found?.recordId === recordId && !isTakenSince) {
        violate("O2", `${podId} was fenced at ${shown(at)} by its own record`);
      }
    },

    refused: (_at, recordId) => void refusals.add(recordId),

    recovered(head, busy, records) {
      const before = historyOf(head).slice(0, head.offset);
      const all = histories.get(streamName(deployment, lifeOf(head)))!.headers;
      const headers = new Map<string, Header>();
      for (const header of all.slice(0, head.offset).flat()) headers.set(header.sessionId, header);
      const wanted = [...headers.values()].filter(({ work }) => work !== null);
      if (sorted(wanted) !== sorted(busy)) {
        violate("O7", `what is busy in ${shown(head)} isn't what its new owner has found`);
      }
      const last = before.findLast((each) => each?.kind === "record");
      const lastFound = records.at(-1)?.record.recordId;
      const isMissed = last !== undefined && lastFound !== undefined && lastFound !== last.recordId;
      if (isMissed) violate("O7", `the new owner at ${shown(head)} hasn't read the last record`);
    },

    beginQuiet() {
      ackedBefore = acks.length;
    },

    judge() {
      for (const { life, messages } of histories.values()) judgeHistory(life, messages);
      for (const { head } of acks) {
        if (historyOf(head)[head.offset - 1]?.recordId !== head.recordId) {
          violate("O3", `${shown(head)} was acked, and isn't there any more`);
        }
      }
      if (acks.length === ackedBefore) violate("quiet", "nothing was acked once all was well");
      if (acks.length * 2 < sent) violate("quiet", `of ${sent} records, ${acks.length} were acked`);
    },
  };

  function judgeHistory(life: LogLife, messages: History["messages"]): void {
    let chain = firstChain(life.incarnation);
    let term = 0;
    let owner: string | null = null;
    const recordIds = new Set<string>();
    messages.forEach((message, at) => {
      if (!message) return;
      const what = `${at + 1} of log ${life.logId}`;
      chain = nextChain(chain, message);
      if (message.chain !== chain) violate("chain", `the chain ends before ${what}`);
      if (recordIds.has(message.recordId)) violate("O2", `${what} is stored twice`);
      recordIds.add(message.recordId);
      if (refusals.has(message.recordId)) violate("O2", `${what} was refused for certain`);
      if (message.term < term) violate("O1", `the term falls at ${what}`);
      const isTaken = message.kind === "owner" && message.owner !== null;
      if (isTaken) {
        if (message.term !== term + 1) violate("O1", `${what} begins term ${message.term}`);
        owner = message.owner;
      } else if (message.kind === "owner") owner = null;
      else if (message.term !== term || message.owner !== owner) {
        violate("O1", `${what} is ${message.owner}'s of term ${message.term}, in that of ${owner}`);
      }
      ({ term } = message);
    });
  }
}

function sorted(headers: readonly Header[]): string {
  return JSON.stringify(
    headers.toSorted((one, other) => (one.sessionId < other.sessionId ? -1 : 1)),
  );
}
