import { noFiles } from "./no-files.ts";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type Clock, systemClock } from "../../base/clock.ts";
import { uuidv7 } from "../../base/ids.ts";
import type { Logger } from "../../base/log.ts";
import { until } from "../../base/contract/movable-clock.ts";
import { seededRandom, systemRandom } from "../../base/random.ts";
import { createThrottleRegistry } from "../../throttles/registry.ts";
import type {
  Command,
  CommandResult,
  DecidedEntry,
  EndedTurn,
  Reply,
} from "../conversation/command.ts";
import type { Header, Turn } from "../conversation/header.ts";
import type { LogRecord } from "../log/journal.ts";
import { createMemoryJournal } from "../log/memory-journal.ts";
import { entry, fresh, header, record, take, turn } from "./journal-harness.ts";
import { endedTurn } from "./records.ts";
import type { LiveChunks, Runner } from "../runner.ts";
import type { RunnerParts, TurnEvent } from "../turns/parts.ts";
import { createRunner } from "../turns/runner.ts";
import type { AgentSpec } from "../agents/spec.ts";

export type RunnerHarness = {
  readonly runner: Runner;
  readonly sessionId: string;
  /** What the runner has told the owner, in order. */
  readonly told: Command[];
  readonly live: LiveChunks[];
  readonly events: TurnEvent[];
  readonly logged: { readonly fields: Record<string, unknown>; readonly message: string }[];
  /** Stores entries, and gives the header that counts them. */
  store(entries: readonly Partial<DecidedEntry>[], facts?: Partial<Header>): Promise<Header>;
  /** The steps that the owner has stored of a turn, by their keys. */
  steps(epoch?: number): Promise<Record<string, unknown>>;
  /** How often stored steps were read. */
  readonly stepReads: number;
  /** Stores that another pod's attempt at a turn has ended. */
  endElsewhere(turn: Pick<EndedTurn, "epoch" | "attempt">): Promise<void>;
  /** Starts a turn over what is stored, or over one message where nothing is. */
  begin(facts?: Partial<Turn>): Promise<Turn>;
  /** Starts a turn, and gives the answer that it ended with. */
  answer(facts?: Partial<Turn>): Promise<Reply>;
  /** The answer of the turn that runs. */
  reply(epoch?: number): Promise<Reply>;
};

export type RunnerHarnessOptions = {
  clock?: Clock;
  /** What the owner says. Default: that it is done. */
  owner?: (command: Command) => Promise<CommandResult> | CommandResult;
} & Partial<
  Pick<
    RunnerParts,
    | "maxReplyBytes"
    | "maxTurns"
    | "runsSuspectTask"
    | "enqueue"
    | "start"
    | "prepareLater"
    | "network"
    | "throttles"
    | "agentOf"
    | "files"
  >
>;

