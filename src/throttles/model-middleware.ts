import { checkOptions } from "../base/options.ts";
import { reportedTokens, tokenCount, type UsageLedger } from "../base/usage.ts";
import type { ThrottleDeclaration } from "./declaration.ts";
import type { Limiter } from "./limiter/limiter.ts";
import type { AcquireOptions, HeldPermit, QueuePosition, ThrottledCall } from "./limiter/permit.ts";
import type { HeadersLike } from "./rate-headers.ts";
import { runUnderPermit } from "./run.ts";
import { countingUsage, currentScope } from "./scope.ts";
import { watchParts } from "./stream.ts";
import type { Priority } from "./limiter/priority.ts";
import type { CallOutcome } from "./classify.ts";

/** The part of a model that the middleware reads. */
type ModelLike = { readonly provider: string; readonly modelId: string };

export type MiddlewareOptions = {
  /** The key whose limit a model counts against; `(model) => model.modelId` for one limit per model. */
  readonly key?: string | ((model: ModelLike) => string);
  readonly priority?: Priority;
  /** The expected cost of a call, where the bucket counts tokens. Estimated from its text by default. */
  readonly estimate?: (params: unknown) => number;
  /** How long a call may take, its stream included, if that is less than `callTimeoutMs`. */
  readonly timeoutMs?: number;
  readonly maxWaitMs?: number;
};

type Params = { readonly abortSignal?: AbortSignal | undefined };

/**
 * Middleware of the AI SDK for language, embedding and image models. Typed structurally, so that users
 * of other SDKs needn't install the AI SDK.
 */
export type ThrottleMiddleware = {
  readonly specificationVersion: "v3";
  wrapGenerate<P extends Params, Result>(options: {
    params: P;
    model: ModelLike & { doGenerate(params: P): PromiseLike<Result> };
  }): Promise<Result>;
  wrapStream<P extends Params, Result extends { readonly stream: ReadableStream }>(options: {
    params: P;
    model: ModelLike & { doStream(params: P): PromiseLike<Result> };
  }): Promise<Result>;
  wrapEmbed<P extends Params, Result>(options: {
    params: P;
    model: ModelLike & { doEmbed(params: P): PromiseLike<Result> };
  }): Promise<Result>;
};

const optionNames = ["key", "priority", "estimate", "timeoutMs", "maxWaitMs"];

/** Holds a permit for each call to a model. Each of the SDK's own retries acquires one. */
export function throttleMiddleware(
  declared: ThrottleDeclaration,
  ownKey: string,
  options: MiddlewareOptions = {},
  /** Called with the position of a call that waits, and with undefined when it begins. */
  onWaiting?: (at: QueuePosition | undefined) => void,
): ThrottleMiddleware {
  checkOptions(`throttle "${declared.name}": middleware`, options, optionNames);
  const keyOf = (model: ModelLike): string =>
    (typeof options.key === "function" ? options.key(model) : options.key) ?? ownKey;

  const acquireOptions = (params: Params): AcquireOptions => ({
    signal: params.abortSignal,
    priority: options.priority,
    estimate: estimateOf(declared, options, params),
    timeoutMs: options.timeoutMs,
    maxWaitMs: options.maxWaitMs,
    ...(onWaiting && { onWaiting }),
  });

  /** Adds the call's signal, which fires when its time is up. */
  const withSignal = <P extends Params>(params: P, signal: AbortSignal): P => ({
    ...params,
    abortSignal: params.abortSignal ? AbortSignal.any([params.abortSignal, signal]) : signal,
  });

  const callOnce = <P extends Params, Result>(
    model: ModelLike,
    params: P,
    call: (params: P) => PromiseLike<Result>,
  ): Promise<Result> =>
    countingUsage((ledger) =>
      runUnderPermit(
        declared,
        keyOf(model),
        async ({ signal, used, headers }) => {
          onWaiting?.(undefined);
          const result = await call(withSignal(params, signal));
          reportHeaders(result, headers);
          const tokens = usedTokens(result);
          if (tokens !== undefined && countsTokens(declared)) used(tokens);
          const limiter = currentScope().throttles.of(declared, keyOf(model));
          countUsage({ ledger, limiter }, model, result);
          return result;
        },
        acquireOptions(params),
      ),
    );

  return {
    // No release of the SDK checks the version, and "v3" satisfies the types of all of them.
    specificationVersion: "v3",
    wrapGenerate: ({ model, params }) =>
      callOnce(model, params, (callParams) => model.doGenerate(callParams)),
    wrapEmbed: ({ model, params }) =>
      callOnce(model, params, (callParams) => model.doEmbed(callParams)),
    wrapStream: ({ model, params }) =>
      countingUsage((ledger) =>
        runUnderPermit(
          declared,
          keyOf(model),
          ({ signal }) => {
            onWaiting?.(undefined);
            return model.doStream(withSignal(params, signal));
          },
          acquireOptions(params),
          (result, permit, limiter) => {
            reportHeaders(result, permit.headers);
            const counting = countsTokens(declared);
            const stream = untilStreamEnds(result.stream, permit, limiter, (finish) => {
              const tokens = usedTokens(finish);
              if (tokens !== undefined && counting) permit.used(tokens);
              countUsage({ ledger, limiter }, model, finish);
            });
            return { ...result, stream };
          },
        ),
      ),
  };
}

