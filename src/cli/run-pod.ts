import { flushCompileCache } from "node:module";
import process from "node:process";
import { systemClock } from "../base/clock.ts";
import { FlotillaError, hasCode } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import type { DeadLetters } from "../dead-letters/dead-letters.ts";
import { isFlow } from "../flows/drive/drive.ts";
import { redactingLogger } from "../redaction/log.ts";
import { createRedactor, type Redactor } from "../redaction/redactor.ts";
import type { PodSettings } from "../runtime/config.ts";
import { connect, type Flotilla } from "../runtime/connect.ts";
import { machinesOf } from "../runtime/flows.ts";
import { handlersByName, isAgent, selectHandlers } from "../runtime/handlers.ts";
import { isAway } from "../runtime/logs/late-store.ts";
import type { Pod, PodEvent } from "../runtime/pod.ts";
import { defaultLogger } from "../runtime/process.ts";
import { startPod } from "../runtime/start-pod.ts";
import { checkListenHost } from "../server/auth/origins.ts";
import type { Metrics } from "../server/metrics/metrics.ts";
import type { ListeningServer } from "../server/serve.ts";
import { lazyService } from "../sessions/lazy-service.ts";
import type { SessionService } from "../sessions/service.ts";
import { withoutSecrets } from "../store/open.ts";
import { announceDev, type RunningDev } from "./dev-file.ts";
import type { ServerFlags } from "./flags.ts";
import {
  countsLine,
  countsTable,
  createScreen,
  type LiveCounter,
  type Screen,
  startLiveCounts,
} from "./live-counts.ts";
import { printNotice, paint, print } from "./output.ts";
import { prettyLogger } from "./pretty-log.ts";
import { stopSignals } from "./signals.ts";

export type PodCommandOptions = {
  settings: PodSettings;
  flags: ServerFlags;
  /** Claim and run tasks. */
  work: boolean;
  /** Answer HTTP. */
  serve: boolean;
  /** Show live counts, and readable logs on a terminal. */
  live: boolean;
  /** The NATS of the settings, as `FLOTILLA_NATS` would say it, for commands that find this process. */
  nats?: string;
};

const defaultHost = "127.0.0.1";
const defaultPort = 8080;
const redrawMs = 500;
const keepCompiledMs = 5_000;
const lineMs = 5_000;

/** Runs a pod, a server or both, until a signal stops it. */
export async function runUntilSignal(options: PodCommandOptions): Promise<void> {
  const { settings, work, serve } = options;
  const signals = stopSignals();
  const screen = options.live && process.stdout.isTTY ? createScreen(process.stdout) : undefined;
  const redactor = createRedactor(settings.redact);
  const log = redactingLogger(loggerFor(options, screen), redactor);
  const { host = defaultHost, ...credentials } = settings.server ?? {};
  // Check before anything is opened: a server that may not listen shouldn't migrate either.
  if (serve) checkListenHost(host, credentials);

  let stopping = false;
  let pod: Pod | undefined;
  let live: LiveCounter | undefined;
  let takeBack = (): void => {};
  const metrics = serve ? await metricsOf(options, () => pod) : undefined;
  let giveUp: (error: Error) => void = () => {};
  const broken = new Promise<never>((_, reject) => (giveUp = reject));
  broken.catch(() => {});
  const onEvent = (event: PodEvent) => {
    metrics?.observe(event);
    live?.observe(event);
    if (event.type === "claim_failed" && event.code === "store_corrupt") giveUp(damaged(settings));
    if (event.type === "refused") giveUp(event.error);
  };
  // Load it while the store's threads start. `startServer` reports an error.
  if (serve) import("../server/serve.ts").catch(() => {});
  const flotilla = metrics && openFlotilla(settings, log, metrics);
  let server: ListeningServer | undefined;
  try {
    await flotilla?.ping().catch((error: unknown) => {
      // A pod whose sessions are on NATS may serve them meanwhile; one that can't fails by the same error.
      const maySpare = work && settings.nats !== undefined && settings.sessions !== false;
      if (!maySpare || !isAway(error)) throw error;
    });
    if (flotilla && metrics) {
      const isStopping = () => stopping;
      const leads = () => !stopping && pod !== undefined && pod.leader === pod.podId;
      const deadLetters = () => (leads() ? pod! : flotilla).deadLetters;
      // The pod's own service is the shorter way, while the pod runs.
      const nearest = () => (!stopping && pod?.sessionService) || flotilla.sessionService;
      const sessions = lazyService(nearest);
      const hasStreamLogs = () => flotilla.hasStreamLogs || pod?.archiveState() !== undefined;
      const own = { flotilla, sessions, deadLetters, metrics, hasStreamLogs };
      const parts = { ...own, isStopping, redactor, log };
      server = await startServer(options, parts);
    }
    // Claim only once the server listens: a failure to listen would release the tasks again.
    if (work) pod = await startPod({ ...settings, log }, { onEvent });
    if (flotilla && server) {
      announce(options, server, screen);
      if (options.live) takeBack = await announceDev(devOf(options, server.url));
      if (options.live) live = startCounts(flotilla, pod, server.url, screen);
    }
    // Node writes its compile cache at exit; flush it, so that a killed process starts as quickly again.
    const forget = systemClock.after(keepCompiledMs, flushCompileCache);
    await Promise.race([signals.received, broken]).finally(forget);
  } finally {
    stopping = true;
    takeBack();
    live?.stop();
    screen?.show([]);
    // The server answers while the pod's tasks end, and reports that it isn't ready.
    await server?.leave();
    await pod?.stop();
    await server?.close();
    await flotilla?.close();
  }
}

