import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { type Clock, systemClock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { checkNumber, checkOptions } from "../base/options.ts";

/** What a simulated model says to one call. */
export type SimulatedAnswer = {
  readonly text?: string;
  readonly reasoning?: string;
  /** Tools that it asks for, by name and input. */
  readonly tools?: readonly (readonly [name: string, input: unknown])[];
  /** The call fails with this instead; with `text`, after the text. */
  readonly error?: unknown;
  readonly usage?: { readonly input?: number; readonly output?: number; readonly cached?: number };
};

export type SimulatedCall = {
  /** The number of the call, from 1, over all processes that share the ledger. */
  readonly nth: number;
  /** The messages of the call, as the AI SDK gives them to models. */
  readonly prompt: readonly { readonly role: string; readonly content: unknown }[];
  /** How often tools have answered in the prompt. */
  readonly toolResults: number;
  readonly hasTools: boolean;
  /**
   * What the answer has said already, where the call is to go on with it. Of a text that begins with this,
   * only the rest is said.
   */
  readonly soFar?: string;
};

export type SimulatedModelOptions = {
  /** What it says: a list by how often tools have answered, or a function. */
  readonly answers:
    | readonly SimulatedAnswer[]
    | ((call: SimulatedCall) => SimulatedAnswer | Promise<SimulatedAnswer>);
  /** Waits before the first word, and between words. Default 0. */
  readonly firstWordMs?: number;
  readonly wordMs?: number;
  /** The clock of the waits, such as `t.clock` of a test. Default: real time. */
  readonly clock?: Pick<Clock, "after">;
  /** A file in which each call is noted when it begins and ends, so that it outlives the process. */
  readonly ledger?: string;
  readonly modelId?: string;
};

/** A line of the ledger. */
export type LedgerEntry = { readonly nth: number; readonly what: "begun" | "ended" };

type Part = { readonly type: string } & Readonly<Record<string, unknown>>;
type CallOptions = {
  readonly prompt: SimulatedCall["prompt"];
  readonly tools?: readonly unknown[];
  readonly abortSignal?: AbortSignal;
};

const optionNames = ["answers", "firstWordMs", "wordMs", "clock", "ledger", "modelId"];

/**
 * A language model for the AI SDK 6 and 7 that costs nothing: it says what the test says, word by word on
 * the test's clock, and counts how often it was asked.
 */
export function simulatedModel(options: SimulatedModelOptions) {
  checkOptions("simulatedModel", options as Readonly<Record<string, unknown>>, optionNames);
  const { answers, firstWordMs = 0, wordMs = 0, clock = systemClock, ledger } = options;
  for (const [name, value] of Object.entries({ firstWordMs, wordMs })) {
    checkNumber(`simulatedModel: ${name}`, value, { min: 0, max: 3_600_000, whole: false });
  }
  const inMemory: LedgerEntry[] = [];
  const entries = (): LedgerEntry[] => (ledger === undefined ? inMemory : readLedger(ledger));
  const note = (entry: LedgerEntry): void => {
    if (ledger === undefined) inMemory.push(entry);
    else appendFileSync(ledger, `${JSON.stringify(entry)}\n`);
  };

  const wait = (durationMs: number, signal: AbortSignal | undefined): Promise<void> =>
    new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      if (durationMs === 0) return resolve();
      const stop = () => {
        cancel();
        reject(signal!.reason);
      };
      const cancel = clock.after(durationMs, () => {
        signal?.removeEventListener("abort", stop);
        resolve();
      });
      signal?.addEventListener("abort", stop, { once: true });
    });

  async function* speak({ prompt, tools = [], abortSignal }: CallOptions): AsyncGenerator<Part> {
    const nth = entries().filter(({ what }) => what === "begun").length + 1;
    note({ nth, what: "begun" });
    const toolResults = prompt.filter(({ role }) => role === "tool").length;
    const soFar = soFarIn(prompt);
    const hasTools = tools.length > 0;
    const call = { nth, prompt, toolResults, hasTools, ...(soFar !== undefined && { soFar }) };
    const answer = await answerTo(answers, call);
    yield { type: "stream-start", warnings: [] };
    await wait(firstWordMs, abortSignal);
    for (const [kind, text] of [
      ["reasoning", answer.reasoning],
      ["text", restOf(answer.text, soFar)],
    ] as const) {
      if (text === undefined) continue;
      yield { type: `${kind}-start`, id: kind };
      for (const delta of text.split(/(?<=\s)(?=\S)/)) {
        yield { type: `${kind}-delta`, id: kind, delta };
        await wait(wordMs, abortSignal);
      }
      yield { type: `${kind}-end`, id: kind };
    }
    if (answer.error !== undefined) throw answer.error;
    for (const [at, [toolName, input]] of (answer.tools ?? []).entries()) {
      const toolCallId = `call-${toolResults}-${at}`;
      yield { type: "tool-call", toolCallId, toolName, input: JSON.stringify(input) };
    }
    note({ nth, what: "ended" });
    const { input = 100, output = 10, cached = 0 } = answer.usage ?? {};
    const unified = (answer.tools ?? []).length > 0 ? "tool-calls" : "stop";
    yield {
      type: "finish",
      finishReason: { unified, raw: unified },
      usage: {
        inputTokens: { total: input, noCache: input - cached, cacheRead: cached },
        outputTokens: { total: output, text: output },
      },
    };
  }

  return {
    specificationVersion: "v3" as const,
    provider: "simulated",
    modelId: options.modelId ?? "simulated",
    supportedUrls: {},
    /** How often it was called, by all processes that share the ledger. */
    get begun(): number {
      return entries().filter(({ what }) => what === "begun").length;
    },
    /** How many calls it has answered whole. */
    get ended(): number {
      return entries().filter(({ what }) => what === "ended").length;
    },
    async doGenerate(call: any): Promise<any> {
      const content: Part[] = [];
      let text = "";
      for await (const { type, ...part } of speak(call as CallOptions)) {
        if (type === "finish") return { content, warnings: [], ...part };
        if (type === "tool-call") content.push({ type, ...part });
        if (type.endsWith("-start")) text = "";
        if (type.endsWith("-delta")) text += String(part["delta"]);
        if (type === "text-end" || type === "reasoning-end") {
          content.push({ type: type.slice(0, -"-end".length), text });
        }
      }
      throw new Error("a simulated call always ends");
    },
    async doStream(call: any): Promise<any> {
      const parts = speak(call as CallOptions);
      // What fails before the first word rejects the call, as providers do.
      const first = await parts.next();
      const stream = new ReadableStream<Part>({
        start: (controller) => controller.enqueue(first.value as Part),
        async pull(controller) {
          try {
            const next = await parts.next();
            if (next.done) controller.close();
            else controller.enqueue(next.value);
          } catch (error) {
            controller.enqueue({ type: "error", error });
            controller.close();
          }
        },
      });
      return { stream };
    },
  };
}

