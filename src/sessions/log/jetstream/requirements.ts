import { FlotillaError, hasCode } from "../../../base/errors.ts";
import type { CreateAnswer, ServerFacts, StreamEngine } from "./engine.ts";
import type { Deployment, publishedStreams } from "./streams.ts";

/** What the log needs of the servers. */
export type Requirements = Pick<Deployment, "replicas"> & {
  /**
   * What an acknowledgement must mean: `flushed` to the disks of a quorum, or kept in the memory of
   * `replicas`, which a power failure of two servers can lose.
   */
  readonly durability: "flushed" | "replicas";
};

/** Streams can be read by sequence from any replica, and are compared with their metadata, from here on. */
const oldestVersion = [2, 11, 0] as const;
/** Later than the versions that can stop taking writes while they report health. */
const soundVersion = [2, 14, 6] as const;
/** An answer may have 1 MiB, and a record holds it beside its header. */
const minPayloadBytes = 4 * 1_024 * 1_024;
/** Headers and subjects count as payload too, and are short. */
const envelopeBytes = 64 * 1_024;

/** The largest body that a message may have. */
export function maxBodyBytes({ maxPayloadBytes }: ServerFacts): number {
  return maxPayloadBytes - envelopeBytes;
}

/** Says why the servers can't keep logs, and what to set. Undefined: they can. */
export function refuseServers(facts: ServerFacts, wanted: Requirements): string | undefined {
  const { version, versions, hasJetStream, maxPayloadBytes, flushes, silent } = facts;
  const old = [version, ...versions].find((each) => isBefore(each, oldestVersion));
  if (old !== undefined) {
    return `nats-server ${old} is too old: run ${soundVersion.join(".")} or later on every server`;
  }
  if (!hasJetStream) {
    return "the NATS servers keep no streams for this account: set jetstream in their config, and enable it for the account";
  }
  if (maxPayloadBytes < minPayloadBytes) {
    return `max_payload of the NATS servers is ${maxPayloadBytes} bytes: set it to 8MB, 4MB at least`;
  }
  if (wanted.durability === "replicas") return undefined;
  if (flushes.includes(false)) {
    return 'a NATS server acknowledges before it flushes: set sync_interval to always in its jetstream config, or nats.durability to "replicas"';
  }
  if (silent.length > 0 && flushes.length < quorumOf(wanted)) return silent[0];
  if (flushes.length === 0) {
    return 'whether the NATS servers flush before they acknowledge isn\'t known: set nats.monitor to their monitoring addresses, or nats.durability to "replicas"';
  }
  if (flushes.length + silent.length < wanted.replicas) {
    return `nats.monitor tells of ${flushes.length} of ${wanted.replicas} NATS servers: name the monitoring address of every server`;
  }
  return undefined;
}

const quorumOf = ({ replicas }: Requirements): number => Math.floor(replicas / 2) + 1;

/** What works and should be mended, as a sentence for the operator: a server that is gone, or has a known fault. */
export function warnOfServers({
  version,
  versions,
  silent,
}: Pick<ServerFacts, "version" | "versions" | "silent">): string | undefined {
  if (silent.length > 0) return silent[0];
  const faulty = [version, ...versions].find((each) => isBefore(each, soundVersion));
  if (faulty === undefined) return undefined;
  return `nats-server ${faulty} can stop taking writes while it reports health: run ${soundVersion.join(".")} or later`;
}

/** Says why a stream couldn't be made, and what to set. */
export function refuseCreation(
  name: string,
  answer: Exclude<CreateAnswer, { type: "made" }>,
  { replicas, maxLogBytes }: Pick<Deployment, "replicas" | "maxLogBytes">,
): string {
  if (answer.type === "different") {
    return `the stream ${name} is there with other settings: remove it, or set nats.namespace to one that is free`;
  }
  const { code, why } = answer;
  if (storageCodes.includes(code) || /storage|resources/.test(why)) {
    return `the NATS servers have no storage left for the stream ${name}, which reserves ${maxLogBytes} bytes on ${replicas} of them: raise max_file_store (${why})`;
  }
  if (peerCodes.includes(code)) {
    return `the stream ${name} needs ${replicas} NATS servers with JetStream in one cluster: start them, with routes to each other (${why})`;
  }
  if (code === noPermission) {
    return `the NATS user may not make the stream ${name}: allow it what \`flotilla cluster permissions\` prints (${why})`;
  }
  return `the stream ${name} couldn't be made: ${why}`;
}