/** A runner with one agent, a session of its own, and an owner that writes down what it is told. */
export function createRunnerHarness(
  agent: AgentSpec | undefined,
  options: RunnerHarnessOptions = {},
): RunnerHarness {
  const { clock = systemClock, owner, ...rest } = options;
  const sessionId = fresh("session");
  const journal = createMemoryJournal({ ids: uuidv7(clock, systemRandom) });
  const told: Command[] = [];
  const live: LiveChunks[] = [];
  const events: TurnEvent[] = [];
  const logged: RunnerHarness["logged"] = [];
  const write = (fields: object, message: string) =>
    void logged.push({ fields: { ...fields }, message });
  const log: Logger = { debug: write, info: write, warn: write, error: write };
  let seq = 0;
  let current = header(sessionId);
  let log0: ReturnType<typeof take> | undefined;

  let stepReads = 0;

  const commit = async (changes: Partial<LogRecord>): Promise<void> => {
    log0 ??= journal.create(1).then(() => take(journal, 0));
    const committed = await journal.commit(await log0, record(changes));
    if (committed.type !== "committed") throw new Error(committed.type);
    log0 = Promise.resolve(committed.head);
  };
  const store: RunnerHarness["store"] = async (entries, facts = {}) => {
    const stored = entries.map((each) => entry(sessionId, ++seq, each));
    current = { ...current, lastSeq: seq, ...facts };
    await commit({ entries: stored, headers: [current] });
    return current;
  };
  /** As an owner does: only those of the attempt that is to run. */
  const storeSteps = async (command: Command): Promise<CommandResult | undefined> => {
    if (command.type !== "turn_steps" && command.type !== "checkpoint") return undefined;
    const { epoch, attempt } = command;
    const { work } = current;
    if (work?.epoch !== epoch || work.attempt !== attempt) return { lastSeq: seq, done: false };
    if (command.type === "turn_steps") {
      await commit({ steps: [{ sessionId, epoch, attempt, rows: command.rows }] });
    } else {
      const { body } = command;
      await commit({ headers: [current], checkpoints: [{ sessionId, epoch, attempt, body }] });
    }
    return undefined;
  };
  const runner = createRunner({
    podId: "pod-1",
    clock,
    random: seededRandom(1),
    log,
    files: noFiles,
    journal: {
      ...journal,
      steps: (ref) => {
        stepReads++;
        return journal.steps(ref);
      },
    },
    async ask(tenant, session, command) {
      if (tenant !== current.tenant || session !== sessionId) throw new Error("another session");
      // What an envelope would carry.
      told.push(JSON.parse(JSON.stringify(command)) as Command);
      const answer = (await owner?.(command)) ?? (await storeSteps(command));
      return answer ?? { lastSeq: seq, done: true };
    },
    live: { chunks: (chunks) => void live.push(chunks) },
    agentOf: async (_tenant, name) => (name === agent?.name ? agent : undefined),
    throttles: createThrottleRegistry({ clock, random: systemRandom }),
    enqueue: () => Promise.reject(new Error("nothing is enqueued here")),
    start: () => Promise.reject(new Error("nothing is started here")),
    prepareLater: () => Promise.reject(new Error("nothing is started here")),
    setWake: () => Promise.reject(new Error("nothing is set here")),
    onEvent: (event) => void events.push(event),
    ...rest,
  });
  const reply = (epoch = current.epoch): Promise<Reply> =>
    until("an answer", () => {
      const found = told.find((each) => each.type === "turn_finished" && each.epoch === epoch);
      return found?.type === "turn_finished" ? found.reply : undefined;
    });
  const begin: RunnerHarness["begin"] = async (facts = {}) => {
    if (seq === 0) await store([{}]);
    const epoch = facts.epoch ?? current.epoch + 1;
    const work = turn({ agent: agent?.name ?? "nobody", upToSeq: seq, ...facts, epoch });
    current = { ...current, epoch, work };
    runner.start(current);
    return work;
  };
  return {
    runner,
    sessionId,
    told,
    live,
    events,
    logged,
    store,
    async steps(epoch = current.epoch) {
      const rows = await journal.steps({ sessionId, epoch });
      return Object.fromEntries(rows.map(({ key, value }) => [key, value && JSON.parse(value)]));
    },
    get stepReads() {
      return stepReads;
    },
    endElsewhere: (facts) => commit({ turns: [endedTurn(sessionId, facts)] }),
    begin,
    reply,
    answer: async (facts) => {
      const { epoch } = await begin(facts);
      return reply(epoch);
    },
  };
}

/** The text of an answer. */
export function replyText({ parts }: Pick<Reply, "parts">): string {
  return parts.map(({ type, text }) => (type === "text" ? String(text as string) : "")).join("");
}

export type TestServer = AsyncDisposable & {
  readonly url: string;
  readonly requests: { readonly headers: IncomingMessage["headers"]; readonly body: string }[];
  /** Connections that are open. */
  open(): number;
};

type Handle = (response: ServerResponse, body: string, count: number) => void | Promise<void>;

/** A real server on this machine, which answers as the test says. */
export async function serve(handle: Handle): Promise<TestServer> {
  const requests: { headers: IncomingMessage["headers"]; body: string }[] = [];
  let open = 0;
  const server = createServer((request, response) => {
    let body = "";
    request.setEncoding("utf8");
    request.on("data", (piece: string) => {
      body += piece;
    });
    request.on("end", () => {
      requests.push({ headers: request.headers, body });
      void handle(response, body, requests.length);
    });
  });
  server.on("connection", (socket) => {
    open++;
    socket.on("close", () => void open--);
    socket.on("error", () => {});
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/chat`,
    requests,
    open: () => open,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

export const sse = { "content-type": "text/event-stream" };

/** Chunks as server-sent events. */
export function events(...chunks: object[]): string {
  return chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join("");
}

/** The chunks of an answer that only says this, without its end. */
export function saying(text: string, id = "t"): object[] {
  return [
    { type: "text-start", id },
    { type: "text-delta", id, delta: text },
    { type: "text-end", id },
  ];
}
