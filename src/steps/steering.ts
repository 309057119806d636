import type { Step } from "./model.ts";

/** A part of a message, as the AI SDK has it. */
type HeardPart = { readonly type: string; readonly [field: string]: unknown };

/** A user's message that has come while the code runs. */
export type HeardMessage = {
  readonly id: string;
  readonly parts: readonly HeardPart[];
  readonly metadata?: unknown;
};

/**
 * What gives code the messages that have come since it last asked. `atStep` is the number of the step of the
 * answer's stream that hears them, the first being 0: the stream shows them before it.
 */
export type Hear = (options: { readonly atStep: number }) => Promise<readonly HeardMessage[]>;

const hearing = new WeakMap<Step, Hear>();

/** Undefined where no messages come: in tasks, within steps, and in turns that aren't steered. */
export function hearingOf(step: Step): Hear | undefined {
  return hearing.get(step);
}

export function setHearing<S extends Step>(step: S, hear: Hear): S {
  hearing.set(step, hear);
  return step;
}