/** For `CreateAnswer`, where the servers don't answer because the user may not ask. */
export const noPermission = 403;
const storageCodes: readonly number[] = [10023, 10028, 10047];
const peerCodes: readonly number[] = [10005, 10074];

/** More than any stream has, so that a message with this condition is never stored. */
const impossibleSequence = Number.MAX_SAFE_INTEGER;
const probeLimitMs = 2_000;

/**
 * Tries whatever a pod will ask of these streams, in a way that changes none of them. Throws what the user
 * may not do.
 */
export async function checkPermissions(
  engine: StreamEngine,
  streams: ReturnType<typeof publishedStreams>,
): Promise<void> {
  const refusals = await Promise.all(
    streams.map(async ({ stream, subjects }) => {
      try {
        const state = await engine.state(stream);
        const last = state?.lastSequence ?? 0;
        await engine.lastOn(stream, subjects[0]!);
        // It isn't there, so that both ways of reading are tried.
        await engine.read(stream, last + 1);
        const isEmpty = !state || state.firstSequence > last;
        if (!isEmpty) await drained(engine.readFrom(stream, { from: last, to: last }));
        // Nothing is below the first message. From 1 on a server may take it for everything.
        if (state && state.firstSequence > 1) await engine.purge(stream, state.firstSequence);
        for (const subject of subjects) {
          const message = { subject, headers: {}, body: new Uint8Array() };
          const condition = { stream, lastSequence: impossibleSequence, limitMs: probeLimitMs };
          const answer = await engine.publish(message, condition);
          if (answer.type === "silent" && answer.mayNot !== undefined) return answer.mayNot;
        }
        return undefined;
      } catch (error) {
        const mayNot = mayNotOf(error);
        if (mayNot !== undefined) return mayNot;
        throw error;
      }
    }),
  );
  const mayNot = refusals.find((each) => each !== undefined);
  if (mayNot !== undefined) throw forbidden(mayNot);
}

/** What the user may not do, if that is why a call was not answered. */
export function mayNotOf(error: unknown): string | undefined {
  const mayNot = hasCode(error, "store_unavailable") ? error.details?.["mayNot"] : undefined;
  return typeof mayNot === "string" ? mayNot : undefined;
}

export function forbidden(mayNot: string): FlotillaError {
  return new FlotillaError(
    "forbidden",
    `the NATS user may not ${mayNot}: allow it what \`flotilla cluster permissions\` prints`,
  );
}

async function drained(messages: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of messages) continue;
}

/**
 * Throws the reason why a pod can't start on these servers. While logs are made or moved there, each has to say
 * that it flushes; a pod of logs that are there starts beside a server that is gone.
 */
export async function checkServers(
  engine: Pick<StreamEngine, "facts">,
  wanted: Requirements,
  { haveLogs }: { haveLogs: () => Promise<boolean> },
): Promise<ServerFacts> {
  const facts = await engine.facts().catch((error: unknown) => {
    const mayNot = mayNotOf(error);
    throw mayNot === undefined ? error : forbidden(mayNot);
  });
  const why = refuseServers(facts, wanted);
  if (why !== undefined) throw new FlotillaError("unsupported", why);
  const [silent] = wanted.durability === "flushed" ? facts.silent : [];
  if (silent !== undefined && !(await haveLogs())) throw new FlotillaError("unavailable", silent);
  return facts;
}

function isBefore(version: string, other: readonly number[]): boolean {
  const parts = /^(\d+)\.(\d+)\.(\d+)/.exec(version)?.slice(1).map(Number);
  // A build of one's own may have no number.
  if (parts === undefined) return false;
  const at = parts.findIndex((part, nth) => part !== other[nth]);
  return at >= 0 && parts[at]! < other[at]!;
}
