import type { Clock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import type { Budget, ModelTotal, Prices } from "../base/usage.ts";
import type { ThrottleMiddleware } from "../throttles/model-middleware.ts";

/** What the owner of steps sets for the calls to models that are made in them. */
export type ModelCallOptions = {
  readonly prices?: Prices | undefined;
  /** What all of them may use. */
  readonly budget?: Budget | undefined;
  /** What of the budget was used before: an answer that goes on has one budget in all its turns. */
  readonly before?: Required<Budget> | undefined;
  /** Holds a permit of the owner's throttle for each of them. Undefined if it has none. */
  readonly middleware?: ThrottleMiddleware | undefined;
  /** A model was called in a step, or `again` if a stored step has answered for it. */
  readonly onTokens?: (
    used: ModelTotal,
    options: { readonly again: boolean; readonly calls: number; readonly ms: number },
  ) => void;
  /** Files that prompts may refer to. Undefined if the owner has none. */
  readonly files?: ReferredFiles | undefined;
  /** A durable call has ended, with this error if it has one. Streams of the AI SDK don't tell theirs. */
  readonly onEnded?: (error?: unknown) => void;
};

export type ReferredFiles = {
  /** What the addresses of such files look like. */
  readonly pattern: RegExp;
  read(url: string): Promise<Uint8Array>;
};

/** The bytes of stored files that the messages for one prompt may come to. */
const maxPromptBytes = 32 * 1024 * 1024;

/** Refuses files that are too much for one prompt. */
export function checkPromptBytes(bytes: number): void {
  if (bytes <= maxPromptBytes) return;
  throw new FlotillaError(
    "payload_too_large",
    `the files of these messages take more than ${maxPromptBytes} bytes: leave older messages out`,
    { details: { maxBytes: maxPromptBytes } },
  );
}

type OfOwner = { readonly clock: Clock; readonly modelCalls?: ModelCallOptions | undefined };

/** Where steps are called: by the owner, in a step or in a round, which is within another. */
export type StepLevel = { readonly prefix: string; readonly outer: StepLevel | undefined };

const owners = new WeakMap<object, { readonly owner: OfOwner; readonly level: StepLevel }>();

/** Keeps what the owner of these steps sets, for code that gets nothing but `step`. */
export function withOwner<Made extends object>(step: Made, owner: OfOwner, level: StepLevel): Made {
  owners.set(step, { owner, level });
  return step;
}

/** The level of a context's `step`. */
export function levelOf(step: object): StepLevel {
  return owners.get(step)!.level;
}

export type ModelCallOwner = ModelCallOptions & { readonly clock: Clock };

/** Undefined if this isn't the `step` of a context, but made of one. */
export function modelCallsOf(step: object): ModelCallOwner | undefined {
  const { owner } = owners.get(step) ?? {};
  return owner && { ...owner.modelCalls, clock: owner.clock };
}
