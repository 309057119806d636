import { ROOT_CONTEXT, SpanKind, SpanStatusCode } from "@opentelemetry/api";
import { FlotillaError } from "../base/errors.ts";
import type { Prices } from "../base/usage.ts";
import type { Bus } from "../bus/bus.ts";
import { contextOfText } from "../base/trace-context.ts";
import type { Runs } from "../flows/runs.ts";
import { factsOfSpec } from "../sessions/agents/agent.ts";
import { createFileAccess } from "../files/access.ts";
import { createFiles, type FileSettings } from "../files/files.ts";
import { createAgentRegistry, warnOfShadowed } from "../sessions/agents/registry.ts";
import type { AgentFacts } from "../sessions/conversation/command.ts";
import { lazyService } from "../sessions/lazy-service.ts";
import type { ArchiveState } from "../sessions/log/archive/state.ts";
import { createFleet } from "../sessions/log/fleet.ts";
import { observedLog } from "../sessions/log/observed-log.ts";
import { createSqlPresence } from "../sessions/log/sql-journal.ts";
import { createSessions, type Sessions } from "../sessions/sessions.ts";
import { createWakes } from "../sessions/wakes.ts";
import { createLocalSessions, type SessionLoad, type LocalSessions } from "../sessions/start.ts";
import type { TurnSpan, TurnTrace } from "../sessions/turns/parts.ts";
import { createRunner } from "../sessions/turns/runner.ts";
import type { Tasks } from "../tasks/tasks.ts";
import { activeTracer, inSpan, quietly, remoteContext } from "../tasks/trace.ts";
import type { ThrottleRegistry } from "../throttles/registry.ts";
import { sessionParts } from "./connect.ts";
import { createStoredLogs } from "./logs/stored-logs.ts";
import { createPrepareLater } from "./later.ts";
import type { PodEvent, PodParts } from "./pod-parts.ts";
import type { AgentSpec } from "../sessions/agents/spec.ts";

type PodSessionsParts = Pick<
  PodParts,
  | "podId"
  | "database"
  | "clock"
  | "random"
  | "ids"
  | "log"
  | "thisProcess"
  | "agentNetwork"
  | "throughJournal"
  | "openLogs"
  | "readSecret"
> & {
  agents: ReadonlyMap<string, AgentSpec>;
  logs: number;
  privateAgents: boolean;
  maxTurns: number;
  files: FileSettings;
  /** Whether quotas need to know what tenants use. */
  countsTenants: boolean;
  prices?: Prices;
  /** The pods that the last heartbeat has seen, as text. */
  podsSeen?: () => string;
  bus: Bus;
  maxPayloadBytes: number;
  maxResultBytes: number;
  throttles: ThrottleRegistry;
  tasks: Pick<Tasks, "enqueue">;
  /** Called when tasks are stored that belong to messages or turns. */
  onEnqueued: () => void;
  runs: Pick<Runs, "start">;
  onEvent: (event: PodEvent) => void;
};

/** The session part of a pod's metadata, for log owners on other pods. */
export function sessionMetadata(agents: ReadonlyMap<string, AgentSpec>): {
  agents: Record<string, AgentFacts>;
  forks: true;
} {
  return {
    // What a pod of an earlier release doesn't say.
    forks: true,
    agents: Object.fromEntries([...agents].map(([name, spec]) => [name, factsOfSpec(spec)])),
  };
}

