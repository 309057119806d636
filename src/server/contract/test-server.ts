import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { WebSocket } from "ws";
import { type Clock, systemClock } from "../../base/clock.ts";
import { type Logger, silentLogger } from "../../base/log.ts";
import type { Prices } from "../../base/usage.ts";
import { until } from "../../base/contract/movable-clock.ts";
import type { ChangesConfig } from "../../changes/recording.ts";
import type { FilesConfig } from "../../files/files.ts";
import type { ServerFrame } from "../../protocol/frames.ts";
import { parseServerFrames } from "../../protocol/parse-frame.ts";
import { createRedactor, type Redact } from "../../redaction/redactor.ts";
import { connect, type Flotilla } from "../../runtime/connect.ts";
import { machinesOf } from "../../runtime/flows.ts";
import { startPod } from "../../runtime/start-pod.ts";
import type { ServerConfig } from "../../runtime/server-config.ts";
import { handlersByName, type Usable } from "../../runtime/handlers.ts";
import type { SessionService } from "../../sessions/service.ts";
import { createMetrics } from "../metrics/metrics.ts";
import type { PeerCheckOptions } from "../auth/peer-user.ts";
import { isOpenServer } from "../auth/authenticate.ts";
import { serve } from "../serve.ts";

export type TestServerOptions = {
  server?: ServerConfig;
  /** The server's own; the pod has the system's. */
  clock?: Clock;
  use?: readonly Usable[];
  maxPayloadBytes?: number;
  prices?: Prices;
  /** The pod's. */
  files?: FilesConfig;
  /** Whether the pod has the store record changes. */
  changes?: ChangesConfig;
  isStopping?: () => boolean;
  /** The server's own. */
  log?: Logger;
  podLog?: Logger;
  redact?: Redact;
  peers?: PeerCheckOptions;
  bodyBytes?: number;
  /** The folder of a built dashboard. Default: none, whatever is built in this checkout. */
  dashboardFolder?: string;
  /** What the server asks, if not the pod. */
  sessions?: (real: SessionService) => SessionService;
};

