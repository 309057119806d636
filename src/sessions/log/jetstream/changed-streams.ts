import type { StreamSettings, StreamState } from "./engine.ts";

/** A stream that isn't as it was made, because an operator or another program has changed it. */
export type ChangedStream = {
  readonly stream: string;
  /** It is gone, or another stream has its name. */
  readonly isLost: boolean;
  readonly settings: readonly ChangedSetting[];
};

export type ChangedSetting = {
  readonly setting: keyof StreamSettings;
  readonly value: unknown;
  /** What it was made with. */
  readonly wanted: unknown;
  /** Whether a message that is acknowledged with it may be lost though two of three servers are sound. */
  readonly isDangerous: boolean;
};

const comparedSettings = [
  "subjects",
  "storage",
  "replicas",
  "discard",
  "maxBytes",
  "maxMessages",
  "maxPerSubject",
  "maxAgeMs",
  "firstSequence",
  "allowDirect",
  "denyDelete",
  "isCompressed",
  "isForeign",
] as const satisfies readonly (keyof StreamSettings)[];

/**
 * The settings with which a stream forgets messages by itself, or keeps fewer copies. With any other that is
 * wrong it refuses messages or is read more slowly, and forgets nothing.
 */
const isDangerous: Partial<
  Record<keyof StreamSettings, (found: StreamSettings, wanted: StreamSettings) => boolean>
> = {
  storage: (found) => found.storage !== "file",
  replicas: (found, wanted) => found.replicas < wanted.replicas,
  discard: (found) => found.discard !== "new",
  maxPerSubject: (found, wanted) => wanted.maxPerSubject < 0 && found.maxPerSubject >= 0,
  maxAgeMs: (found, wanted) =>
    found.maxAgeMs > 0 && (wanted.maxAgeMs === 0 || found.maxAgeMs < wanted.maxAgeMs),
  // It may have another retention, which removes what no consumer wants.
  isForeign: (found) => found.isForeign,
};

export function changedSettings(wanted: StreamSettings, found: StreamSettings): ChangedSetting[] {
  return comparedSettings
    .filter((each) => JSON.stringify(wanted[each]) !== JSON.stringify(found[each]))
    .map((setting) => ({
      setting,
      value: found[setting],
      wanted: wanted[setting],
      isDangerous: isDangerous[setting]?.(found, wanted) ?? false,
    }));
}

/** Says what is wrong with a stream that is there, and what to do. Undefined: it is as it was made. */
export function refuseStream(wanted: StreamSettings, found: StreamSettings): string | undefined {
  const cluster = found.metadata[clusterKey];
  if (!isOwn(wanted, found)) {
    const whose = cluster === undefined ? "isn't Flotilla's" : "belongs to another deployment";
    return `the stream ${wanted.name} ${whose}: set nats.namespace to one that is free in this account`;
  }
  const settings = changedSettings(wanted, found);
  if (settings.length === 0) return undefined;
  return sentenceOf({ stream: wanted.name, isLost: false, settings });
}

export function sentenceOf({ stream, isLost, settings }: ChangedStream): string {
  if (isLost) return `the stream ${stream} is gone: restore it from a backup of the servers`;
  const differences = settings.map(
    ({ setting, value, wanted }) =>
      `${setting} is ${JSON.stringify(value)}, not ${JSON.stringify(wanted)}`,
  );
  return `the stream ${stream} was changed by hand: set it back (${differences.join("; ")})`;
}

/** How a stream that was made with these settings has changed. Undefined: it hasn't. */
export function changeOf(
  wanted: StreamSettings,
  state: Pick<StreamState, "settings"> | undefined,
): ChangedStream | undefined {
  const stream = wanted.name;
  if (!state || !isOwn(wanted, state.settings)) return { stream, isLost: true, settings: [] };
  const settings = changedSettings(wanted, state.settings);
  return settings.length === 0 ? undefined : { stream, isLost: false, settings };
}

const clusterKey = "flotilla.cluster";

function isOwn({ metadata: wanted }: StreamSettings, { metadata: found }: StreamSettings): boolean {
  return found[clusterKey] === wanted[clusterKey];
}