type PromptMessage = SimulatedCall["prompt"][number] & {
  readonly providerOptions?: { readonly flotilla?: { readonly interrupted?: unknown } };
};

/** What `durable` asks to go on with. */
function soFarIn(prompt: readonly PromptMessage[]): string | undefined {
  const [half, note] = prompt.slice(-2);
  if (note?.providerOptions?.flotilla?.interrupted !== "continue") return undefined;
  const content = half!.content as readonly { readonly text?: string }[];
  return content.map(({ text = "" }) => text).join("");
}

function restOf(text: string | undefined, soFar: string | undefined): string | undefined {
  return soFar !== undefined && text?.startsWith(soFar) ? text.slice(soFar.length) : text;
}

async function answerTo(
  answers: SimulatedModelOptions["answers"],
  call: SimulatedCall,
): Promise<SimulatedAnswer> {
  if (typeof answers === "function") return answers(call);
  const answer = answers[call.toolResults];
  if (answer) return answer;
  throw new FlotillaError(
    "not_found",
    `simulatedModel: there is no answer ${call.toolResults + 1}; \`answers\` has ${answers.length}, one for each time that tools have answered`,
  );
}

function readLedger(path: string): LedgerEntry[] {
  if (!existsSync(path)) return [];
  const lines = readFileSync(path, "utf8").split("\n").slice(0, -1);
  return lines.map((line) => JSON.parse(line) as LedgerEntry);
}