function devOf({ settings, flags, nats }: PodCommandOptions, url: string): RunningDev {
  const { store } = settings;
  const { config } = flags;
  const { pid } = process;
  return {
    pid,
    url,
    ...(typeof store === "string" && { store }),
    ...(config && { config }),
    ...(nats !== undefined && { nats }),
  };
}

/** Other errors pass; retries don't repair a damaged store. */
function damaged({ store }: PodSettings): FlotillaError {
  return new FlotillaError(
    "store_corrupt",
    `the store ${withoutSecrets(store)} is damaged: restore it from a back-up`,
  );
}

/** Metrics, for a server only. */
async function metricsOf(
  { settings, work }: PodCommandOptions,
  pod: () => Pod | undefined,
): Promise<Metrics> {
  const { collectDefaultMetrics } = await import("prom-client");
  const { createMetrics } = await import("../server/metrics/metrics.ts");
  const metrics = createMetrics({
    pod,
    slots: work ? settings.slots : 0,
    names: [...selectHandlers(settings.use, settings.only).keys()],
    flows: settings.use.filter(isFlow),
  });
  collectDefaultMetrics({ register: metrics.registry });
  return metrics;
}

/** The server's own connection to the store, which outlives the pod's during a stop. */
function openFlotilla(settings: PodSettings, log: Logger, metrics: Metrics): Flotilla {
  const { store, durability, migrate, maxPayloadBytes, sessions, codec, nats } = settings;
  const onEvent = metrics.observe;
  const privateAgents = sessions !== false && sessions.privateAgents;
  return connect(store, {
    durability,
    migrate,
    maxPayloadBytes,
    privateAgents,
    log,
    onEvent,
    ...(codec && { codec }),
    ...(nats && { nats }),
  });
}

type ServerParts = {
  flotilla: Flotilla;
  sessions: SessionService;
  deadLetters: () => DeadLetters;
  metrics: Metrics;
  hasStreamLogs: () => boolean;
  isStopping: () => boolean;
  redactor: Redactor;
  log: Logger;
};

async function startServer(
  options: PodCommandOptions,
  parts: ServerParts,
): Promise<ListeningServer> {
  const { settings, live } = options;
  const { host = defaultHost, port, ...rest } = settings.server ?? {};
  const clock = systemClock;
  const contracts = handlersByName(settings.use);
  const machines = machinesOf(settings.use);
  const { maxPayloadBytes } = settings;
  // Loaded only by a server: a pod without HTTP doesn't need the code that validates requests.
  const { serve } = await import("../server/serve.ts");
  const serveAt = (at: number) =>
    serve({
      ...parts,
      contracts,
      machines,
      maxPayloadBytes,
      clock,
      server: { ...rest, host, port: at },
    });
  try {
    return await serveAt(port ?? defaultPort);
  } catch (error) {
    // During development another program often has the default port.
    if (!live || port !== undefined || !hasCode(error, "conflict")) throw error;
    const server = await serveAt(0);
    const got = new URL(server.url).port;
    printNotice(
      `port ${defaultPort} is taken, so the server listens on ${got}: choose one with --port`,
    );
    return server;
  }
}

function loggerFor(
  { settings, flags, live }: PodCommandOptions,
  screen: Screen | undefined,
): Logger {
  if (settings.log) return settings.log;
  const level = flags.logLevel ?? "info";
  if (!live || !process.stderr.isTTY) return defaultLogger(level);
  const { stderr } = process;
  const write = screen?.print ?? ((line: string) => void stderr.write(`${line}\n`));
  return prettyLogger({ level, clock: systemClock, stream: stderr, write });
}

function announce(
  { settings, live, work }: PodCommandOptions,
  { url, adminUrl }: ListeningServer,
  screen?: Screen,
): void {
  const printLine = screen?.print ?? print;
  if (!live) {
    printLine(`flotilla listens on ${url}`);
    if (adminUrl !== undefined) printLine(`health and metrics are also at ${adminUrl}`);
    return;
  }
  const handlers = [...selectHandlers(settings.use, settings.only).values()];
  const names = handlers.filter(({ flow }) => !flow).map(({ name }) => name);
  const flows = handlers.flatMap(({ name, flow }) => (flow ? [`${name} (${flow.version})`] : []));
  printLine(`${paint("bold", "flotilla")} listens on ${paint("cyan", url)}`);
  for (const path of Object.keys(settings.server?.pages ?? {}))
    printLine(`  ${path.split("/").at(-1)!.padEnd(7)} ${paint("cyan", url + path)}`);
  if (adminUrl !== undefined) printLine(`  health  ${paint("cyan", `${adminUrl}/health/ready`)}`);
  printLine(`  store   ${withoutSecrets(settings.store)}`);
  if (work && (names.length > 0 || flows.length === 0))
    printLine(`  tasks   ${names.length > 0 ? names.join(", ") : "none: name some in `use`"}`);
  if (work && flows.length > 0) printLine(`  flows   ${flows.join(", ")}`);
  const agents = settings.use.filter(isAgent).map(({ name }) => name);
  if (work && agents.length > 0) printLine(`  agents  ${agents.join(", ")}`);
  printLine(`  try     curl ${url}/v1/tasks`);
  if (work && agents.length > 0) printLine(`          npx flotilla chat --agent ${agents[0]}`);
}

function startCounts(
  flotilla: Flotilla,
  pod: Pod | undefined,
  url: string,
  screen?: Screen,
): LiveCounter {
  return startLiveCounts({
    stats: () => flotilla.tasks.stats(),
    running: () => pod?.running ?? 0,
    heldBack: () => pod?.capacity.reasons.map((reason) => reason.text) ?? [],
    clock: systemClock,
    everyMs: screen ? redrawMs : lineMs,
    show: (counts) => (screen ? screen.show(countsTable(counts, url)) : print(countsLine(counts))),
  });
}