/** Results carry the headers of the provider's answer, where the model was called over HTTP. */
function reportHeaders(result: unknown, report: ThrottledCall["headers"]): void {
  const headers = field(field(result, "response"), "headers");
  if (typeof headers === "object" && headers !== null) report(headers as HeadersLike);
}

const countsTokens = ({ settings }: ThrottleDeclaration): boolean =>
  settings.controller.bucket?.unit === "tokens";

function estimateOf(
  declared: ThrottleDeclaration,
  options: MiddlewareOptions,
  params: Params,
): number | undefined {
  if (!countsTokens(declared)) return undefined;
  return options.estimate?.(params) ?? estimateCallTokens(params, declared.settings.estimate);
}

/** Parts that come before the first token. */
const beforeAnswer = new Set(["stream-start", "response-metadata", "raw", "error"]);

function untilStreamEnds(
  source: ReadableStream,
  permit: HeldPermit,
  limiter: Limiter,
  onFinish: (finish: unknown) => void,
): ReadableStream {
  let begun = false;
  let failure: CallOutcome | undefined;
  return watchParts(source as ReadableStream<Record<string, unknown>>, {
    onChunk(part) {
      if (typeof part.type !== "string") return;
      if (part.type === "error") failure = limiter.outcomeOf(permit, part.error);
      if (!beforeAnswer.has(part.type)) {
        begun = true;
        permit.firstToken();
      }
      if (part.type === "finish") onFinish(part);
    },
    onIdle(idle) {
      permit.late = idle ? "ignored" : "timeout";
    },
    onEnd(end) {
      if (failure) permit.release(failure);
      else if (end.how === "read" || (begun && (permit.givenUp || end.how === "cancelled"))) {
        permit.release(permit.success());
      } else if (end.how === "cancelled") permit.release("ignored");
      else permit.release(limiter.outcomeOf(permit, end.error));
    },
  });
}

/** The tokens that a model's result, or the last part of its stream, reports as used. */
export function usedTokens(result: unknown): number | undefined {
  const usage = field(result, "usage");
  const tokens = tokenCount(field(usage, "tokens"));
  if (tokens !== undefined) return tokens;
  const input = tokenCount(field(usage, "inputTokens"));
  const output = tokenCount(field(usage, "outputTokens"));
  if (input === undefined && output === undefined) return undefined;
  return (input ?? 0) + (output ?? 0);
}

/** Counts the tokens that a model's result, or the last part of its stream, reports, if it does. */
function countUsage(
  { ledger, limiter }: { ledger: UsageLedger | undefined; limiter: Limiter },
  { modelId }: ModelLike,
  result: unknown,
): void {
  const report = field(result, "usage");
  const tokens = reportedTokens(report);
  if (!tokens) return;
  const usage = { model: modelId, ...tokens };
  ledger?.count(usage, "middleware");
  limiter.countTokens(usage, report as object);
}

// For English. Other languages need more tokens; the bucket settles the difference after the call.
const charsPerToken = 4;

/** Estimates the length of the input text, plus the maximum output, or `defaultOutput` where none is set. */
export function estimateCallTokens(params: unknown, defaultOutput: number): number {
  const values = field(params, "values");
  if (Array.isArray(values)) return Math.ceil(textChars(values) / charsPerToken);
  const maxOutput = field(params, "maxOutputTokens");
  const output = typeof maxOutput === "number" ? maxOutput : defaultOutput;
  return Math.ceil(textChars(field(params, "prompt")) / charsPerToken) + output;
}

/** Counts text, but not encoded files and images. */
function textChars(value: unknown): number {
  if (typeof value === "string") return value.length;
  if (Array.isArray(value)) return value.reduce<number>((sum, each) => sum + textChars(each), 0);
  return textChars(field(value, "text") ?? field(value, "content") ?? []);
}

function field(value: unknown, name: string): unknown {
  if (typeof value !== "object" || value === null) return undefined;
  return (value as Record<string, unknown>)[name];
}