/** A pod on a file of its own and a server in front of it, on a free port. */
export async function startTestServer(options: TestServerOptions = {}) {
  const { clock = systemClock, use = [], maxPayloadBytes = 256 * 1024 } = options;
  const folder = mkdtempSync(join(tmpdir(), "flotilla-serving-"));
  const path = join(folder, "test.db");
  const store = `sqlite:${path}`;
  const { podLog: log = silentLogger, redact = [] } = options;
  const dataDir = false;
  const pod = await startPod({
    store,
    use,
    log,
    dataDir,
    maxPayloadBytes,
    redact,
    deadAfterMs: 60_000,
    ...(options.server?.quotas && { server: { quotas: options.server.quotas } }),
    ...(options.prices && { prices: options.prices }),
    ...(options.files && { files: options.files }),
    ...(options.changes && { changes: options.changes }),
  });
  const flotilla = connect(store, { maxPayloadBytes });
  const real = pod.sessionService!;
  const sessions = options.sessions?.(real) ?? real;
  const server = await serve({
    flotilla,
    sessions,
    contracts: handlersByName(use),
    machines: machinesOf(use),
    redactor: createRedactor(redact),
    metrics: createMetrics(),
    isStopping: options.isStopping ?? (() => false),
    maxPayloadBytes,
    clock,
    log: options.log ?? silentLogger,
    ...(options.peers && { peers: options.peers }),
    bodyBytes: options.bodyBytes,
    dashboardFolder: options.dashboardFolder ?? join(folder, "no-dashboard"),
    server: { host: "127.0.0.1", port: 0, ...options.server },
  });
  await keysRead(flotilla, options.server);
  return {
    ...server,
    path,
    pod,
    flotilla,
    sessions: real,
    socketUrl: `${server.url.replace("http", "ws")}/v1/socket`,
    async [Symbol.asyncDispose]() {
      await server.close();
      await flotilla.close();
      await pod.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

export type TestServer = Awaited<ReturnType<typeof startTestServer>>;

/** Another server on the same store, with a connection of its own, as another process has it. */
export async function serveBeside(
  { path, sessions }: Pick<TestServer, "path" | "sessions">,
  server: ServerConfig,
) {
  const flotilla = connect(`sqlite:${path}`);
  const serving = await serve({
    flotilla,
    sessions,
    metrics: createMetrics(),
    isStopping: () => false,
    clock: systemClock,
    log: silentLogger,
    server: { host: "127.0.0.1", port: 0, ...server },
  });
  await keysRead(flotilla, server);
  return {
    ...serving,
    flotilla,
    async [Symbol.asyncDispose]() {
      await serving.close();
      await flotilla.close();
    },
  };
}

/** On a busy machine the first read may fail, for the time that it takes. Callers are refused until the next. */
export async function keysRead(
  { credentials }: Flotilla,
  server: ServerConfig = {},
): Promise<void> {
  if (isOpenServer(server)) return;
  const token = { kind: "token", tenant: "", user: "" } as const;
  await until("its keys to be read", () => credentials.refusalOf(token) === undefined);
}

export type SocketClient = Awaited<ReturnType<typeof dial>>;

export type DialOptions = { headers?: Record<string, string>; protocols?: string[] };

/** A client that keeps every frame that it gets. Rejects with the status where it is refused. */
export async function dial(url: string, { headers = {}, protocols = [] }: DialOptions = {}) {
  const socket = new WebSocket(url, protocols, { headers, perMessageDeflate: false });
  const frames: ServerFrame[] = [];
  const messages: string[] = [];
  let closed: { code: number; reason: string } | undefined;
  socket.on("message", (data: Buffer) => {
    messages.push(data.toString());
    frames.push(...parseServerFrames(data.toString()));
  });
  socket.on("close", (code, reason) => (closed = { code, reason: reason.toString() }));
  await new Promise<void>((resolve, reject) => {
    socket.once("open", resolve);
    socket.once("unexpected-response", (_, answer) => {
      let text = "";
      answer.setEncoding("utf8").on("data", (more: string) => (text += more));
      answer.on("end", () => {
        const { code } = (JSON.parse(text) as { error: { code: string } }).error;
        reject(new UpgradeRefused(answer.statusCode!, code));
      });
    });
    socket.once("error", reject);
  });
  socket.on("error", () => {});

  let refs = 0;
  const find = <Type extends ServerFrame["type"]>(
    type: Type,
    where: (frame: Extract<ServerFrame, { type: Type }>) => boolean = () => true,
  ) =>
    until(`a frame ${type}`, () =>
      frames.find(
        (frame): frame is Extract<ServerFrame, { type: Type }> =>
          frame.type === type && where(frame as Extract<ServerFrame, { type: Type }>),
      ),
    );
  const answered = (ref: string) =>
    until(`an answer to ${ref}`, () => frames.find((frame) => "ref" in frame && frame.ref === ref));
  return {
    socket,
    frames,
    messages,
    find,
    send: (frame: object | string) =>
      socket.send(typeof frame === "string" ? frame : JSON.stringify(frame)),
    /** Sends with a fresh ref, and gives whatever answers it. */
    // oxlint-disable-next-line typescript/no-explicit-any
    async request(frame: object): Promise<any> {
      const ref = `r${++refs}`;
      socket.send(JSON.stringify({ ref, ...frame }));
      return answered(ref);
    },
    seqs: (session: string) =>
      frames.flatMap((frame) =>
        frame.type === "entries" && frame.session === session
          ? frame.entries.map(({ seq }) => seq)
          : [],
      ),
    closed: () => until("a close", () => closed),
    get isOpen() {
      return socket.readyState === socket.OPEN;
    },
    close: () => socket.close(),
  };
}

export class UpgradeRefused extends Error {
  readonly status: number;
  readonly code: string;
  constructor(status: number, code: string) {
    super(`refused with ${status} ${code}`);
    this.status = status;
    this.code = code;
  }
}

/** A message as a frame has it. */
export function textMessage(text: string, id?: string) {
  return { ...(id !== undefined && { id }), parts: [{ type: "text", text }] };
}
