import type { ModelCallOwner } from "../steps/model-calls.ts";
import type { ModelPart, StoredCall } from "./content.ts";

export type Params = { readonly abortSignal?: AbortSignal | undefined };
export type ModelResult = Readonly<Record<string, unknown>>;

/** The part of a model of the AI SDK that is wrapped, in all versions of its interface. */
export type ModelLike = {
  readonly specificationVersion?: unknown;
  readonly provider: string;
  readonly modelId: string;
  doGenerate(params: Params): PromiseLike<ModelResult>;
  doStream(params: Params): PromiseLike<ModelResult & { stream: ReadableStream<ModelPart> }>;
};

/** A call, with how long the model took. */
export type TimedCall = StoredCall & { readonly ms: number };

export function isModel(model: unknown): model is ModelLike {
  const { doGenerate, doStream } = Object(model) as Partial<ModelLike>;
  return typeof doGenerate === "function" && typeof doStream === "function";
}

/** A model whose calls hold permits of the throttle of their owner, and are timed without the wait. */
export function underThrottle({ clock, middleware }: ModelCallOwner, model: ModelLike) {
  let beganMs = clock.monotonic();
  const timed: ModelLike = {
    provider: model.provider,
    modelId: model.modelId,
    doGenerate(params) {
      beganMs = clock.monotonic();
      return model.doGenerate(params);
    },
    doStream(params) {
      beganMs = clock.monotonic();
      return model.doStream(params);
    },
  };
  return {
    generate: (params: Params): PromiseLike<ModelResult> =>
      middleware ? middleware.wrapGenerate({ model: timed, params }) : timed.doGenerate(params),
    stream: (params: Params): ReturnType<ModelLike["doStream"]> =>
      middleware ? middleware.wrapStream({ model: timed, params }) : timed.doStream(params),
    tookMs: () => Math.round(clock.monotonic() - beganMs),
  };
}

export function withSignal(params: Params, signal: AbortSignal): Params {
  const { abortSignal } = params;
  return { ...params, abortSignal: abortSignal ? AbortSignal.any([abortSignal, signal]) : signal };
}
