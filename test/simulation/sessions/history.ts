/** What clients asked for and were told. Moments are numbers that rise with each of them. */
export type Op = {
  readonly type: "send" | "tool_result";
  readonly id: string;
  readonly sessionId: string;
  /** The agent that is asked. */
  readonly to: string | undefined;
  readonly beganAt: number;
  endedAt: number | undefined;
  /** Every place that an answer gave for it. */
  readonly seqs: number[];
  /** Of an answer: what was stored by an earlier send. */
  duplicates: number;
  /** Whether all that was ever told of it were refusals, and which was the last. */
  unknown: boolean;
  refused: string | undefined;
};

export type ReadOp = {
  readonly sessionId: string;
  readonly user: string;
  readonly seq: number;
  acked: boolean;
};

export type History = {
  readonly ops: Op[];
  readonly reads: ReadOp[];
  /** The next moment. */
  now(): number;
  /** The furthest position that any client was told of in a session. */
  ackedSeq(sessionId: string): number;
};

export function createHistory(): History {
  const ops: Op[] = [];
  let moment = 0;
  return {
    ops,
    reads: [],
    now: () => ++moment,
    ackedSeq: (sessionId) =>
      Math.max(
        0,
        ...ops.filter((op) => op.sessionId === sessionId).flatMap((op) => op.seqs.slice(0, 1)),
      ),
  };
}
