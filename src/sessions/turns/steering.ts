import { FlotillaError, hasCode } from "../../base/errors.ts";
import { isJsonObject } from "../../base/json.ts";
import { jsonBytes } from "../../protocol/limits.ts";
import type { UIMessage } from "../../protocol/message.ts";
import type { StepWrite, TakeLook } from "../../steps/model.ts";
import type { Command, CommandResult } from "../conversation/command.ts";
import type { Turn } from "../conversation/header.ts";
import type { AnswerStream } from "./call-url.ts";
import type { Heard } from "./history.ts";

type Hearing = Extract<Command, { type: "turn_hearing" }>;

type TurnSteeringParts = {
  readonly turn: Pick<Turn, "epoch" | "attempt" | "steering">;
  /** Asks the owner. Rejects with `claim_lost` if the turn has ended or is another attempt's. */
  readonly ask: (command: Hearing) => Promise<CommandResult>;
  /** Reads the messages with these seqs, until they have so many bytes. */
  readonly read: (seqs: readonly number[], maxBytes: number) => Promise<readonly Heard[]>;
  /** False while a call to a model goes on with words that it has said before. */
  readonly mayHear: () => boolean;
};

/** A message for the stream, and the number of the step that it comes before. Undefined: before the next chunk. */
type Shown = {
  readonly chunk: Readonly<Record<string, unknown>>;
  readonly atStep: number | undefined;
};

/** What one turn hears. The answer has it all, and has at most 1 MiB. */
export const heardLimits = { maxMessages: 100, maxBytes: 256 * 1024 } as const;

/**
 * The messages that come while a turn works, for the function of its agent. The owner gives each to one
 * attempt, in the record that stores a step with its seq, and later attempts hear it from that step.
 */
export function createTurnSteering({ turn, ask, read, mayHear }: TurnSteeringParts) {
  const { epoch, attempt } = turn;
  const command = { type: "turn_hearing", epoch, attempt } as const;
  let heardSeq = turn.steering?.heardSeq ?? 0;
  /** The newest that the function was given in its latest call. */
  let givenSeq = 0;

  /** One call of the agent's function. `take` is that of its steps. */
  const open = (take: (look: TakeLook) => Promise<unknown>) => {
    let shown: Shown[] = [];
    let count = 0;
    let bytes = 0;
    givenSeq = 0;

    const look = async (): Promise<Heard[]> => {
      if (!mayHear()) return [];
      const { steering = [] } = await askOwner(command);
      const next = steering.slice(0, heardLimits.maxMessages - count);
      if (next.length === 0) return [];
      const room = heardLimits.maxBytes - bytes;
      const found = await read(next, room);
      let size = 0;
      const end = found.findIndex(({ message }) => (size += jsonBytes(message.parts)) > room);
      return end === -1 ? [...found] : found.slice(0, end);
    };

    const askOwner = async (asked: Hearing): Promise<CommandResult> => {
      try {
        return await ask(asked);
      } catch (error) {
        // An owner of an earlier release lets each message wait for the next turn.
        if (hasCode(error, "unsupported")) return { lastSeq: 0, steering: [] };
        throw error;
      }
    };

    const hear = async (atStep?: number): Promise<readonly UIMessage[]> => {
      let fresh: readonly Heard[] | undefined;
      const taken = await take(async () => {
        const found = await look();
        if (found.length === 0) return undefined;
        const seqs = found.map(({ seq }) => seq);
        const store = async (row: StepWrite): Promise<boolean> => {
          const { steering = [] } = await askOwner({ ...command, heard: { seqs, row } });
          return steering.length > 0;
        };
        fresh = found;
        return { value: { seqs }, store };
      });
      if (taken === undefined) return [];
      const seqs = seqsOf(taken);
      const heard = fresh ?? (await read(seqs, Infinity));
      count += seqs.length;
      for (const { message } of heard) bytes += jsonBytes(message.parts);
      givenSeq = seqs.at(-1)!;
      heardSeq = Math.max(heardSeq, givenSeq);
      shown.push(...heard.flatMap(({ message }) => shownAs(message, atStep)));
      return heard.map(({ message }) => message);
    };

    /** What is to be shown before a step, or before everything else. */
    const dueAt = (step: number): Shown["chunk"][] => {
      const due = shown.filter(({ atStep = 0 }) => atStep <= step);
      shown = shown.filter((each) => !due.includes(each));
      return due.map(({ chunk }) => chunk);
    };

    return {
      hear,
      /** The answer with what was heard, each at its place. */
      read({ chunks, ...stream }: AnswerStream): AnswerStream {
        let steps = 0;
        let next: unknown[] = [];
        let isOver = false;

        const take = async (): Promise<IteratorResult<unknown, unknown>> => {
          if (next.length > 0) return { done: false, value: next.shift() };
          const given = isOver ? { done: true as const, value: undefined } : await chunks.next();
          if (given.done === true) {
            isOver = true;
            next = dueAt(Infinity);
            return next.length > 0 ? take() : given;
          }
          const type = isJsonObject(given.value) ? given.value["type"] : undefined;
          if (type === "start") return given;
          // An answer without steps of its own shows everything before its first word.
          const isLast = type === "finish" || (steps === 0 && type !== "start-step");
          next = [...(isLast ? dueAt(Infinity) : dueNow(type === "start-step")), given.value];
          return { done: false, value: next.shift() };
        };
        const dueNow = (isStep: boolean): unknown[] => {
          if (isStep) return dueAt(steps++);
          const due = shown.filter(({ atStep }) => atStep === undefined);
          shown = shown.filter(({ atStep }) => atStep !== undefined);
          return due.map(({ chunk }) => chunk);
        };
        const leave = async (): Promise<IteratorResult<unknown>> =>
          (await chunks.return?.()) ?? { done: true, value: undefined };
        return { ...stream, chunks: { next: take, return: leave } };
      },
    };
  };

  return {
    open,
    /** True if messages that were heard before never reached the latest call of the function. */
    get isUnheard() {
      return givenSeq < heardSeq;
    },
  };
}

function seqsOf(taken: unknown): number[] {
  const { seqs } = taken as { seqs?: unknown };
  const isOurs = Array.isArray(seqs) && seqs.every(Number.isSafeInteger) && seqs.length > 0;
  if (isOurs) return seqs as number[];
  throw new FlotillaError("step_changed", "the stored step of a hearing has no messages");
}

/** Message parts of other types are for agents alone: the AI SDK shows texts and files. */
function shownAs({ id, parts: all }: UIMessage, atStep: number | undefined): Shown[] {
  const parts = all.filter(({ type }) => type === "text" || type === "file");
  return parts.length === 0 ? [] : [{ chunk: { type: "steering-message", id, parts }, atStep }];
}
