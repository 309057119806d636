import { isJsonObject } from "../base/json.ts";
import { reportedTokens } from "../base/usage.ts";
import type { ModelCallOwner } from "../steps/model-calls.ts";
import type { ModelPart, StoredCall } from "./content.ts";
import type { CallUsage } from "./meter.ts";

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

const charsPerToken = 4;

export function usageOf(
  { modelId }: ModelLike,
  call: StoredCall,
  params: Params,
  ms: number,
): CallUsage {
  const model = typeof modelId === "string" ? modelId : "";
  const estimate = (value: unknown) => Math.ceil(charsIn(value) / charsPerToken);
  const { input, output, cached } = reportedTokens(call.finish["usage"]) ?? {
    input: estimate((params as { prompt?: unknown }).prompt),
    output: estimate(call.content),
    cached: 0,
  };
  return { model, calls: 1, inputTokens: input, outputTokens: output, cachedTokens: cached, ms };
}

/** The characters of text, but not of files. */
function charsIn(value: unknown): number {
  if (typeof value === "string") return value.length;
  if (Array.isArray(value)) return value.reduce<number>((sum, each) => sum + charsIn(each), 0);
  if (!isJsonObject(value)) return 0;
  return charsIn(value["text"] ?? value["content"] ?? value["input"] ?? value["output"]);
}