/** Starts sessions on a pod: it owns logs and runs turns. */
export function startSessions(parts: PodSessionsParts): PodSessions {
  const { podId, database, clock, log, thisProcess, agents } = parts;
  const agentRegistry = createAgentRegistry({
    database,
    clock,
    code: agents,
    allowPrivate: parts.privateAgents,
  });
  void warnOfShadowed({ database, log, code: agents });
  const goesOn = parts.openLogs !== undefined;
  const files = createFiles({ ...parts, settings: parts.files, goesOn });
  const access = createFileAccess({ ...parts, goesOn });
  const inStore = sessionParts({ ...parts, files });
  const host = thisProcess?.host ?? null;
  const fleetOfStore = () => createFleet({ database, clock, log, seen: parts.podsSeen });
  const logs = parts.openLogs?.({
    bus: parts.bus,
    host,
    agents: sessionMetadata(agents).agents,
    onArchived: (sessionIds) => local.archived(sessionIds),
    onEnqueued: parts.onEnqueued,
    openStored: () =>
      createStoredLogs({
        journal: inStore.journal,
        cold: inStore.coldJournal,
        presence: createSqlPresence({ database }),
        fleet: fleetOfStore(),
      }),
    onLeave: () => local.pod?.owners.letGo(),
    onArrived: () => local.pod?.owners.poll(),
  });
  const given = logs?.journal ?? inStore.journal;
  const journal = observedLog(parts.throughJournal?.(given) ?? given, {
    clock,
    onEvent: parts.onEvent,
  });
  const shared = {
    ...inStore,
    journal,
    ...(logs && {
      coldJournal: logs.cold,
      ahead: logs.journal,
      headSource: logs.headSource,
    }),
  };
  const local = createLocalSessions(shared, {
    podId,
    host,
    isGone: thisProcess?.isGone ?? (() => false),
    presence: logs?.presence ?? createSqlPresence({ database }),
    fleet: logs?.fleet ?? fleetOfStore(),
    registry: agentRegistry,
    onEvent: parts.onEvent,
    createRunner: (links) =>
      createRunner({
        ...parts,
        ...links,
        journal: shared.journal,
        files: {
          ...files,
          async urlFor(tenant, sessionId) {
            const { publicUrl } = files.settings;
            if (publicUrl === undefined) return undefined;
            const { access: granted } = await access.grant(tenant, sessionId);
            return (hash) => `${publicUrl}/v1/files/${granted}/${hash}`;
          },
        },
        ...(parts.agentNetwork && { network: parts.agentNetwork }),
        traced: (turn) => startTurnSpan(turn, podId),
        agentOf: agentRegistry.spec,
        enqueue: (task, input, options) => parts.tasks.enqueue(task, input, options),
        start: (flow, input, options) => parts.runs.start(flow, input as never, options),
        prepareLater: createPrepareLater(parts),
        setWake: createWakes({ ...parts, journal: shared.journal, submit: links.ask }).set,
      }),
  });
  logs?.start();
  return {
    ...local,
    archiveState: () => logs?.state(),
    async stop(options) {
      await local.stop(options);
      await logs?.stop();
    },
  };
}

type PodSessions = LocalSessions & { archiveState(): ArchiveState | undefined };

/** Starts sessions on first use. Until there is one, a pod does no work for sessions. */
export function startOnFirstUse(start: () => PodSessions): Pick<
  LocalSessions,
  "service" | "sessions" | "stop"
> & {
  wake(): void;
  archiveState(): ArchiveState | undefined;
  load(): SessionLoad | undefined;
  hasSuspect(): boolean;
  drain(drains: boolean): void;
  hasDrained(): boolean;
  collectForks(): Promise<void>;
} {
  let started: PodSessions | undefined;
  let stopped = false;
  let draining = false;
  const begin = (): PodSessions => {
    if (started) return started;
    started = start();
    if (draining) started.drain(true);
    return started;
  };
  const service = lazyService(() => {
    if (stopped) throw new FlotillaError("closed", "the pod was stopped");
    return begin().service;
  });
  return {
    service,
    sessions: createSessions(service),
    load: () => started?.load(),
    archiveState: () => started?.archiveState(),
    hasSuspect: () => started?.hasSuspect() ?? false,
    drain(drains) {
      draining = drains;
      started?.drain(drains);
    },
    collectForks: async () => started?.collectForks(),
    hasDrained: () => started?.hasDrained() ?? true,
    wake() {
      if (!stopped) begin();
    },
    async stop(options) {
      stopped = true;
      await started?.stop(options);
    },
  };
}

/** For a pod whose config has `sessions: false`: every call is refused. */
export function noSessions(): Sessions {
  const refuse = (): never => {
    throw new FlotillaError(
      "unsupported",
      "this pod has `sessions: false` in its config: use another pod",
    );
  };
  return { create: refuse, open: refuse, list: refuse, inbox: refuse };
}

/**
 * The span of one attempt at a turn, as a child of the span that sent the message. It contains the turn,
 * the session and the outcome, but nothing of the conversation: not even the text of an error, which may
 * be the agent's.
 */
function startTurnSpan(turn: TurnTrace, podId: string): TurnSpan | undefined {
  const tracer = activeTracer();
  if (tracer === undefined) return undefined;
  const span = quietly(() =>
    tracer.startSpan(
      `turn ${turn.agent}`,
      {
        kind: SpanKind.INTERNAL,
        attributes: {
          "flotilla.session.id": turn.sessionId,
          "flotilla.session.tenant": turn.tenant,
          "flotilla.agent.name": turn.agent,
          "flotilla.turn.epoch": turn.epoch,
          "flotilla.turn.attempt": turn.attempt,
          "flotilla.turn.trigger": turn.trigger,
          "flotilla.pod.id": podId,
        },
      },
      // Never the active context: the end of another turn may have started this one.
      remoteContext(ROOT_CONTEXT, contextOfText(turn.trace)),
    ),
  );
  if (span === undefined) return undefined;
  return {
    run: (work) => inSpan(span, work),
    end({ outcome, chunks, error }) {
      quietly(() => {
        span.setAttribute("flotilla.turn.outcome", outcome);
        span.setAttribute("flotilla.turn.chunks", chunks);
        if (error !== undefined) {
          span.setAttribute("error.type", error);
          span.setStatus({ code: SpanStatusCode.ERROR, message: error });
        }
        span.end();
      });
    },
  };
}
